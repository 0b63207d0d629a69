//! The web servers behind the balancer, whose speeds can be changed.

use std::path::Path;

use anyhow::Result;
use batchwise_testbed::nginx::Nginx;
use batchwise_testbed::segment::Segment;
use batchwise_testbed::speed::{Brake, Speed};
use batchwise_testbed::stop::Stop;

use super::agent::NAMES;

pub(crate) struct Site {
    pub servers: Vec<Nginx>,
    pub speeds: Vec<Speed>,
    // after the servers
    _brake: Brake,
}

impl Site {
    /// Starts them, at full speed. `fill` puts what the server of this name serves into a folder.
    pub fn start(
        segment: &Segment,
        stop: &Stop,
        fill: impl Fn(&str, &Path) -> Result<()>,
    ) -> Result<Self> {
        let brake = Brake::build()?;
        let (mut servers, mut speeds) = (Vec::new(), Vec::new());
        for (name, host) in NAMES.into_iter().zip(&segment.servers) {
            let speed = brake.speed(host.namespace().name())?;
            let fill = |folder: &Path| fill(name, folder);
            let slow = |command: &mut _| brake.apply(&speed, command);
            servers.push(Nginx::start_changed(host, stop, fill, slow)?);
            speeds.push(speed);
        }
        Ok(Self {
            servers,
            speeds,
            _brake: brake,
        })
    }
}
