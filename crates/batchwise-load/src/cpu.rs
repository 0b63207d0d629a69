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
        let wait_ns = statistics.and_then(|text| text.split_whitespace().nth(1)?.parse().ok());
        Ok(Self {
            preemptions,
            wait_ns,
        })
    }

    pub fn since(&self, before: &Self) -> Self {
        Self {
            preemptions: self.preemptions - before.preemptions,
            wait_ns: self
                .wait_ns
                .zip(before.wait_ns)
                .map(|(now, then)| now - then),
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
