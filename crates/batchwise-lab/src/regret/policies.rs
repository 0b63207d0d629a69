//! Who decides: the static arms, ε-greedy and a gradual limit as the paper proposes them, and
//! batchwise's controller.

use batchwise_core::sense::report::Side;
use batchwise_core::tune::{
    Arm, Command, Controller, Event, Gradual, Meter, Policy as Aim, Tuning, Vitals,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::Serialize;

use super::costs::{Batching, Flush};
use super::world::TICK;

/// A way of deciding.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Always this one.
    Static(Arm),
    /// What the better arm is at this moment, known without trying.
    Oracle,
    /// ε-greedy: in a share of epochs of so many ticks a random arm, else the one whose
    /// exponentially weighted mean is lower.
    Greedy {
        /// The share.
        epsilon: f64,
        /// Of an epoch.
        ticks: u64,
    },
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

/// Something that decides at every tick.
pub enum Decider {
    /// Whatever it is told.
    Fixed(Arm),
    /// ε-greedy.
    Greedy(Box<Greedy>),
    /// A limit that moves gradually.
    Gradual(Box<Gradual>, Flush),
    /// batchwise.
    Controller(Box<Controller>),
}

impl Decider {
    /// Begins with the arm that the application asked for.
    pub fn new(kind: Kind, aim: Aim, side: Side, app_setting: Arm, seed: u64) -> Self {
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
                let tuning = Tuning::new(aim, side);
                Self::Gradual(Box::new(Gradual::new(tuning, 0, app_setting)), flush)
            }
            Kind::Controller => {
                let tuning = Tuning::new(aim, side);
                Self::Controller(Box::new(Controller::new(tuning, 0, app_setting)))
            }
        }
    }

    /// What to do until the next tick; `best` is what the oracle knows.
    pub fn tick(&mut self, v: &Vitals, meter: &mut dyn Meter, best: Option<Arm>) -> Command {
        let plain = |arm| Command {
            arm: Some(arm),
            sensing: true,
            probing: false,
            pulse: false,
        };
        match self {
            Self::Fixed(arm) => plain(best.unwrap_or(*arm)),
            Self::Greedy(greedy) => plain(greedy.tick(meter)),
            Self::Gradual(gradual, _) => gradual.tick(v, meter),
            Self::Controller(controller) => controller.tick(v, meter),
        }
    }

    /// What is in force, for who limits batches instead of switching.
    pub fn limited(&self) -> Option<Batching> {
        match self {
            Self::Gradual(gradual, flush) => gradual.limit_in_force().map(|l| Batching::Limit {
                bytes: f64::from(l),
                flush: *flush,
            }),
            _ => None,
        }
    }

    /// What was decided since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        match self {
            Self::Gradual(gradual, _) => gradual.events(),
            Self::Controller(controller) => controller.events(),
            _ => Vec::new(),
        }
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
            self.arm = if self.rng.random_bool(0.5) {
                Arm::On
            } else {
                Arm::Off
            };
        } else if better {
            self.arm = other;
        }
        self.arm
    }
}
