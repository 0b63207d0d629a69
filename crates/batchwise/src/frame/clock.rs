//! The clocks of the command: the wall's for what is shown, the kernel's for what is counted.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

/// ns since 1970.
pub fn wall_clock_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, nanos)
}

/// ns of the clock that the kernel's counters and events are in (`bpf_ktime_get_ns`).
pub fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| nanos(now.into()))
}

/// Whole ns; more than fit, some 584 years, are as many as fit.
pub fn nanos(d: Duration) -> u64 {
    d.as_nanos().try_into().unwrap_or(u64::MAX)
}
