//! Who decides: the static arms, ε-greedy as the paper proposes it, and batchwise.

use batchwise_core::tune::Arm;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution as _, Normal};

use super::agent::Agent;
use super::world::{Passed, TICK};

/// A way of deciding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Always this one.
    Static(Arm),
    /// What the better arm is at this moment, known without trying.
    Oracle,
    /// ε-greedy: in a share of epochs of so many ticks a random arm, else the one whose
    /// exponentially weighted mean is lower.
    Greedy { epsilon: f64, ticks: u64 },
    /// batchwise.
    Controller,
}

impl Kind {
    /// For tables.
    pub fn name(&self) -> String {
        match self {
            Self::Static(Arm::On) => "Nagle".into(),
            Self::Static(Arm::Off) => "NODELAY".into(),
            Self::Oracle => "oracle".into(),
            Self::Greedy { epsilon, ticks } => {
                let epoch = ticks * TICK / 1_000_000;
                format!("ε-greedy {epsilon}, {epoch} ms")
            }
            Self::Controller => "batchwise".into(),
        }
    }
}

/// Something that decides at every tick.
pub enum Decider {
    Fixed(Arm),
    Greedy(Box<Greedy>),
    Controller(Box<Agent>),
}

impl Decider {
    /// Begins with the arm that the application asked for.
    pub fn new(kind: Kind, app_setting: Arm, seed: u64) -> Self {
        match kind {
            Kind::Static(arm) => Self::Fixed(arm),
            Kind::Oracle => Self::Fixed(app_setting),
            Kind::Greedy { epsilon, ticks } => {
                Self::Greedy(Box::new(Greedy::new(epsilon, ticks, app_setting, seed)))
            }
            Kind::Controller => Self::Controller(Box::new(Agent::new(app_setting, seed))),
        }
    }

    /// What is in force in the next tick.
    pub fn arm(&self) -> Arm {
        match self {
            Self::Fixed(arm) => *arm,
            Self::Greedy(greedy) => greedy.arm,
            Self::Controller(agent) => agent.arm(),
        }
    }

    /// Whether arms are tried then, only to find out.
    pub fn is_testing(&self) -> bool {
        matches!(self, Self::Controller(agent) if agent.is_testing())
    }

    /// Whether the kernel counts then.
    pub fn is_counting(&self) -> bool {
        self.is_testing() || !matches!(self, Self::Controller(_))
    }

    /// A tick has passed, and it is `now`.
    pub fn tick(&mut self, now: u64, passed: &Passed) {
        match self {
            Self::Fixed(_) => {}
            Self::Greedy(greedy) => greedy.tick(passed),
            Self::Controller(agent) => agent.tick(now, passed),
        }
    }
}

/// The weight of a new epoch in an arm's mean.
const WEIGHT: f64 = 0.3;
/// The spread of an estimate's error, docs/research/estimator.md.
const ERROR: f64 = 0.03;

/// ε-greedy over epochs.
pub struct Greedy {
    epsilon: f64,
    ticks: u64,
    arm: Arm,
    left: u64,
    passed: Passed,
    means: [Option<f64>; 2],
    rng: StdRng,
    error: Normal<f64>,
    errors: StdRng,
}

impl Greedy {
    fn new(epsilon: f64, ticks: u64, arm: Arm, seed: u64) -> Self {
        Self {
            epsilon,
            ticks,
            arm,
            left: ticks,
            passed: Passed::default(),
            means: [None; 2],
            rng: StdRng::seed_from_u64(seed),
            error: Normal::new(0.0, ERROR).expect("a spread is positive"),
            errors: StdRng::seed_from_u64(seed),
        }
    }

    fn tick(&mut self, passed: &Passed) {
        self.passed.add(passed);
        self.left -= 1;
        if self.left > 0 {
            return;
        }
        self.left = self.ticks;
        let Passed { seen, done, .. } = std::mem::take(&mut self.passed);
        if done >= 1.0 {
            let latency = seen / done * self.error.sample(&mut self.errors).exp();
            let mean = &mut self.means[self.arm as usize];
            *mean = Some(mean.map_or(latency, |old| old + WEIGHT * (latency - old)));
        }
        let other = self.arm.other();
        let better = match (self.means[self.arm as usize], self.means[other as usize]) {
            (Some(here), Some(there)) => there < here,
            (Some(_), None) => true,
            _ => false,
        };
        if self.rng.random_bool(self.epsilon) {
            self.arm = match self.rng.random_bool(0.5) {
                true => Arm::On,
                false => Arm::Off,
            };
        } else if better {
            self.arm = other;
        }
    }
}
