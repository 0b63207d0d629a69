//! Counting on demand: the programs that see every segment, send and read. Even one that does nothing
//! costs a request several percent, so while nothing is counted none is attached.

use std::sync::atomic::{Ordering, fence};

use libbpf_rs::Link;

use super::sensor::{Sensor, read_iter};
use crate::Error;
use crate::features::SendHook;
use crate::sense_skel::SenseSkel;

impl SendHook {
    /// Attaches the program that it was loaded with.
    pub(super) fn attach(self, skel: &SenseSkel<'_>) -> Result<Link, Error> {
        let progs = &skel.progs;
        let (program, doing) = match self {
            Self::Tracepoint => (&progs.bw_send, "attaching to tcp_sendmsg_locked"),
            Self::Entry => (
                &progs.bw_send_entry,
                "attaching to the entry of tcp_sendmsg_locked",
            ),
            Self::Ended => (&progs.bw_send_late, "attaching to sock_send_length"),
        };
        program.attach().map_err(Error::bpf(doing))
    }
}

impl Sensor {
    /// Attaches what sees every segment, send and read.
    pub(super) fn hooks(&self) -> Result<Vec<Link>, Error> {
        let attach = Error::bpf;
        let progs = &self.skel.progs;
        let segment = progs.bw_segment.attach();
        let read = progs.bw_read.attach();
        let send = self.send.attach(&self.skel);
        Ok(vec![
            segment.map_err(attach("attaching to tcp_probe"))?,
            read.map_err(attach("attaching to tcp_rcv_space_adjust"))?,
            send?,
        ])
    }

    /// Switches counting on or off. On, it begins anew: see [`Self::epoch`].
    pub fn count(&mut self, on: bool) -> Result<(), Error> {
        if on == self.is_counting() {
            return Ok(());
        }
        if on {
            self.counting = self.hooks()?;
        }
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.epoch = bss.epoch.wrapping_add(u32::from(on));
            // the programs must not see the new value before the new epoch
            fence(Ordering::SeqCst);
            bss.paused = u32::from(!on);
        }
        if !on {
            self.counting.clear();
        } else if self.exchanges_alone() {
            // The callbacks went silent in the pause; with an actuator its own walk wakes them.
            let walk = self.skel.progs.bw_apply.attach();
            let walk = walk.map_err(Error::bpf("creating iter/tcp to go on with the exchange"))?;
            read_iter(&walk).map_err(Error::io("going on with the exchange"))?;
        }
        Ok(())
    }

    /// Whether there is an exchange, and no actuator that walks the sockets.
    fn exchanges_alone(&self) -> bool {
        let ro = self.skel.maps.rodata_data;
        ro.is_some_and(|ro| ro.exchanging && !ro.tuning)
    }

    /// Whether events are being counted.
    pub fn is_counting(&self) -> bool {
        self.shared(|data| data.paused == 0)
    }

    /// How often counting has begun. A connection counts only once its own epoch is this: until
    /// then it had no event since.
    pub fn epoch(&self) -> u32 {
        self.shared(|data| data.epoch)
    }

    /// When a peer's agent last asked for our counters, ns, CLOCK_MONOTONIC; 0: never.
    pub fn wanted_at(&self) -> u64 {
        self.shared(|data| data.wanted_at)
    }
}
