//! What is attached while requests pass.

use anyhow::{Context as _, Result};
use batchwise_bpf::{Config, Exchange, Hints, Sensor, Units, holder};
use batchwise_core::sense::report::Unit;
use libbpf_rs::Link;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};

use super::Arm;

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/steps.skel.rs"));
}
use skel::{StepsSkel, StepsSkelBuilder};

/// All that can be attached.
pub struct Hooks {
    steps: StepsSkel<'static>,
    /// Sees the connection.
    watch: Sensor,
    /// The same, in all units.
    units: Sensor,
    /// Watches another service.
    foreign: Sensor,
}

/// Attached, until this is dropped.
pub enum Attached<'a> {
    Steps { _links: Vec<Link> },
    Sensor(&'a mut Sensor),
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        if let Self::Sensor(sensor) = self {
            sensor.detach();
        }
    }
}

fn sensor(port: u16, units: &[Unit]) -> Result<Sensor> {
    let config = Config {
        ports: vec![port..=port],
        cgroup: None,
        units: Units::of(units),
        tails: true,
        brief: true,
    };
    let (sensor, _) = Sensor::open(&config, &(None::<Exchange>, None::<Hints>))?;
    Ok(sensor)
}

impl Hooks {
    /// Loads everything; `port` is the listener's, of connections that are made from now on.
    pub fn load(port: u16) -> Result<Self> {
        let steps = StepsSkelBuilder::default().open(holder())?.load();
        // no service is at the port that is nobody's
        let nobodys = 1;
        Ok(Self {
            steps: steps.context("loading hooks of the experiment, which want Linux 6.16")?,
            watch: sensor(port, &[Unit::Sends])?,
            units: sensor(port, &[Unit::Sends, Unit::Bytes, Unit::Packets])?,
            foreign: sensor(nobodys, &[Unit::Sends])?,
        })
    }

    /// Attaches what the arm is about; nothing for the base.
    pub fn attach(&mut self, arm: Arm) -> Result<Option<Attached<'_>>> {
        let progs = &self.steps.progs;
        let steps = match arm {
            Arm::Nothing => return Ok(None),
            Arm::Empty => [&progs.empty_segment, &progs.empty_read, &progs.empty_send],
            Arm::LookUp => [
                &progs.look_up_segment,
                &progs.look_up_read,
                &progs.look_up_send,
            ],
            Arm::Clock => [&progs.clock_segment, &progs.clock_read, &progs.clock_send],
            Arm::Watch | Arm::Units | Arm::Foreign => {
                let sensor = match arm {
                    Arm::Watch => &mut self.watch,
                    Arm::Units => &mut self.units,
                    _ => &mut self.foreign,
                };
                sensor.begin()?;
                return Ok(Some(Attached::Sensor(sensor)));
            }
        };
        let links = steps.into_iter().map(|program| program.attach());
        let links = links.collect::<libbpf_rs::Result<_>>();
        Ok(Some(Attached::Steps {
            _links: links.context("attaching hooks of the experiment")?,
        }))
    }
}
