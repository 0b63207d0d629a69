//! Whether something grows: a slope over time, with its interval.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::Serialize;

use crate::stats::quantile;

/// Resamples of the bootstrap.
const RESAMPLES: usize = 1_000;
/// What is drawn together: so long a stretch of the remainders, s. They depend on their neighbours.
const BLOCK_S: f64 = 60.0;
/// Fewer samples say nothing.
const ENOUGH: usize = 12;

/// A value at a time (s) in one life of what has it: lives begin anew, each at a level of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub life: u32,
    pub at_s: f64,
    pub value: f64,
}

/// A change an hour, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trend {
    pub per_hour: f64,
    pub low: f64,
    pub high: f64,
    /// The mean of all samples.
    pub mean: f64,
    pub samples: usize,
}

impl Trend {
    /// The slope that all lives have in common, by least squares; its interval by a bootstrap of the
    /// remainders in blocks. `None`: too little is known. The same samples always give the same interval.
    pub fn of(samples: &[Sample]) -> Option<Self> {
        let centred = centred(samples);
        if centred.len() < ENOUGH {
            return None;
        }
        let squares: f64 = centred.iter().map(|(t, _)| t * t).sum();
        let slope = |values: &mut dyn Iterator<Item = (f64, f64)>| {
            values.map(|(t, v)| t * v).sum::<f64>() / squares
        };
        let found = slope(&mut centred.iter().copied());
        if !found.is_finite() {
            return None;
        }
        let rest: Vec<_> = centred.iter().map(|(t, v)| v - found * t).collect();
        let block = block(samples);
        let mut rng = StdRng::seed_from_u64(0);
        let mut slopes = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            let mut drawn = Vec::with_capacity(rest.len() + block);
            while drawn.len() < rest.len() {
                let from = rng.random_range(0..=rest.len() - block);
                drawn.extend_from_slice(&rest[from..from + block]);
            }
            let times = centred.iter().map(|(t, _)| *t);
            slopes.push(found + slope(&mut times.zip(drawn)));
        }
        let hour = 3_600.0;
        Some(Self {
            per_hour: found * hour,
            low: quantile(&slopes, 0.025)? * hour,
            high: quantile(&slopes, 0.975)? * hour,
            mean: samples.iter().map(|s| s.value).sum::<f64>() / samples.len() as f64,
            samples: samples.len(),
        })
    }

    /// Whether it is above zero, as far as the interval tells.
    pub fn grows(&self) -> bool {
        self.low > 0.0
    }
}

/// Times and values without the means of their life.
fn centred(samples: &[Sample]) -> Vec<(f64, f64)> {
    let lives = samples.chunk_by(|a, b| a.life == b.life);
    let centre = |life: &[Sample]| {
        let mean = |of: fn(&Sample) -> f64| life.iter().map(of).sum::<f64>() / life.len() as f64;
        let (t, v) = (mean(|s| s.at_s), mean(|s| s.value));
        life.iter()
            .map(|s| (s.at_s - t, s.value - v))
            .collect::<Vec<_>>()
    };
    lives.flat_map(centre).collect()
}

/// Samples in a block: at most a quarter of all.
fn block(samples: &[Sample]) -> usize {
    let pairs = samples.windows(2).map(|w| w[1].at_s - w[0].at_s);
    let step = quantile(&pairs.collect::<Vec<_>>(), 0.5).unwrap_or(BLOCK_S);
    let wanted = (BLOCK_S / step.max(1e-3)) as usize;
    wanted.clamp(1, samples.len() / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An hour of two lives, a sample every 5 s, with noise that depends on what was before.
    fn hour(per_hour: f64) -> Vec<Sample> {
        let mut rng = StdRng::seed_from_u64(7);
        let mut noise = 0.0;
        let sample = |i: u32| {
            noise = 0.8 * noise + rng.random_range(-1.0..1.0);
            let (life, at_s) = (i / 400, f64::from(i) * 5.0);
            Sample {
                life,
                at_s,
                value: 100.0 * f64::from(life) + per_hour * at_s / 3_600.0 + noise,
            }
        };
        (0..720).map(sample).collect()
    }

    #[test]
    fn a_slope_is_found_although_lives_begin_at_levels_of_their_own() {
        let trend = Trend::of(&hour(50.0)).unwrap();
        assert!((trend.per_hour - 50.0).abs() < 2.0, "{trend:?}");
        assert!(trend.low < 50.0 && 50.0 < trend.high && trend.grows());
    }

    #[test]
    fn what_only_wavers_does_not_grow() {
        let trend = Trend::of(&hour(0.0)).unwrap();
        assert!(trend.low < 0.0 && 0.0 < trend.high, "{trend:?}");
        let flat = |i: u32| Sample {
            life: 0,
            at_s: f64::from(i),
            value: 3.0,
        };
        let trend = Trend::of(&(0..100).map(flat).collect::<Vec<_>>()).unwrap();
        assert_eq!((trend.per_hour, trend.low, trend.high), (0.0, 0.0, 0.0));
        assert!(!trend.grows() && Trend::of(&[]).is_none());
    }
}
