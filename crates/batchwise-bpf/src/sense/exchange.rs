//! The exchange: peers advertise their queue states to each other in TCP options (docs/research/exchange.md). The C side
//! is `exchange.h`.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use libbpf_rs::ProgramType;
use libbpf_rs::query::ProgInfoIter;

use super::config::ACKDELAYS;
use super::extension::{Extension, Loaded};
use super::sensor::{Sensor, store};
use crate::Error;
use crate::object::info;
use crate::sense_skel::OpenSenseSkel;

/// Between two looks for other programs.
const LOOK: Duration = Duration::from_secs(1);

/// Advertises our queue states to peers, and hears theirs.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// At most one option per this time and connection.
    pub period: Duration,
}

impl Extension for Exchange {
    type Attached = ();

    fn needs_cgroup(&self) -> bool {
        true
    }

    fn configure(&self, open: &mut OpenSenseSkel<'_>) {
        open.progs.sense_exchange.set_autoload(true);
        open.progs.sense_adopt_listener.set_autoload(true);
        open.progs.sense_apply.set_autoload(true); // goes on after a pause: `Sensor::count`
        if let Some(ro) = open.maps.rodata_data.as_deref_mut() {
            ro.exchange_period_ns = self.period.as_nanos().try_into().unwrap_or(u32::MAX);
            ro.exchanging = true;
            ro.units |= ACKDELAYS;
        }
    }

    fn attach(&self, loaded: &mut Loaded<'_>) -> Result<(), Error> {
        let progs = &loaded.skel.progs;
        if let Some(cgroup) = &loaded.cgroup {
            let link = progs.sense_exchange.attach_cgroup(cgroup.as_raw_fd());
            let attached = link.map_err(Error::bpf("attaching sock_ops to the cgroup"))?;
            loaded.links.push(attached);
        }
        // listeners that are there already are to answer, too
        let walk = progs.sense_adopt_listener.attach();
        let walk = walk.map_err(Error::bpf("creating iter/tcp for listeners"))?;
        loaded.walks.push(walk);
        Ok(())
    }
}

impl Sensor {
    /// Which callbacks a socket has, all sock_ops programs share. Those of our sockets that do not exchange
    /// are taken off, since they cost; not while another program may want them.
    pub(super) fn look_for_others(&mut self) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK) {
            return;
        }
        self.looked = Some(Instant::now());
        // of its code, not of this process: agents do not disturb each other
        let own = info(self.skel.progs.sense_exchange.as_fd()).tag;
        let mut programs = ProgInfoIter::default();
        let others = programs.any(|p| p.ty == ProgramType::SockOps && p.tag.0 != own);
        store!(self.shared, foreign_sockops, others.into());
    }
}
