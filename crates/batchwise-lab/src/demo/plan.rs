//! What the demo does: the same climb of the load several times, with Nagle's algorithm off, with it
//! on, and with batchwise choosing; and the bins of load over which climbs are compared.

use std::time::Duration;

use batchwise_testbed::load::LoadPhase;

use crate::arm::Arm;
use crate::engine::Round;

/// Bytes of a value: small ones, where batching decides how much can be carried.
pub const VALUE_SIZE: u32 = 64;
/// The load at the foot of a climb, requests a second.
pub const FOOT: u64 = 20_000;
/// The load at its top: beyond what TCP_NODELAY carries on a small machine.
pub const TOP: u64 = 320_000;
/// Climbs of each arm.
pub const PASSES: u32 = 3;
/// Load before the first measured second of a climb.
pub const WARMUP: Duration = Duration::from_millis(700);
/// One report of the load generator: short, so that a stall spoils little.
pub const SLICE: Duration = Duration::from_millis(50);

/// One climb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Climb {
    /// What decides about Nagle's algorithm at the client.
    pub arm: Arm,
    /// Which climb of this arm, from 0.
    pub pass: u32,
}

/// Whether the estimates of watchers are shown. While batchwise tunes, its own agents exchange
/// queue states over the connection.
pub fn watched(arm: Arm) -> bool {
    arm != Arm::Batchwise
}

/// The climbs: the static arms in turns, then batchwise, since starting agents takes seconds.
pub fn rounds(arms: &[Arm]) -> Vec<Round<Climb>> {
    let of = |watch: bool| {
        let arms: Vec<_> = arms.iter().filter(|&&arm| watched(arm) == watch).collect();
        let round = move |pass| Round {
            arms: arms.iter().map(|&&arm| Climb { arm, pass }).collect(),
            shuffled: true,
        };
        (0..PASSES).map(round)
    };
    let all = of(true).chain(of(false));
    all.filter(|round| !round.arms.is_empty()).collect()
}

/// How long a climb takes, and over how many bins of load.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Of one climb, without its warm-up.
    pub climb: Duration,
    /// Bins of load, each as wide.
    pub bins: usize,
}

impl Plan {
    /// Of a quick or a full run.
    pub fn new(quick: bool) -> Self {
        let (seconds, bins) = if quick { (3, 5) } else { (6, 10) };
        Self {
            climb: Duration::from_secs(seconds),
            bins,
        }
    }

    /// The bin so many nanoseconds after the warm-up of a climb.
    pub fn bin_at(&self, ns: u64) -> usize {
        let height = ns as f64 / self.climb.as_nanos() as f64;
        ((height * self.bins as f64) as usize).min(self.bins - 1)
    }

    /// The load in the middle of a bin, requests a second.
    pub fn load_of(&self, bin: usize) -> f64 {
        FOOT as f64 + (TOP - FOOT) as f64 * (bin as f64 + 0.5) / self.bins as f64
    }

    /// The load of a climb.
    pub fn phase(&self) -> LoadPhase {
        LoadPhase {
            duration: self.climb,
            rate: FOOT,
            climb_to: Some(TOP),
            value_size: VALUE_SIZE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_climbs_evenly_through_bins_of_the_same_width() {
        let plan = Plan::new(false);
        let at = |ms: u64| plan.bin_at(ms * 1_000_000);
        assert_eq!([at(0), at(599), at(601), at(6000)], [0, 0, 1, 9]);
        assert_eq!([plan.load_of(0), plan.load_of(9)], [35e3, 305e3]);
    }

    #[test]
    fn static_arms_take_turns_and_batchwise_comes_last_or_not_at_all() {
        let arms = |chosen: &[Arm]| -> Vec<usize> {
            let rounds = rounds(chosen);
            rounds.iter().map(|round| round.arms.len()).collect()
        };
        assert_eq!(arms(&Arm::ALL), [2, 2, 2, 1, 1, 1]);
        assert_eq!(arms(&Arm::STATIC), [2, 2, 2]);
    }
}
