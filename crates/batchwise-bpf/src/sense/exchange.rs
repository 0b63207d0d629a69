//! The exchange: peers advertise their queue states to each other in TCP options (docs/research/exchange.md). The C side
//! is `exchange.h`.

use std::os::fd::AsRawFd;
use std::time::Duration;

use super::config::ACKDELAYS;
use super::extension::{Extension, Loaded};
use crate::Error;
use crate::sense_skel::OpenSenseSkel;

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
        open.progs.bw_exchange.set_autoload(true);
        open.progs.bw_adopt_listener.set_autoload(true);
        open.progs.bw_apply.set_autoload(true); // goes on after a pause: `Sensor::count`
        if let Some(ro) = open.maps.rodata_data.as_deref_mut() {
            ro.exchange_period_ns = self.period.as_nanos().try_into().unwrap_or(u32::MAX);
            ro.exchanging = true;
            ro.units |= ACKDELAYS;
        }
    }

    fn attach(&self, loaded: &mut Loaded<'_>) -> Result<(), Error> {
        let progs = &loaded.skel.progs;
        if let Some(cgroup) = &loaded.cgroup {
            let link = progs.bw_exchange.attach_cgroup(cgroup.as_raw_fd());
            let attached = link.map_err(Error::bpf("attaching sock_ops to the cgroup"))?;
            loaded.links.push(attached);
        }
        // listeners that are there already are to answer, too
        let walk = progs.bw_adopt_listener.attach();
        let walk = walk.map_err(Error::bpf("creating iter/tcp for listeners"))?;
        loaded.walks.push(walk);
        Ok(())
    }
}
