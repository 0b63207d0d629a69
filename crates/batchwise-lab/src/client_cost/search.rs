//! Where the answer depends on the client: value sizes and costs of a response are tried with the
//! static arms, to find the setting with the most opposite answers. The numbers found here choose;
//! the result is measured anew.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::arm::Arm;
use crate::stats::median;

/// What is tried.
#[derive(Clone, Debug)]
pub struct Grid {
    pub value_sizes: &'static [u32],
    /// What an expensive client spends on a response, µs.
    pub expensive_us: &'static [u64],
    pub repeats: usize,
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

    /// Both arms next to each other, of each size the cheap client first.
    pub fn trials(&self) -> Vec<(Setting, Arm)> {
        let mut once = Vec::new();
        for &value_size in self.value_sizes {
            let cheap = Setting {
                value_size,
                busy_ns: 0,
            };
            for setting in [cheap].into_iter().chain(self.expensive(value_size)) {
                once.extend(Arm::STATIC.map(|arm| (setting, arm)));
            }
        }
        once.repeat(self.repeats)
    }

    /// The settings of this size with an expensive client.
    fn expensive(&self, value_size: u32) -> impl Iterator<Item = Setting> {
        let setting = move |us| Setting {
            value_size,
            busy_ns: us * 1000,
        };
        self.expensive_us.iter().copied().map(setting)
    }
}

/// What requests are like, and what the client does with responses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    pub value_size: u32,
    /// What the client spends on a response.
    pub busy_ns: u64,
}

impl Setting {
    pub fn busy(self) -> Duration {
        Duration::from_nanos(self.busy_ns)
    }

    /// The same requests of a client that takes a response and is done.
    pub fn cheap(self) -> Self {
        Self { busy_ns: 0, ..self }
    }
}

/// One trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trial {
    #[serde(flatten)]
    pub setting: Setting,
    pub arm: Arm,
    /// Mean latency from the intended send time.
    #[serde(deserialize_with = "crate::engine::float")]
    pub mean_ns: f64,
    pub saturated: bool,
}

/// The setting in which the better arm of the cheap and that of the expensive client differ most
/// clearly; if they differ nowhere, the one in which they come nearest to it.
pub fn most_opposite(grid: &Grid, trials: &[Trial]) -> Option<Setting> {
    let at = |setting: Setting| trials.iter().filter(move |t| t.setting == setting);
    // Above 0: TCP_NODELAY is better.
    let leaning = |setting: Setting| -> Option<f64> {
        let of = |arm: Arm| {
            let means = at(setting).filter(|t| t.arm == arm);
            median(&means.map(|t| t.mean_ns).collect::<Vec<_>>())
        };
        Some((of(Arm::Nagle)? / of(Arm::Nodelay)?).ln())
    };
    // A setting that somebody carries comes before any that nobody does.
    let mut best: Option<((bool, f64), Setting)> = None;
    let sizes = grid.value_sizes.iter();
    for setting in sizes.flat_map(|&size| grid.expensive(size)) {
        let both = leaning(setting.cheap()).zip(leaning(setting));
        let Some((cheap, expensive)) = both else {
            continue;
        };
        // As clear as the less clear of the two; negative where both lean the same way.
        let clear = cheap.abs().min(expensive.abs());
        let score = match cheap.signum() == expensive.signum() {
            true => -clear,
            false => clear,
        };
        let carried = at(setting).any(|t| !t.saturated);
        if best.is_none_or(|(other, _)| (carried, score) > other) {
            best = Some(((carried, score), setting));
        }
    }
    best.map(|(_, setting)| setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Value size, µs on a response, and the means with TCP_NODELAY and with Nagle, µs.
    type Row = (u32, u64, [f64; 2]);

    /// Value size and µs on a response.
    fn chosen(rows: &[Row]) -> Option<(u32, u64)> {
        let both = |&(value_size, busy_us, means): &Row| {
            let arms = Arm::STATIC.into_iter().zip(means);
            arms.map(move |(arm, mean_ns)| Trial {
                setting: Setting {
                    value_size,
                    busy_ns: busy_us * 1000,
                },
                arm,
                mean_ns,
                saturated: mean_ns > 5000.0,
            })
        };
        let trials: Vec<_> = rows.iter().flat_map(both).collect();
        let found = most_opposite(&Grid::new(true), &trials)?;
        Some((found.value_size, found.busy_ns / 1000))
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
        assert_eq!(found, Some((700, 34)));
    }

    #[test]
    fn where_nothing_flips_the_nearest_to_it_is_chosen() {
        let found = chosen(&[
            (64, 0, [50.0, 100.0]),
            (64, 28, [200.0, 400.0]),
            (1024, 0, [50.0, 51.0]),
            (1024, 28, [200.0, 300.0]),
        ]);
        assert_eq!(found, Some((1024, 28)));
    }

    #[test]
    fn a_load_that_somebody_carries_comes_before_a_clearer_one_that_nobody_does() {
        let found = chosen(&[
            (64, 0, [50.0, 40.0]),
            (64, 28, [90_000.0, 300_000.0]),
            (700, 0, [50.0, 49.0]),
            (700, 28, [200.0, 6000.0]),
        ]);
        assert_eq!(found, Some((700, 28)));
        assert_eq!(chosen(&[]), None);
    }
}
