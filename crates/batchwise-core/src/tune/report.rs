//! What `batchwise tune` decides: the line that it prints and logs, which other programs rely on. Field
//! names are a contract; fields may be added, never renamed.

use alloc::string::String;
use serde::{Deserialize, Serialize};

use super::{Arm, Knob, Lever};
pub use crate::sense::report::Advice;
use crate::sense::report::Side;

/// A decision as programs read it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Decision {
    /// When it was decided, ns since the Unix epoch.
    pub ts_ns: u64,
    /// `address:port` of the server.
    pub service: String,
    /// Inode of the network namespace that the sockets here are in, as `lsns -t net` has it.
    #[serde(default)]
    pub netns: u32,
    /// Which end this is.
    pub side: Side,
    /// What happened.
    pub event: DecisionEvent,
    /// The policy, as `--policy` has it.
    pub policy: String,
    /// What is tested and switched; the line is about that.
    #[serde(default = "nagle")]
    pub knob: Knob,
    /// Nagle's algorithm after this line.
    pub nagle: InForce,
    /// Delayed acknowledgments after this line, likewise.
    #[serde(default = "app")]
    pub delack: InForce,
    /// How delayed acknowledgments are cut short after this line. null: they are not.
    #[serde(default)]
    pub lever: Option<Lever>,
    /// What most applications asked for.
    pub app_setting: Arm,
    /// The present load, requests a second; before the first test, segments with data that were sent.
    pub load_per_s: f64,
    /// Mean size of a request and its response, bytes.
    pub message_bytes: f64,
    /// What the last test found of each setting.
    pub arms: Arms,
    /// How many times better the setting that the applications did not ask for was in the last test, in
    /// the policy's terms, at most 1000: median over pairs of slices. null: there was no test.
    pub gain: Option<f64>,
    /// CPU time that a message takes at this end, however many go into a segment (the paper's α), as of the
    /// last test, ns. null: both settings sent about as many segments, or no CPU time was seen.
    pub message_cpu_ns: Option<u64>,
    /// CPU time that a segment takes at this end (the paper's β), ns. null: as above.
    pub segment_cpu_ns: Option<u64>,
    /// Pairs of slices that the last test compared.
    pub pairs: u32,
    /// How much of the last minute tests may still take, ns.
    pub budget_left_ns: f64,
    /// What to change in the application instead, by its name on the page about advice. null: nothing is known to be wrong.
    #[serde(default)]
    pub advice: Option<Advice>,
    /// Whether it was only logged, with `--dry-run`.
    pub dry_run: bool,
    /// The reason, in words.
    pub why: String,
}

fn nagle() -> Knob {
    Knob::Nagle
}

fn app() -> InForce {
    InForce::App
}

impl Decision {
    /// What is in force of that which the line is about.
    pub fn in_force(&self) -> &InForce {
        match self.knob {
            Knob::Nagle => &self.nagle,
            Knob::Delack => &self.delack,
        }
    }

    /// Whether Nagle's algorithm works from here on.
    pub fn nagle_on(&self) -> bool {
        match self.nagle {
            InForce::On => true,
            InForce::Off => false,
            InForce::App => self.app_setting == Arm::On,
        }
    }
}

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DecisionEvent {
    /// The service is seen for the first time.
    Start,
    /// A test of the other setting begins.
    Probe,
    /// A dry run would now test the other setting.
    WouldProbe,
    /// A test ended early.
    Abort,
    /// The other setting is in force from now on: a test shows that it is better, or has shown it under a load like this one.
    Adopt,
    /// A test ended that does not show it. Undecided it changes nothing; else the applications' own settings stay or come back.
    Keep,
    /// The applications' own settings are back without a test: they ask for what was adopted themselves, or a test
    /// under a load like this one has shown that it is no better.
    GiveBack,
    /// The agent stops.
    Stop,
}

impl DecisionEvent {
    /// A test came to its end.
    pub fn ends_test(self) -> bool {
        matches!(self, Self::Adopt | Self::Keep)
    }
}

/// The setting in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum InForce {
    /// Nagle's algorithm, whatever the applications asked for.
    On,
    /// TCP_NODELAY, whatever the applications asked for.
    Off,
    /// Each application's own setting.
    App,
}

impl From<Option<Arm>> for InForce {
    /// `None`: each application's own.
    fn from(arm: Option<Arm>) -> Self {
        match arm {
            Some(Arm::On) => Self::On,
            Some(Arm::Off) => Self::Off,
            None => Self::App,
        }
    }
}

/// What the last test found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Arms {
    /// Nagle on. null: not tested.
    pub on: Option<Known>,
    /// Nagle off. null: not tested.
    pub off: Option<Known>,
}

/// How a setting served: medians over a test's slices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Known {
    /// Mean latency of a message, ns, as far as this end sees it.
    pub latency_ns: u64,
    /// Messages a second.
    pub throughput_per_s: f64,
    /// Messages a second that one CPU of the applications at this end would carry, by the CPU time that
    /// they took in the test. null: no process that we may look at took any.
    pub capacity_per_s: Option<f64>,
    /// Acknowledgments without data that this end sends for a message: what it costs to send them soon.
    #[serde(default)]
    pub acks_per_message: f64,
    /// The share of the pairs that count and say what the test says; 0: it was undecided.
    pub confidence: f64,
    /// Time since the test, ns.
    pub age_ns: u64,
}
