//! Where the answer depends on the client: value sizes and costs of a response are tried with the
//! static arms, to find the setting with the most opposite answers. The numbers found here choose;
//! the result is measured anew.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::arm::Arm;
use crate::stats::median;

/// Of a cheap client.
pub const CHEAP: Duration = Duration::ZERO;

/// What is tried.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Bytes of a value.
    pub value_sizes: &'static [u32],
    /// What an expensive client spends on a response, µs.
    pub expensive_us: &'static [u64],
    /// How often.
    pub repeats: u32,
}

impl Grid {
    /// Of a quick or a full run. At 20,000 requests/s there are 50 µs for each.
    pub fn new(quick: bool) -> Self {
        match quick {
            true => Self {
                value_sizes: &[64, 700, 1024],
                expensive_us: &[28, 34],
                repeats: 1,
            },
            false => Self {
                value_sizes: &[64, 256, 512, 700, 1024, 2048],
                expensive_us: &[20, 28, 34, 38],
                repeats: 3,
            },
        }
    }

    /// Value size, time on a response and arm of each trial: both arms next to each other, the
    /// cheap client first.
    pub fn trials(&self) -> Vec<(u32, Duration, Arm)> {
        let costs: Vec<_> = [CHEAP].into_iter().chain(self.expensive()).collect();
        let mut trials = Vec::new();
        for _ in 0..self.repeats {
            for &size in self.value_sizes {
                let of_size = costs.iter();
                trials.extend(of_size.flat_map(|&busy| Arm::STATIC.map(|arm| (size, busy, arm))));
            }
        }
        trials
    }

    fn expensive(&self) -> impl Iterator<Item = Duration> {
        self.expensive_us.iter().copied().map(Duration::from_micros)
    }
}

/// A duration as nanoseconds.
mod as_ns {
    use super::*;

    pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(time.as_nanos() as u64)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_nanos)
    }
}

/// One trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// Bytes of a value.
    pub value_size: u32,
    /// What the client spends on a response.
    #[serde(rename = "busy_ns", with = "as_ns")]
    pub busy: Duration,
    /// A static arm.
    pub arm: Arm,
    /// Mean latency from the intended send time, ns.
    #[serde(deserialize_with = "crate::engine::float")]
    pub mean_ns: f64,
    /// Whether the load was more than could be carried.
    pub saturated: bool,
}

/// A setting in which both clients are measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Bytes of a value.
    pub value_size: u32,
    /// What the expensive client spends on a response.
    #[serde(rename = "busy_ns", with = "as_ns")]
    pub busy: Duration,
}

/// The setting in which the better arm of the cheap and that of the expensive client differ most
/// clearly; if they differ nowhere, the one in which they come nearest to it.
pub fn most_opposite(grid: &Grid, trials: &[Trial]) -> Option<Setting> {
    let at = |value_size: u32, busy: Duration| {
        let same = move |t: &&Trial| (t.value_size, t.busy) == (value_size, busy);
        trials.iter().filter(same)
    };
    // Above 0: TCP_NODELAY is better.
    let leaning = |value_size: u32, busy: Duration| -> Option<f64> {
        let of = |arm: Arm| {
            let means = at(value_size, busy).filter(|t| t.arm == arm);
            median(&means.map(|t| t.mean_ns).collect::<Vec<_>>())
        };
        Some((of(Arm::Nagle)? / of(Arm::Nodelay)?).ln())
    };
    // A setting that somebody carries comes before any that nobody does.
    let mut best: Option<((bool, f64), Setting)> = None;
    for &value_size in grid.value_sizes {
        for busy in grid.expensive() {
            let both = leaning(value_size, CHEAP).zip(leaning(value_size, busy));
            let Some((cheap, expensive)) = both else {
                continue;
            };
            // As clear as the less clear of the two; negative where both lean the same way.
            let clear = cheap.abs().min(expensive.abs());
            let score = match cheap.signum() == expensive.signum() {
                true => -clear,
                false => clear,
            };
            let carried = at(value_size, busy).any(|t| !t.saturated);
            if best.is_none_or(|(other, _)| (carried, score) > other) {
                best = Some(((carried, score), Setting { value_size, busy }));
            }
        }
    }
    best.map(|(_, setting)| setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Value size, µs on a response, and the means with TCP_NODELAY and with Nagle, µs.
    type Row = (u32, u64, [f64; 2]);

    fn chosen(rows: &[Row]) -> Option<Setting> {
        let both = |&(value_size, busy, means): &Row| {
            let arms = [Arm::Nodelay, Arm::Nagle].into_iter().zip(means);
            arms.map(move |(arm, mean_ns)| Trial {
                value_size,
                busy: Duration::from_micros(busy),
                arm,
                mean_ns,
                saturated: mean_ns > 5000.0,
            })
        };
        let trials: Vec<_> = rows.iter().flat_map(both).collect();
        most_opposite(&Grid::new(true), &trials)
    }

    #[test]
    fn the_setting_with_the_clearest_flip_is_chosen() {
        let found = chosen(&[
            (64, 0, [50.0, 49.0]),
            (64, 28, [200.0, 4000.0]),
            (700, 0, [60.0, 45.0]),
            (700, 28, [200.0, 100.0]),
            (700, 34, [200.0, 400.0]),
        ]);
        let found = found.unwrap();
        assert_eq!(
            (found.value_size, found.busy),
            (700, Duration::from_micros(34))
        );
    }

    #[test]
    fn where_nothing_flips_the_nearest_to_it_is_chosen() {
        let found = chosen(&[
            (64, 0, [50.0, 100.0]),
            (64, 28, [200.0, 400.0]),
            (1024, 0, [50.0, 51.0]),
            (1024, 28, [200.0, 300.0]),
        ]);
        assert_eq!(found.unwrap().value_size, 1024);
    }

    #[test]
    fn a_load_that_somebody_carries_comes_before_a_clearer_one_that_nobody_does() {
        let found = chosen(&[
            (64, 0, [50.0, 40.0]),
            (64, 28, [90_000.0, 300_000.0]),
            (700, 0, [50.0, 49.0]),
            (700, 28, [200.0, 6000.0]),
        ]);
        assert_eq!(found.unwrap().value_size, 700);
        assert_eq!(chosen(&[]), None);
    }
}
