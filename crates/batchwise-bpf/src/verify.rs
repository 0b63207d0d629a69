//! The programs of each subcommand as this kernel's verifier finds them: every one that would run here is
//! loaded, in the configuration that has it do most, and attached nowhere. The doctor asks for it; nothing
//! else stands on it, as it stands on every loader.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use batchwise_core::burst::mark::CodePoints;
use batchwise_core::passive::Params;
use batchwise_core::sense::report::Unit;
use libbpf_rs::Object;
use libbpf_rs::skel::Skel;

use crate::Error;
use crate::balance::probe::Probe;
use crate::balance::{Balancer, Measure, Options};
use crate::burst::{Admitter, Bottleneck, Leave, Marker, Marking};
use crate::decap::{Decap, DecapConfig};
use crate::features::{self, Machine, OWN_QUEUE, Program, SendHook, Subcommand};
use crate::object::info;
use crate::passive::{self, Attach};
use crate::profile;
use crate::sense::{Config, Exchange, Extension, Hints, Tuning, Units, sensor};
use crate::traffic::Counter;
use crate::window::Window;

/// Looks at this machine, and where the privileges are there gives the kernel the programs of these
/// subcommands to load, but those for which it is known to lack something.
pub fn examine(subcommands: impl Iterator<Item = Subcommand>) -> Machine {
    let mut machine = Machine::look();
    if machine.missing_capabilities().is_empty() {
        let can = |s: &Subcommand| features::require(&machine, *s).is_ok();
        let loaded = |s| (s, load(s).map_err(|e| e.to_string()));
        machine.loads = subcommands.filter(can).map(loaded).collect();
    }
    machine
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
                    "sense_send" => Some(SendHook::Tracepoint),
                    "sense_send_entry" => Some(SendHook::Entry),
                    "sense_send_late" => Some(SendHook::Ended),
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
            ports: vec![1..=1],
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

fn balanced() -> Options {
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
