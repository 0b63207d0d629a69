//! When a connection may begin the next thing (a page, a request): after a pause from the end of
//! the last one, as a person would, or by a schedule, as fast as responses allow.

use rand::Rng;
use rand_distr::Exp1;

use super::distribution::Distribution;

/// Times are ns since the start of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// A pause from this distribution, ns, from the end of one to the start of the next.
    Think(Distribution),
    /// Starts are due at exponential gaps; one that is due waits for the end of the last.
    Rate {
        /// Mean gap, ns.
        mean_gap: f64,
        /// When the latest start was due.
        due: f64,
    },
}

impl Pace {
    /// `per_second` starts, over `connections`, of which this is one.
    pub fn rate(per_second: f64, connections: usize) -> Self {
        Self::Rate {
            mean_gap: 1e9 * connections as f64 / per_second,
            due: 0.0,
        }
    }

    /// The first start: at a random moment of a pause, so that connections do not go in step.
    pub fn first(&mut self, rng: &mut impl Rng) -> u64 {
        match self {
            Self::Think(pause) => (pause.mean() * rng.random::<f64>()) as u64,
            Self::Rate { .. } => self.after(0, rng),
        }
    }

    /// The next start, where the last one ended at `end`. It may lie before `end` if it was due
    /// then.
    pub fn after(&mut self, end: u64, rng: &mut impl Rng) -> u64 {
        match self {
            Self::Think(pause) => end.saturating_add(pause.sample(rng) as u64),
            Self::Rate { mean_gap, due } => {
                *due += *mean_gap * rng.sample::<f64, _>(Exp1);
                *due as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    #[test]
    fn a_pause_counts_from_the_end_and_a_schedule_does_not() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut person = Pace::Think(Distribution::Constant(5.0));
        assert_eq!(person.after(100, &mut rng), 105);
        let mut pace = Pace::rate(1000.0, 10);
        let last = (0..10_000).map(|_| pace.after(1 << 60, &mut rng)).last();
        let per_second = 10_000.0 / (last.unwrap() as f64 * 1e-9);
        assert!((97.0..103.0).contains(&per_second), "{per_second}");
    }

    #[test]
    fn connections_do_not_begin_in_step() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut person = Pace::Think(Distribution::Constant(1e9));
        let first = person.first(&mut rng);
        assert!(first < 1_000_000_000 && first != person.first(&mut rng));
    }
}
