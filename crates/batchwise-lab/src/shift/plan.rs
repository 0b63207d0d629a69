//! What `shift` does: two schedules of load and value size, and for how long.

use std::time::Duration;

use batchwise_testbed::load::LoadPhase;

use crate::engine::ratio::ENOUGH_PAIRS;
use crate::redis::steady;

/// Between two reports of the load: also how finely a settling time is known.
pub const INTERVAL: Duration = Duration::from_millis(50);
/// Load before the first measured moment, at the first phase's rate.
pub const WARMUP: Duration = Duration::from_secs(1);

const SMALL: u32 = 64;
const LARGE: u32 = 4096;
/// 64 B: more than TCP_NODELAY carries, and easy with Nagle's algorithm.
const SMALL_RATE: u64 = 350_000;
/// 4 KiB: easy with TCP_NODELAY, several times the latency with Nagle's algorithm.
const LARGE_RATE: u64 = 120_000;

/// A load that changes under way.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub name: &'static str,
    pub phases: Vec<LoadPhase>,
}

/// How often the schedules are run: fewer pairs decide nothing.
pub const ROUNDS: u32 = ENOUGH_PAIRS as u32;

/// What is run, and for how long.
pub struct Extent {
    /// How long a static arm is measured at each phase alone.
    pub steady: Duration,
    pub schedules: Vec<Schedule>,
}

impl Extent {
    /// Of a quick or a full run.
    pub fn new(quick: bool) -> Self {
        let seconds = Duration::from_secs;
        Self {
            steady: seconds(if quick { 1 } else { 4 }),
            schedules: match quick {
                true => vec![steps(2)],
                false => vec![steps(3), ramps(seconds(10))],
            },
        }
    }
}

/// 64 B, 4 KiB, 64 B for so many seconds each, then to and fro every second.
fn steps(each: u64) -> Schedule {
    let small = |seconds| steady(Duration::from_secs(seconds), SMALL_RATE, SMALL);
    let large = |seconds| steady(Duration::from_secs(seconds), LARGE_RATE, LARGE);
    let slow = [small(each), large(each), small(each)];
    let fast = [large(1), small(1), large(1), small(1)];
    Schedule {
        name: "steps",
        phases: [&slow[..], &fast].concat(),
    }
}

/// 64 B climbing beyond what TCP_NODELAY carries, 4 KiB climbing, 64 B coming down again.
fn ramps(each: Duration) -> Schedule {
    let phase = |(rate, to, size)| LoadPhase {
        climb_to: Some(to),
        ..steady(each, rate, size)
    };
    let climbs = [
        (100_000, 400_000, SMALL),
        (40_000, 140_000, LARGE),
        (400_000, 100_000, SMALL),
    ];
    Schedule {
        name: "ramps",
        phases: climbs.map(phase).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_go_from_small_values_to_large_ones_and_back_in_whole_intervals() {
        for Schedule { name, phases } in Extent::new(false).schedules {
            let sizes: Vec<_> = phases.iter().map(|p| p.value_size).collect();
            assert_eq!(sizes[..3], [64, 4096, 64], "{name}");
            let rest = |p: &LoadPhase| p.duration.as_millis() % INTERVAL.as_millis();
            assert!(phases.iter().all(|phase| rest(phase) == 0), "{name}");
        }
    }
}
