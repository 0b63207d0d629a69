//! The programs of each subcommand as this kernel's verifier finds them: every one that would run here is
//! loaded, in the configuration that has it do most, and attached nowhere.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use batchwise_core::burst::mark::CodePoints;
use batchwise_core::passive::Params;
use batchwise_core::sense::report::Unit;
use libbpf_rs::Object;
use libbpf_rs::skel::Skel;
use serde::Serialize;

use crate::balance::{Balancer, Measure, Options};
use crate::burst::{Admitter, Bottleneck, Leave, Marker, Marking};
use crate::decap::{Decap, DecapConfig};
use crate::features::{Machine, OWN_QUEUE, SendHook, Subcommand};
use crate::object::info;
use crate::passive::{self, Attach};
use crate::probe::Probe;
use crate::profile;
use crate::sense::sensor;
use crate::traffic::Counter;
use crate::window::Window;
use crate::{Config, Error, Exchange, Extension, Hints, Tuning, Units};

/// What the kernel's verifier looks at, at most, before it gives up: `BPF_COMPLEXITY_LIMIT_INSNS`.
pub const LIMIT: u32 = 1_000_000;

/// A program that the kernel took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Program {
    /// Its name, as in the kernel.
    pub name: String,
    /// How many instructions the verifier looked at, out of [`LIMIT`]. Absent: the kernel does not say
    /// (before Linux 5.16).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u32>,
    /// Which hook for what is sent it is for.
    #[serde(skip)]
    pub hook: Option<SendHook>,
}

/// Loads all programs that `subcommand` may use.
///
/// # Errors
/// What the kernel says to the first that it does not take.
pub fn load(subcommand: Subcommand) -> Result<Vec<Program>, Error> {
    let mut all = Programs::default();
    match subcommand {
        Subcommand::Watch => {
            all.sense(&(None::<Exchange>, None::<Hints>))?;
            all.sense(&(exchange(), Hints))?;
        }
        Subcommand::Tune => all.sense(&((exchange(), Hints), Tuning))?,
        Subcommand::Passive => {
            let frags = Machine::look().takes_frags();
            for (attach, then) in [
                (Attach::Native, None),
                (Attach::Native, Some(PathBuf::new())),
                (Attach::Tc, None),
            ] {
                let skel = passive::load(&passively(attach, then), LEAST, attach, frags)?;
                all.add(skel.object());
            }
        }
        Subcommand::Balance => {
            let balancer = Balancer::start(balanced())?;
            all.add(balancer.skel.object());
            all.add(Probe::load(&balancer)?.skel.object());
        }
        Subcommand::Decap => all.add(Decap::load(&DecapConfig::default())?.skel.object()),
        Subcommand::Window => all.add(Window::load()?.skel.object()),
        Subcommand::Profile => {
            all.add(profile::load_alone()?.object());
            all.add(Counter::load()?.object());
        }
        Subcommand::Burst => {
            let points = CodePoints::default();
            let marking = Marking::Mark {
                ports: vec![1],
                least: 2,
            };
            let bottleneck = Bottleneck {
                limit: 1 << 17,
                rate: 1_000_000_000,
                packet_bytes: None,
                points,
                border: true,
            };
            all.add(Marker::load(&marking, points)?.skel.object());
            all.add(Marker::load(&Marking::Border, points)?.skel.object());
            all.add(Admitter::load(&bottleneck)?.object());
            if Machine::look().has(OWN_QUEUE) {
                all.add(Admitter::load_own(&bottleneck, Leave::Paced)?.object());
            }
        }
    }
    Ok(all.0.into_values().collect())
}

/// By name; of one that was loaded in several configurations, what took most.
#[derive(Default)]
struct Programs(BTreeMap<String, Program>);

impl Programs {
    fn add(&mut self, object: &Object) {
        for program in object.progs().filter(|p| p.autoload()) {
            let name = program.name().to_string_lossy().into_owned();
            let found = Program {
                instructions: Some(info(program.as_fd()).verified_insns).filter(|n| *n > 0),
                hook: match name.as_str() {
                    "bw_send" => Some(SendHook::Tracepoint),
                    "bw_send_entry" => Some(SendHook::Entry),
                    "bw_send_late" => Some(SendHook::Ended),
                    _ => None,
                },
                name: name.clone(),
            };
            let known = self.0.entry(name).or_insert_with(|| found.clone());
            known.instructions = known.instructions.max(found.instructions);
        }
    }

    fn sense(&mut self, extension: &impl Extension) -> Result<(), Error> {
        let config = Config {
            ports: vec![1],
            cgroup: None,
            units: Units::of(&[Unit::Sends, Unit::Bytes, Unit::Packets]),
            tails: true,
            brief: true,
        };
        let (skel, _) = sensor::load(&config, extension, None, &Machine::look(), Some(2))?;
        self.add(skel.object());
        Ok(())
    }
}

const fn exchange() -> Exchange {
    Exchange {
        period: Duration::from_millis(1),
    }
}

/// Flows and buckets: no program depends on how many there are.
const LEAST: u32 = 2;

fn passively(attach: Attach, then: Option<PathBuf>) -> passive::Config {
    passive::Config {
        interface: String::new(),
        attach,
        ports: vec![1],
        flows: LEAST,
        params: Params::default(),
        udp_acks: 0,
        forget: Duration::from_secs(1),
        then,
    }
}

pub(crate) fn balanced() -> Options {
    Options {
        name: String::new(),
        interfaces: Vec::new(),
        flows: LEAST,
        measure: Some(Measure {
            params: Params::default(),
            flows: LEAST,
            forget: Duration::from_secs(1),
            udp_acks: 0,
        }),
        attach: false,
        pin: false,
    }
}
