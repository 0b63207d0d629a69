//! Counting on demand: the programs that see every segment, send and read. Even one that does nothing
//! costs a request several percent, so while nothing is counted none is attached.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use batchwise_core::sense::governor::Runs;
use libbpf_rs::Link;

use super::{STATE, Sensor, load, store};
use crate::Error;
use crate::attach::walk;
use crate::features::SendHook;
use crate::sense_skel::SenseSkel;
use crate::time::monotonic_ns;

impl SendHook {
    /// Attaches the program that it was loaded with.
    pub(super) fn attach(self, skel: &SenseSkel<'_>) -> Result<Link, Error> {
        let progs = &skel.progs;
        let (program, doing) = match self {
            Self::Tracepoint => (&progs.sense_send, "attaching to tcp_sendmsg_locked"),
            Self::Entry => (
                &progs.sense_send_entry,
                "attaching to the entry of tcp_sendmsg_locked",
            ),
            Self::Ended => (&progs.sense_send_late, "attaching to sock_send_length"),
        };
        program.attach().map_err(Error::bpf(doing))
    }
}

impl Sensor {
    /// Attaches what sees every segment, send and read, and the beginnings and ends of connections.
    fn hooks(&self) -> Result<Vec<Link>, Error> {
        let attach = Error::bpf;
        let progs = &self.skel.progs;
        let segment = progs.sense_segment.attach();
        let read = progs.sense_read.attach();
        let send = self.send.attach(&self.skel);
        let state = match self.state_stays {
            false => Some(progs.sense_state.attach().map_err(attach(STATE))?),
            true => None,
        };
        let hooks = [
            segment.map_err(attach("attaching to tcp_probe"))?,
            read.map_err(attach("attaching to tcp_rcv_space_adjust"))?,
            send?,
        ];
        Ok(state.into_iter().chain(hooks).collect())
    }

    /// What this process sets on sockets meanwhile is taken for what their applications ask for.
    pub fn for_applications<T>(&mut self, set: impl FnOnce() -> T) -> T {
        let agent = load!(self.shared, agent);
        store!(self.shared, agent, 0);
        let done = set();
        store!(self.shared, agent, agent);
        done
    }

    /// Tells peers that counting goes on for so long from now.
    pub fn announce(&mut self, time: Duration) {
        let until = monotonic_ns() + time.as_nanos() as u64;
        store!(self.shared, open_until, until);
    }

    /// For how long peers count that have begun to since the last question; `None`: none has.
    pub fn called(&self) -> Result<Option<Duration>, Error> {
        let rung = self.doorbell.consume();
        rung.map_err(Error::bpf("listening for peers"))?;
        let until = self
            .calls
            .lock()
            .map(|mut calls| std::mem::take(&mut *calls));
        let until = until.unwrap_or_default();
        let left = until.saturating_sub(monotonic_ns());
        Ok((left > 0).then(|| Duration::from_nanos(left)))
    }

    /// Readable when [`Self::called`] has something to say.
    pub fn doorbell(&self) -> io::Result<OwnedFd> {
        // SAFETY: the ring buffer keeps its descriptor open as long as it lives.
        let fd = unsafe { BorrowedFd::borrow_raw(self.doorbell.epoll_fd()) };
        fd.try_clone_to_owned()
    }

    /// Attaches what counts, and begins a window: see [`Self::epoch`].
    pub fn begin(&mut self) -> Result<(), Error> {
        if self.is_counting() {
            return Ok(());
        }
        if self.skel.maps.rodata_data.is_some_and(|ro| ro.exchanging) {
            self.look_for_others();
        }
        self.counting = self.hooks()?;
        store!(self.shared, epoch, self.epoch().wrapping_add(1));
        store!(self.shared, epoch_began, monotonic_ns());
        // the programs must not go on before they can see the new epoch
        fence(Ordering::SeqCst);
        store!(self.shared, paused, 0);
        if self.exchanges_alone() {
            // The callbacks went silent in the pause; with an actuator its own walk wakes them.
            let walk = self.skel.progs.sense_apply.attach();
            let walk = walk.map_err(Error::bpf("creating iter/tcp to go on with the exchange"))?;
            walk::run(walk.as_fd()).map_err(Error::io("going on with the exchange"))?;
        }
        Ok(())
    }

    /// Ends the window: the counters stand still from now on.
    pub fn freeze(&mut self) {
        store!(self.shared, epoch_ended, monotonic_ns());
        store!(self.shared, open_until, 0);
        fence(Ordering::SeqCst);
        store!(self.shared, paused, 1);
    }

    /// Detaches what counts. Takes as long as half of all that a window costs beside its events.
    pub fn detach(&mut self) {
        self.freeze();
        self.counting.clear();
    }

    /// Whether there is an exchange, and no actuator that walks the sockets.
    fn exchanges_alone(&self) -> bool {
        let ro = self.skel.maps.rodata_data;
        ro.is_some_and(|ro| ro.exchanging && !ro.tuning)
    }

    /// How often the programs ran so far, on all CPUs.
    pub fn runs(&self) -> Runs {
        let mut sum = Runs::default();
        let cpus = libbpf_rs::num_possible_cpus().unwrap_or(usize::MAX);
        for cpu in 0..cpus.min(self.shared.cpus()) {
            sum.member += load!(self.shared, runs[cpu].member);
            sum.foreign += load!(self.shared, runs[cpu].foreign);
            sum.started += load!(self.shared, runs[cpu].started);
            sum.timed += load!(self.shared, runs[cpu].timed);
            sum.took += load!(self.shared, runs[cpu].took);
        }
        sum
    }

    /// When the epoch began, ns, CLOCK_MONOTONIC, and when it ended, or now.
    pub fn window(&self) -> (u64, u64) {
        let ended = match self.is_counting() {
            true => monotonic_ns(),
            false => load!(self.shared, epoch_ended),
        };
        (load!(self.shared, epoch_began), ended)
    }

    /// Whether events are being counted.
    pub fn is_counting(&self) -> bool {
        load!(self.shared, paused) == 0
    }

    /// How often counting has begun. A connection counts only once its own epoch is this: until
    /// then it had no event since.
    pub fn epoch(&self) -> u32 {
        load!(self.shared, epoch)
    }
}
