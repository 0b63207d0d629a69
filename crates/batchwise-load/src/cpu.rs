//! The generator thread's CPU: choosing it, and finding out whether the thread really had it.

use std::fs;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;

use crate::Error;

/// What the scheduler did to a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuUse {
    /// Involuntary context switches.
    pub preemptions: u64,
    /// Time on a CPU, ns; `None` on kernels without scheduler statistics.
    pub run_ns: Option<u64>,
    /// Time in which the thread could have run but had to wait, ns; `None` on kernels without
    /// scheduler statistics.
    pub wait_ns: Option<u64>,
}

impl CpuUse {
    pub fn of_this_thread() -> Result<Self, Error> {
        let usage = getrusage(UsageWho::RUSAGE_THREAD)
            .map_err(|why| Error::system("cannot read the thread's resource usage", why))?;
        let preemptions = usage
            .involuntary_context_switches()
            .try_into()
            .unwrap_or_default();
        // "time on the CPU, time waiting for it, times scheduled"
        let statistics = fs::read_to_string("/proc/thread-self/schedstat").ok();
        let field = |nth| {
            statistics
                .as_ref()?
                .split_whitespace()
                .nth(nth)?
                .parse()
                .ok()
        };
        Ok(Self {
            preemptions,
            run_ns: field(0),
            wait_ns: field(1),
        })
    }

    pub fn since(&self, before: &Self) -> Self {
        let passed = |now: Option<u64>, then| now.zip(then).map(|(now, then)| now - then);
        Self {
            preemptions: self.preemptions - before.preemptions,
            run_ns: passed(self.run_ns, before.run_ns),
            wait_ns: passed(self.wait_ns, before.wait_ns),
        }
    }
}

/// Keeps this thread on one CPU.
pub(crate) fn pin(cpu: usize) -> Result<(), Error> {
    let mut set = CpuSet::new();
    set.set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|why| {
            let what =
                format!("cannot run on CPU {cpu} (--cpu): see `nproc` for how many there are");
            Error::system(what, why)
        })
}
