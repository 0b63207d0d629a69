//! When requests are due. The schedule is a pure function of the configuration and the seed;
//! nothing that the server does can move it.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::Exp1;

use crate::config::Config;
use crate::payload::Request;
use crate::phase::Stretch;
use crate::rate::{Arrivals, Rate};

/// The arrival times, one after another, ns since the start of the run.
pub(crate) struct Schedule<'a> {
    rng: SmallRng,
    arrivals: Arrivals,
    stretches: &'a [Stretch],
    /// The stretch of the next arrival.
    at: usize,
    next: f64,
    /// Requests per ns in the latest gap.
    per_ns: f64,
}

impl<'a> Schedule<'a> {
    /// The load of `stretches`, of which there is one at least; before the first, at its initial
    /// rate.
    pub fn new(seed: u64, stretches: &'a [Stretch], arrivals: Arrivals) -> Self {
        let mut schedule = Self {
            rng: SmallRng::seed_from_u64(seed),
            arrivals,
            stretches,
            at: 0,
            next: 0.0,
            per_ns: stretches[0].rate.from * 1e-9,
        };
        schedule.advance();
        schedule
    }

    /// The next arrival.
    pub fn next(&self) -> u64 {
        self.next as u64
    }

    /// The expected requests per ns in the gap before [`Self::next`].
    pub fn per_ns(&self) -> f64 {
        self.per_ns
    }

    /// The stretch in which [`Self::next`] lies.
    pub fn stretch(&self) -> &'a Stretch {
        &self.stretches[self.at]
    }

    /// Moves to the arrival after [`Self::next`].
    pub fn advance(&mut self) {
        let requests = match self.arrivals {
            Arrivals::Poisson => self.rng.sample::<f64, _>(Exp1),
            Arrivals::Constant => 1.0,
        };
        let (from, mut left) = (self.next, requests);
        self.per_ns = per_ns(self.stretch(), from);
        loop {
            let per_ns = per_ns(self.stretch(), self.next);
            let (due, end) = (self.next + left / per_ns, self.stretch().to as f64);
            if due < end || self.at + 1 == self.stretches.len() {
                self.next = due;
                return;
            }
            // What is left of the gap passes at the rate of the next stretch.
            left -= (end - self.next) * per_ns;
            self.next = end;
            self.at += 1;
            let whole = end - from + left / self::per_ns(self.stretch(), end);
            self.per_ns = requests / whole;
        }
    }
}

/// The rate of a stretch at a time, requests per ns.
fn per_ns(stretch: &Stretch, at: f64) -> f64 {
    let Rate { from, to } = stretch.rate;
    if from == to {
        return from * 1e-9;
    }
    let length = (stretch.to - stretch.from) as f64;
    let progress = ((at - stretch.from as f64) / length).clamp(0.0, 1.0);
    1e-9 * (from + (to - from) * progress)
}

/// Which requests are sent, independent of when.
pub(crate) struct Mix {
    rng: SmallRng,
    keys: u32,
}

impl Mix {
    pub fn new(config: &Config) -> Self {
        // Another stream than the gaps', so that the mix does not change the arrival times.
        let rng = SmallRng::seed_from_u64(config.seed ^ 0x9e37_79b9_7f4a_7c15);
        Self {
            rng,
            keys: config.keys,
        }
    }

    /// One of the requests of a stretch.
    pub fn pick(&mut self, stretch: &Stretch) -> Request {
        let get = stretch.get_ratio > 0.0 && self.rng.random::<f64>() < stretch.get_ratio;
        Request {
            key: self.rng.random_range(0..self.keys),
            size: stretch.size,
            get,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn stretch(from_s: u64, to_s: u64, rate: Rate) -> Stretch {
        Stretch {
            from: from_s * 1_000_000_000,
            to: to_s * 1_000_000_000,
            rate,
            get_ratio: 0.05,
            value_size: 64,
            size: 0,
        }
    }

    fn gaps(arrivals: Arrivals, rate: f64, count: usize) -> Vec<f64> {
        let stretches = [stretch(1, 3, Rate::constant(rate))];
        let mut schedule = Schedule::new(1, &stretches, arrivals);
        (0..count)
            .map(|_| {
                let before = schedule.next();
                schedule.advance();
                (schedule.next() - before) as f64
            })
            .collect()
    }

    fn per_half_second<const N: usize>(stretches: &[Stretch]) -> [u32; N] {
        let mut schedule = Schedule::new(1, stretches, Arrivals::Constant);
        let mut counts = [0; N];
        while let Some(count) = counts.get_mut((schedule.next() / 500_000_000) as usize) {
            *count += 1;
            schedule.advance();
        }
        counts
    }

    fn assert_near<const N: usize>(found: [u32; N], expected: [u32; N]) {
        for (got, want) in found.iter().zip(expected) {
            assert!(got.abs_diff(want) <= 3, "{found:?}");
        }
    }

    #[test]
    fn poisson_gaps_have_the_asked_mean_and_a_coefficient_of_variation_of_one() {
        let gaps = gaps(Arrivals::Poisson, 100_000.0, 200_000);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 10_000.0 - 1.0).abs() < 0.01, "mean {mean}");
        let cv = variance.sqrt() / mean;
        assert!((cv - 1.0).abs() < 0.02, "cv {cv}");
    }

    #[test]
    fn constant_gaps_are_equal_and_do_not_drift() {
        let gaps = gaps(Arrivals::Constant, 300_000.0, 300_000);
        assert!(gaps.iter().all(|&g| g == 3333.0 || g == 3334.0));
        assert!((gaps.iter().sum::<f64>() - 1e9).abs() < 2.0);
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule_and_another_seed_another_one() {
        let stretches = [stretch(1, 3, Rate::constant(1e5))];
        let times = |seed| {
            let mut s = Schedule::new(seed, &stretches, Arrivals::Poisson);
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
        let found = per_half_second(&[stretch(1, 3, rate)]);
        assert_near(found, [500, 500, 1000, 2000, 3000, 4000]);
    }

    #[test]
    fn the_load_of_a_schedule_steps_at_the_ends_of_its_phases() {
        let rates = [1_000.0, 8_000.0, 2_000.0].map(Rate::constant);
        let found = per_half_second(&[
            stretch(1, 2, rates[0]),
            stretch(2, 3, rates[1]),
            stretch(3, 4, rates[2]),
        ]);
        assert_near(found, [500, 500, 500, 500, 4000, 4000, 1000, 1000]);
    }

    #[test]
    fn a_gap_of_a_slow_phase_does_not_reach_far_into_a_fast_one() {
        let stretches = [
            stretch(0, 1, Rate::constant(0.01)),
            stretch(1, 2, Rate::constant(1_000.0)),
        ];
        let schedule = Schedule::new(1, &stretches, Arrivals::Constant);
        // 0.01 of the first request's gap has passed in the first second.
        assert_eq!(schedule.next(), 1_000_990_000);
        assert_eq!(schedule.stretch(), &stretches[1]);
        let relative = schedule.per_ns() * schedule.next() as f64;
        assert!((relative - 1.0).abs() < 1e-6, "{relative}");
    }

    #[test]
    fn the_mix_has_the_asked_share_of_gets() {
        let line = "redis --addr 127.0.0.1:1 --rate 1";
        let mut mix = Mix::new(&Config::parse_from(line.split(' ')));
        let stretch = stretch(0, 1, Rate::constant(1.0));
        let gets = (0..100_000).filter(|_| mix.pick(&stretch).get).count();
        assert!((4_600..5_400).contains(&gets), "{gets}");
    }
}
