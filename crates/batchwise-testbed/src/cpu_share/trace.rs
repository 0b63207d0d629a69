//! CPU shares over time: constant, in steps, or as in the committed trace, which has the character
//! of the one that the paper takes from Google's Borg (§5.1): usage sampled each second from a
//! histogram of five minutes.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution as _, Normal};

/// Seed of the committed trace.
const SEED: u64 = 2019;
/// Length of the committed trace, seconds.
const SECONDS: u32 = 300;

/// A share from some moment on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Since the trace's begin.
    pub at: Duration,
    /// Of one CPU, above 0, at most 1.
    pub share: f64,
}

/// Steps in the order of time; the first is at 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace(Vec<Step>);

impl Trace {
    /// One share for ever.
    pub fn constant(share: f64) -> Self {
        Self(vec![Step {
            at: Duration::ZERO,
            share,
        }])
    }

    /// These shares in turn, each for `each`, until `length` is full.
    pub fn steps_of(shares: &[f64], each: Duration, length: Duration) -> Self {
        let at = (0..).map(|i| each * i).take_while(|at| *at < length);
        Self(
            at.zip(shares.iter().cycle())
                .map(|(at, &share)| Step { at, share })
                .collect(),
        )
    }

    /// The one that is committed as `traces/share.csv`; the example `share_trace` writes it there.
    pub fn committed() -> Result<Self> {
        Self::generate(SEED, SECONDS)
    }

    /// A random one. The usual share of a CPU and its spread are drawn anew each minute (the paper's
    /// histograms are of five), the share of each second from them; in one second of ten it moves
    /// three more times, faster than epochs of a second can follow.
    pub fn generate(seed: u64, seconds: u32) -> Result<Self> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut steps = Vec::new();
        let mut usage = Normal::new(0.7, 0.1)?;
        for second in 0..seconds {
            if second % 60 == 0 {
                usage = Normal::new(rng.random_range(0.5..0.85), rng.random_range(0.05..0.2))?;
            }
            let moves = if rng.random_bool(0.1) { 4 } else { 1 };
            for part in 0..moves {
                let drawn: f64 = usage.sample(&mut rng);
                let at = Duration::from_millis(u64::from(second * 1000 + part * 250));
                let share = (drawn.clamp(0.3, 1.0) * 1000.0).round() / 1000.0;
                steps.push(Step { at, share });
            }
        }
        Ok(Self(steps))
    }

    /// As CSV.
    pub fn csv(&self) -> String {
        let mut text = String::from("at_ms,share\n");
        for step in &self.0 {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{},{}", step.at.as_millis(), step.share);
        }
        text
    }

    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// The part before `length`.
    pub fn first(mut self, length: Duration) -> Self {
        self.0.retain(|step| step.at < length || step.at.is_zero());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_trace_is_what_the_generator_makes() {
        let made = Trace::committed().unwrap().csv();
        assert_eq!(made, include_str!("../../traces/share.csv"));
    }

    #[test]
    fn the_committed_trace_moves_each_second_between_a_third_and_all() {
        let trace = Trace::committed().unwrap();
        let shares: Vec<_> = trace.steps().iter().map(|step| step.share).collect();
        assert!(shares.iter().all(|share| (0.3..=1.0).contains(share)));
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        assert!((0.55..0.85).contains(&mean), "{mean}");
        assert!(trace.steps().len() > SECONDS as usize);
    }

    #[test]
    fn steps_repeat_until_the_end() {
        let trace = Trace::steps_of(&[1.0, 0.5], Duration::from_secs(2), Duration::from_secs(5));
        let seen: Vec<_> = trace
            .steps()
            .iter()
            .map(|s| (s.at.as_secs(), s.share))
            .collect();
        assert_eq!(seen, [(0, 1.0), (2, 0.5), (4, 1.0)]);
    }
}
