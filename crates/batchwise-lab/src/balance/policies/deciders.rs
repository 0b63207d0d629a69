//! Who decides where new connections go.

use batchwise_core::balance::{Controller, Observed, UNIT, Why};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Anybody, each connection anew.
    Random,
    /// Maglev with the configured weights.
    Static,
    /// §4 of the paper as written.
    Paper,
    /// This project's controller, and Maglev.
    #[serde(rename = "weights alone")]
    Weights,
    /// The less busy of two backends by Maglev with the configured weights.
    #[serde(rename = "two choices alone")]
    TwoChoices,
    /// The less busy of two by Maglev with the controller's weights: `--policy latency`.
    #[serde(rename = "batchwise")]
    Latency,
    /// Whoever has the fewest requests for what it can do at this moment, which no balancer sees.
    #[serde(rename = "least loaded")]
    Oracle,
}

impl Kind {
    /// Whether weights are the controller's.
    pub fn is_aware(self) -> bool {
        matches!(self, Self::Weights | Self::Latency)
    }

    /// Whether the less busy of two is taken.
    pub fn chooses(self) -> bool {
        matches!(self, Self::TwoChoices | Self::Latency)
    }
}

pub enum Decider {
    Fixed,
    Paper(Paper),
    Latency(Controller),
}

impl Decider {
    pub fn new(kind: Kind) -> Self {
        match kind {
            Kind::Paper => Self::Paper(Paper::default()),
            Kind::Latency | Kind::Weights => Self::Latency(Controller::default()),
            _ => Self::Fixed,
        }
    }

    /// Weights from now on, 0 for who is down, and whether a server's latency is not believed.
    pub fn step(&mut self, observed: &[Observed]) -> Vec<(u32, bool)> {
        let believed = |weight| (weight, false);
        let configured = |s: &Observed| if s.serving { s.base * UNIT } else { 0 };
        match self {
            Self::Fixed => observed.iter().map(configured).map(believed).collect(),
            Self::Paper(paper) => paper.step(observed).into_iter().map(believed).collect(),
            Self::Latency(own) => {
                let verdicts = own.step(observed).into_iter();
                verdicts
                    .map(|v| (v.weight, v.why == Why::Suspicious))
                    .collect()
            }
        }
    }
}

/// §4 as written. Where it gives no number, those here: a server at the high watermark loses this
/// share of its weight, one that is twice as slow twice that; nobody takes more than this share of the
/// mean weight at once; and weights go back by this share of the way.
#[derive(Default)]
pub struct Paper {
    weights: Vec<f64>,
    before: Vec<f64>,
    quiet: u32,
}

const ALPHA_HIGH: f64 = 1.5;
const ALPHA_LOW: f64 = 1.2;
const QUIET: u32 = 3;
const SHIFT: f64 = 0.1;
const CAP: f64 = 0.25;
const BACK: f64 = 0.1;
/// Latencies that differ by less have not changed.
const SAME: f64 = 0.1;

impl Paper {
    fn step(&mut self, observed: &[Observed]) -> Vec<u32> {
        let n = observed.len();
        if self.weights.len() != n {
            self.weights = vec![1.0; n];
            self.before = vec![0.0; n];
        }
        let believed = |s: &Observed| s.latency_ns.filter(|_| s.serving);
        let latencies: Vec<Option<f64>> = observed.iter().map(believed).collect();
        let known = latencies.iter().flatten().copied();
        let best = known.fold(f64::INFINITY, f64::min);
        let fresh = |i: usize| observed[i].samples as f64 / observed[i].connections.max(1) as f64;
        let with = |test: &dyn Fn(f64) -> bool| -> Vec<usize> {
            let passes = |i: &usize| latencies[*i].is_some_and(test);
            (0..n).filter(passes).collect()
        };
        let slow = with(&|l| l > ALPHA_HIGH * best);
        let least = slow.iter().map(|i| fresh(*i)).fold(0.0, f64::max);
        let mut fast = with(&|l| l < ALPHA_LOW * best);
        fast.retain(|i| fresh(*i) >= least);
        let same = |(latency, before): (&Option<f64>, &f64)| {
            latency.is_none_or(|l| (l / before - 1.0).abs() < SAME)
        };
        let unchanged = latencies.iter().zip(&self.before).all(same);
        self.quiet = if unchanged { self.quiet + 1 } else { 0 };
        for (before, latency) in self.before.iter_mut().zip(&latencies) {
            *before = latency.unwrap_or(*before);
        }
        if !fast.is_empty() && !slow.is_empty() {
            let share = |i: &usize| SHIFT * latencies[*i].unwrap_or(0.0) / (ALPHA_HIGH * best);
            let shares: Vec<f64> = slow.iter().map(|i| share(i).min(1.0)).collect();
            let each = slow.iter().zip(&shares);
            let given: f64 = each.map(|(i, share)| self.weights[*i] * share).sum();
            let taken = (given / fast.len() as f64).min(CAP);
            let kept = taken * fast.len() as f64 / given.max(f64::MIN_POSITIVE);
            for (i, share) in slow.iter().zip(&shares) {
                self.weights[*i] *= 1.0 - share * kept;
            }
            for i in fast {
                self.weights[i] += taken;
            }
        } else if self.quiet >= QUIET {
            for weight in &mut self.weights {
                *weight += BACK * (1.0 - *weight);
            }
        }
        let weight = |(s, weight): (&Observed, &f64)| match s.serving {
            true => (weight * f64::from(s.base * UNIT)) as u32,
            false => 0,
        };
        observed.iter().zip(&self.weights).map(weight).collect()
    }
}
