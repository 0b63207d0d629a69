//! For how long new flows may have a second choice: the program's clock.

use std::io;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::Error;
use crate::balance_skel::types;

const SEEN_SHIFT: u32 = types::balance_seen_unit::BALANCE_SEEN_SHIFT.0;

/// Until when, in units of the program; `None`: until just now. The units wrap in nine years, and what
/// is over for half of that would begin again: it has to be written while it is over, too.
pub(super) fn until(within: Option<Duration>) -> Result<u32, Error> {
    // bpf_ktime_get_coarse_ns: what is over by another clock may not be by that one
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).map_err(io::Error::from);
    let now = now.map_err(Error::io("reading the monotonic clock"))?;
    Ok(at(now.into(), within))
}

fn at(now: Duration, within: Option<Duration>) -> u32 {
    let units = |time: Duration| time.as_nanos() >> SEEN_SHIFT;
    // wraps, as the program's does
    let now = units(now) as u32;
    match within {
        Some(within) => {
            let most = units(within).min(i32::MAX as u128) as u32;
            now.wrapping_add(most)
        }
        None => now.wrapping_sub(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the program sees it.
    fn may(until: u32, now: Duration) -> bool {
        until.wrapping_sub((now.as_nanos() >> SEEN_SHIFT) as u32) as i32 > 0
    }

    #[test]
    fn it_ends_in_time_also_where_the_units_wrap() {
        let wraps = Duration::from_nanos(1 << (SEEN_SHIFT + 32 - 10)) * (1 << 10);
        for now in [
            Duration::ZERO,
            Duration::from_secs(100),
            wraps / 2,
            wraps - Duration::from_secs(1),
            wraps,
        ] {
            let five = Duration::from_secs(5);
            let until = at(now, Some(five));
            assert!(may(until, now), "{now:?}");
            assert!(may(until, now + five * 9 / 10), "{now:?}");
            assert!(!may(until, now + five * 11 / 10), "{now:?}");
            assert!(!may(at(now, None), now), "{now:?}");
            assert!(may(at(now, Some(Duration::MAX)), now), "{now:?}");
        }
    }
}
