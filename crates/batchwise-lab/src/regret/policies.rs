//! Who decides: the static arms, ε-greedy and a gradual limit as the paper proposes them, and
//! batchwise's controller.

use batchwise_core::sense::report::Side;
use batchwise_core::tune::{
    Arm, Command, Controller, Gradual, Meter, Policy as Aim, Tuning, Vitals,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::costs::{Batching, Flush};
use super::world::TICK;

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
    /// A limit in bytes: additive increase, multiplicative decrease.
    Gradual(Flush),
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
            Self::Gradual(Flush::AtOnce) => "AIMD, flushed at once".into(),
            Self::Gradual(Flush::AtAck) => "AIMD, flushed at ACKs".into(),
            Self::Controller => "batchwise".into(),
        }
    }
}

/// What is in force before the first decision: what the application asked for.
pub const UNDECIDED: Command = Command {
    arm: None,
    sensing: true,
    probing: false,
    pulse: false,
};

/// Something that decides at every tick.
pub enum Decider {
    Fixed(Arm),
    Greedy(Box<Greedy>),
    Gradual(Box<Gradual>, Flush),
    Controller(Box<Controller>),
}

impl Decider {
    /// Begins with the arm that the application asked for.
    pub fn new(kind: Kind, side: Side, app_setting: Arm, seed: u64) -> Self {
        let tuning = Tuning::new(Aim::Latency, side);
        match kind {
            Kind::Static(arm) => Self::Fixed(arm),
            Kind::Oracle => Self::Fixed(app_setting),
            Kind::Greedy { epsilon, ticks } => Self::Greedy(Box::new(Greedy {
                epsilon,
                ticks,
                arm: app_setting,
                left: ticks,
                means: [None; 2],
                rng: StdRng::seed_from_u64(seed),
            })),
            Kind::Gradual(flush) => {
                Self::Gradual(Box::new(Gradual::new(tuning, 0, app_setting)), flush)
            }
            Kind::Controller => Self::Controller(Box::new(Controller::new(tuning, 0, app_setting))),
        }
    }

    /// What to do until the next tick.
    pub fn tick(&mut self, v: &Vitals, meter: &mut dyn Meter) -> Command {
        let plain = |arm| Command {
            arm: Some(arm),
            ..UNDECIDED
        };
        match self {
            Self::Fixed(arm) => plain(*arm),
            Self::Greedy(greedy) => plain(greedy.tick(meter)),
            Self::Gradual(gradual, _) => gradual.tick(v, meter),
            Self::Controller(controller) => controller.tick(v, meter),
        }
    }

    /// What is in force, for a policy that limits batches instead of switching.
    pub fn limited(&self) -> Option<Batching> {
        let Self::Gradual(gradual, flush) = self else {
            return None;
        };
        let bytes = f64::from(gradual.limit_in_force()?);
        Some(Batching::Limit {
            bytes,
            flush: *flush,
        })
    }
}

/// The weight of a new epoch in an arm's mean.
const WEIGHT: f64 = 0.3;

/// ε-greedy over epochs.
pub struct Greedy {
    epsilon: f64,
    ticks: u64,
    arm: Arm,
    left: u64,
    means: [Option<f64>; 2],
    rng: StdRng,
}

impl Greedy {
    fn tick(&mut self, meter: &mut dyn Meter) -> Arm {
        self.left -= 1;
        if self.left > 0 {
            return self.arm;
        }
        self.left = self.ticks;
        if let Some(m) = meter.measure() {
            let mean = &mut self.means[self.arm as usize];
            *mean = Some(mean.map_or(m.latency, |old| old + WEIGHT * (m.latency - old)));
        }
        meter.restart();
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
        self.arm
    }
}
