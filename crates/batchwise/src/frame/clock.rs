//! The clocks of the command: the wall's for what is shown, the kernel's for what is counted, and the CPU time of what
//! is paced or told.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use batchwise_bpf::monotonic_ns;
use nix::time::{ClockId, clock_gettime};

/// ns since 1970.
pub fn wall_clock_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, nanos)
}

/// CPU time that this thread has used.
pub fn thread_cpu() -> nix::Result<Duration> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Into::into)
}

/// CPU time that this process has used.
pub fn process_cpu() -> nix::Result<Duration> {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Into::into)
}

/// Whole ns; more than fit, some 584 years, are as many as fit.
pub fn nanos(d: Duration) -> u64 {
    d.as_nanos().try_into().unwrap_or(u64::MAX)
}
