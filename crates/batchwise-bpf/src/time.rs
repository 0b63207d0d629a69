//! The clock of the programs (bpf_ktime_get_ns): the machine's CLOCK_MONOTONIC.

use std::fs;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::Error;

/// ns of the clock that the programs use (`bpf_ktime_get_ns`).
pub fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| Duration::from(now).as_nanos() as u64)
}

/// The programs' clock is the machine's (bpf_ktime_get_ns), whatever this process's is.
pub(crate) fn require_initial_time_ns() -> Result<(), Error> {
    let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let of_clock = offsets
        .lines()
        .find_map(|line| line.strip_prefix("monotonic"));
    let is_own = of_clock.is_some_and(|rest| rest.split_whitespace().any(|part| part != "0"));
    match is_own {
        false => Ok(()),
        true => Err(Error::OtherTimeNamespace),
    }
}
