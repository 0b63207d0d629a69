//! When requests are due. The schedule is a pure function of the configuration and the seed;
//! nothing that the server does can move it.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::Exp1;
use serde::{Deserialize, Serialize};

use crate::config::{Config, Rate};
use crate::payload::Request;

/// How requests are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Exponential gaps: independent users.
    #[default]
    Poisson,
    /// Equal gaps.
    Constant,
}

/// A seed for a run that need not repeat another one.
pub fn random_seed() -> u64 {
    // 53 bits: JSON readers that know only floating-point numbers give it back unchanged.
    rand::random::<u64>() >> 11
}

/// The arrival times, one after another, ns since the start of the run.
pub(crate) struct Schedule {
    rng: SmallRng,
    arrivals: Arrivals,
    rate: Rate,
    warmup_ns: f64,
    duration_ns: f64,
    next: f64,
    /// Requests per ns at the time of the latest gap.
    per_ns: f64,
}

impl Schedule {
    pub fn new(config: &Config, rate: Rate, arrivals: Arrivals) -> Self {
        let mut schedule = Self {
            rng: SmallRng::seed_from_u64(config.seed),
            arrivals,
            rate,
            warmup_ns: config.warmup.as_nanos() as f64,
            duration_ns: config.duration.as_nanos() as f64,
            next: 0.0,
            per_ns: rate.from * 1e-9,
        };
        schedule.advance();
        schedule
    }

    /// The next arrival.
    pub fn next(&self) -> u64 {
        self.next as u64
    }

    /// The expected requests per ns where the gap before [`Self::next`] began.
    pub fn per_ns(&self) -> f64 {
        self.per_ns
    }

    /// Moves to the arrival after [`Self::next`].
    pub fn advance(&mut self) {
        if self.rate.from != self.rate.to {
            let progress = ((self.next - self.warmup_ns) / self.duration_ns).clamp(0.0, 1.0);
            self.per_ns = 1e-9 * (self.rate.from + (self.rate.to - self.rate.from) * progress);
        }
        let gap = match self.arrivals {
            Arrivals::Poisson => self.rng.sample::<f64, _>(Exp1),
            Arrivals::Constant => 1.0,
        };
        self.next += gap / self.per_ns;
    }
}

/// Which requests are sent, independent of when.
pub(crate) struct Mix {
    rng: SmallRng,
    get_ratio: f64,
    keys: u32,
}

impl Mix {
    pub fn new(config: &Config) -> Self {
        // Another stream than the gaps', so that the mix does not change the arrival times.
        let rng = SmallRng::seed_from_u64(config.seed ^ 0x9e37_79b9_7f4a_7c15);
        Self {
            rng,
            get_ratio: config.get_ratio,
            keys: config.keys,
        }
    }

    pub fn pick(&mut self) -> Request {
        let get = self.get_ratio > 0.0 && self.rng.random::<f64>() < self.get_ratio;
        Request {
            key: self.rng.random_range(0..self.keys),
            get,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn config() -> Config {
        let mut config = Config::new("127.0.0.1:1".parse().unwrap());
        config.warmup = Duration::from_secs(1);
        config.duration = Duration::from_secs(2);
        config
    }

    fn gaps(arrivals: Arrivals, rate: f64, count: usize) -> Vec<f64> {
        let mut schedule = Schedule::new(&config(), Rate::constant(rate), arrivals);
        (0..count)
            .map(|_| {
                let before = schedule.next();
                schedule.advance();
                (schedule.next() - before) as f64
            })
            .collect()
    }

    #[test]
    fn poisson_gaps_have_the_asked_mean_and_a_coefficient_of_variation_of_one() {
        let gaps = gaps(Arrivals::Poisson, 100_000.0, 200_000);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 10_000.0 - 1.0).abs() < 0.01, "mean {mean}");
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.02,
            "cv {}",
            variance.sqrt() / mean
        );
    }

    #[test]
    fn constant_gaps_are_equal_and_do_not_drift() {
        let gaps = gaps(Arrivals::Constant, 300_000.0, 300_000);
        assert!(gaps.iter().all(|&g| g == 3333.0 || g == 3334.0));
        assert!((gaps.iter().sum::<f64>() - 1e9).abs() < 2.0);
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule_and_another_seed_another_one() {
        let times = |seed| {
            let config = Config { seed, ..config() };
            let mut s = Schedule::new(&config, Rate::constant(1e5), Arrivals::Poisson);
            (0..50)
                .map(|_| (s.advance(), s.next()).1)
                .collect::<Vec<_>>()
        };
        assert_eq!(times(7), times(7));
        assert_ne!(times(7), times(8));
    }

    #[test]
    fn a_climb_starts_after_the_warm_up_and_ends_at_the_final_rate() {
        let rate = Rate {
            from: 1_000.0,
            to: 9_000.0,
        };
        let mut schedule = Schedule::new(&config(), rate, Arrivals::Constant);
        let mut per_half_second = [0u32; 6];
        while schedule.next() < 3_000_000_000 {
            per_half_second[(schedule.next() / 500_000_000) as usize] += 1;
            schedule.advance();
        }
        let expected = [500, 500, 1000, 2000, 3000, 4000];
        for (got, want) in per_half_second.iter().zip(expected) {
            assert!(got.abs_diff(want) <= 3, "{per_half_second:?}");
        }
    }

    #[test]
    fn the_mix_has_the_asked_share_of_gets() {
        let mut mix = Mix::new(&Config {
            get_ratio: 0.05,
            ..config()
        });
        let gets = (0..100_000).filter(|_| mix.pick().get).count();
        assert!((4_600..5_400).contains(&gets), "{gets}");
    }
}
