//! The generator thread's CPU: choosing it, and finding out whether the thread really had it.

use std::fs;
use std::thread;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;

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
    pub fn of_this_thread() -> Result<Self> {
        let usage = getrusage(UsageWho::RUSAGE_THREAD)
            .context("cannot read the thread's resource usage")?;
        // "time on the CPU, time waiting for it, times scheduled"
        let statistics = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut fields = statistics
            .split_whitespace()
            .map(|field| field.parse().ok());
        Ok(Self {
            preemptions: usage.involuntary_context_switches().try_into()?,
            run_ns: fields.next().flatten(),
            wait_ns: fields.next().flatten(),
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

/// Runs `work` on a thread of its own, on this CPU if there is one: what is pinned stays there.
pub(crate) fn on_own_thread<T: Send>(
    cpu: Option<usize>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            cpu.map_or(Ok(()), pin)?;
            work()
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Keeps this thread on one CPU.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .with_context(|| {
            format!("cannot run on CPU {cpu} (--cpu): see `nproc` for how many there are")
        })
}
