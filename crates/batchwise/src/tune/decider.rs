//! Who decides for a service: the controller of both arms, or the limit that moves gradually.

use batchwise_core::tune::{
    Arm, Command, Controller, Event, Gradual, Known, Meter, Tuning, Vitals,
};

pub enum Decider {
    /// Nagle on or off.
    Arms(Box<Controller>),
    /// A batching limit (`--hold aimd`).
    Limit(Box<Gradual>),
}

/// The same question to whoever decides.
macro_rules! ask {
    ($decider:expr, $d:ident => $question:expr) => {
        match $decider {
            Decider::Arms($d) => $question,
            Decider::Limit($d) => $question,
        }
    };
}

impl Decider {
    /// Begins at `now`; `gradual`: with a limit that moves.
    pub fn new(tuning: Tuning, gradual: bool, now: u64) -> Self {
        if gradual {
            Self::Limit(Box::new(Gradual::new(tuning, now, Arm::On)))
        } else {
            Self::Arms(Box::new(Controller::new(tuning, now, Arm::On)))
        }
    }

    pub fn tick(&mut self, vitals: &Vitals, meter: &mut dyn Meter) -> Command {
        ask!(self, d => d.tick(vitals, meter))
    }

    pub fn events(&mut self) -> Vec<Event> {
        ask!(self, d => d.events())
    }

    /// The arm in force.
    pub fn arm(&self) -> Arm {
        ask!(self, d => d.arm())
    }

    /// Bytes that may be held back, where a limit moves.
    pub fn limit(&self) -> Option<u32> {
        match self {
            Self::Arms(_) => None,
            Self::Limit(d) => d.limit_in_force(),
        }
    }

    /// What most applications asked for.
    pub fn app_setting(&self) -> Arm {
        ask!(self, d => d.wish())
    }

    pub fn load(&self) -> f64 {
        ask!(self, d => d.load())
    }

    pub fn message_bytes(&self) -> f64 {
        ask!(self, d => d.message_bytes())
    }

    pub fn known(&self, arm: Arm) -> Option<Known> {
        ask!(self, d => d.known(arm))
    }

    pub fn budget_left(&self) -> f64 {
        match self {
            Self::Arms(d) => d.budget_left(),
            Self::Limit(_) => 0.0,
        }
    }

    /// What exploration may still cost, s of what all messages wait.
    pub fn budget_left_s(&self) -> f64 {
        match self {
            Self::Arms(d) => d.budget_left_s(),
            Self::Limit(_) => 0.0,
        }
    }

    /// Pulses so far, and those of them that found a sender behind.
    pub fn pulses(&self) -> (u64, u64) {
        match self {
            Self::Arms(d) => d.pulses(),
            Self::Limit(_) => (0, 0),
        }
    }

    pub fn explain(&self) -> String {
        ask!(self, d => d.explain())
    }
}
