//! CPU shares over time: constant, in steps, or as in the committed trace, which has the character
//! of the one that the paper takes from Google's Borg (§5.1): usage sampled each second from a
//! histogram of five minutes.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution as _, Normal};

/// The committed trace; `cargo run -p batchwise-lab --example share_trace` makes it.
const COMMITTED: &str = include_str!("../../traces/share.csv");
/// Seed of the committed trace.
pub const SEED: u64 = 2019;
/// Length of the committed trace, seconds.
pub const SECONDS: u32 = 300;
const HEADER: &str = "at_ms,share";

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

    /// The committed one.
    pub fn committed() -> Result<Self> {
        Self::parse(COMMITTED).context("the committed trace of CPU shares")
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

    /// From CSV: a header, then milliseconds and share.
    pub fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        if lines.next() != Some(HEADER) {
            bail!("a trace of CPU shares begins with the line {HEADER:?}");
        }
        let mut steps: Vec<Step> = Vec::new();
        for (number, line) in (2..).zip(lines) {
            let step = parse_step(line).with_context(|| format!("line {number}, {line:?}"))?;
            let first = steps.is_empty() && step.at.is_zero();
            if !first && steps.last().is_none_or(|before| before.at >= step.at) {
                bail!("line {number}: times begin at 0 and grow");
            }
            steps.push(step);
        }
        if steps.is_empty() {
            bail!("a trace of CPU shares needs at least one line");
        }
        Ok(Self(steps))
    }

    /// As CSV.
    pub fn csv(&self) -> String {
        let mut text = format!("{HEADER}\n");
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

fn parse_step(line: &str) -> Result<Step> {
    let (at, share) = line.split_once(',').context("two columns are expected")?;
    let at = Duration::from_millis(at.trim().parse()?);
    let share: f64 = share.trim().parse()?;
    if !(share > 0.0 && share <= 1.0) {
        bail!("a share is above 0 and at most 1");
    }
    Ok(Step { at, share })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_trace_is_what_the_generator_makes() {
        let made = Trace::generate(SEED, SECONDS).unwrap();
        assert_eq!(Trace::committed().unwrap(), made);
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

    #[test]
    fn csv_reads_back_and_nonsense_is_refused_with_its_line() {
        let trace = Trace::generate(1, 5).unwrap();
        assert_eq!(Trace::parse(&trace.csv()).unwrap(), trace);
        for (text, complaint) in [
            ("", "begins with"),
            ("at_ms,share\n", "at least one"),
            ("at_ms,share\n0,1.5\n", "line 2"),
            ("at_ms,share\n5,0.5\n", "begin at 0"),
            ("at_ms,share\n0,0.5\n0,0.6\n", "line 3"),
        ] {
            let error = format!("{:#}", Trace::parse(text).unwrap_err());
            assert!(error.contains(complaint), "{error}");
        }
    }
}
