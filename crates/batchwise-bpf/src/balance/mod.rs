//! The load balancer's data path: loads and attaches the program that sends each packet to the
//! backend of its connection, and tells it what services, backends and rings there are.
//!
//! All that forwarding needs is pinned in bpffs under the balancer's name, the attachment included:
//! when the process ends without [`Balancer::remove`], however it ends, packets go their way as
//! before, and the next [`Balancer::start`] takes over what is there.

mod attach;
mod choices;
mod macs;
mod outcome;
mod pins;
pub mod probe;
mod ring;
mod service;
mod start;
mod tables;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use batchwise_core::passive::{Epoch, Params};
use libbpf_rs::{MapCore, ProgramInput};

use crate::Error;
use crate::balance_skel::{BalanceSkel, types, types::balance_bound};
use crate::flows::Counters;
use crate::flows::events::Events;
use crate::object::percpu;
use crate::plain::{bytes, read};

pub use crate::attach::pins::mount_bpffs;
pub use crate::error::BPFFS;
pub use batchwise_core::balance::SLOTS;
pub use outcome::{Outcomes, Tally};
pub use ring::Ring;
pub use service::{Backend, Method, Protocol, Service, ServiceKey, State};

/// Numbers that services can have: 0 to this, exclusive.
pub const SERVICES: u16 = balance_bound::BALANCE_SERVICES.0 as u16;
/// Indices that backends can have: 1 to this, exclusive; 0 is nobody.
pub const BACKENDS: u16 = balance_bound::BALANCE_BACKENDS.0 as u16;

/// Interfaces that packets can arrive at.
pub const INTERFACES: usize = balance_bound::BALANCE_INTERFACES.0 as usize;

// the program looks into the rings that core fills
const _: () = assert!(balance_bound::BALANCE_RING_SLOTS.0 as usize == SLOTS);

/// Entries that one call to the kernel reads or writes.
const BATCH: usize = 4096;

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names what is pinned: letters a to z, digits and `-`, 1 to 32 of them.
    pub name: String,
    /// Where packets arrive, in our network namespace: frames to other MAC addresses than theirs pass.
    /// None, for frames that are handed to [`Balancer::program`]: whatever their MAC address.
    pub interfaces: Vec<String>,
    /// Flows that are to find room at a time.
    pub flows: u32,
    /// What is measured; nothing costs nothing.
    pub measure: Option<Measure>,
    /// Else to no interface: [`Balancer::program`] is called otherwise, or [`Balancer::attach`] is.
    pub attach: bool,
    /// Else all of it ends with the [`Balancer`].
    pub pin: bool,
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Measure {
    /// The estimator.
    pub params: Params,
    /// Flows that are to find room at a time.
    pub flows: u32,
    /// A flow without a packet for so long is forgotten.
    pub forget: Duration,
    /// UDP payloads of at most so many bytes are taken for acknowledgments (QUIC); 0: none are.
    pub udp_acks: u16,
}

/// Flows that are kept, as of the last [`Balancer::census`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Of which more than one packet was seen.
    pub settled: u32,
    /// Of which one packet was seen.
    pub young: u32,
    /// That the census took out.
    pub removed: u32,
}

/// A backend's flows, as [`Balancer::census`] counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// That had a packet within a minute, are established and are not closing.
    pub active: u64,
    /// All whose next packet would go there: also the idle ones, those of which one packet was seen,
    /// and those that are closing, until a minute after their last packet (their entries stay for
    /// longer: they may be half-closed).
    pub kept: u64,
    /// That wait for an answer: those that begin (for 3 s), and those whose last packet had payload
    /// (for a minute).
    pub busy: u64,
}

/// The data path, loaded, and attached if that was asked for.
pub struct Balancer {
    // before the programs: what is attached goes first
    links: Vec<Link>,
    events: Option<Events>,
    pub(crate) skel: BalanceSkel<'static>,
    interfaces: Vec<String>,
    /// Where all is pinned, if it is.
    folder: Option<PathBuf>,
    taken_over: bool,
    flow_counts: FlowCounts,
}

/// An interface that packets can arrive at.
struct Link {
    interface: String,
    attached: Option<OwnedFd>,
}

/// What has changed at an interface.
#[derive(Debug)]
pub enum Change {
    /// It is another than before, by the same name, and the program is attached to it.
    Attached,
    /// It is gone.
    Gone,
    /// It is another than before, and the program cannot be attached to it.
    Refused(Error),
}

impl Balancer {
    /// Starts afresh, or takes over what is pinned under the name: services, backends, rings and
    /// flows are kept, and the program takes the old one's place without a packet being missed.
    ///
    /// # Errors
    /// When the interfaces, their drivers or the kernel do not allow it, or what is pinned does not
    /// fit; each says the remedy.
    pub fn start(options: Options) -> Result<Self, Error> {
        start::start(&options)
    }

    /// Attaches to the interfaces; a program that is attached there under the name gives way, without
    /// a packet being missed. One that is gone, and that the name was attached to, is waited for, see
    /// [`Self::follow_interfaces`].
    ///
    /// # Errors
    /// When the interfaces or their drivers do not allow it; those before the one that does not are
    /// attached to already.
    pub fn attach(&mut self) -> Result<(), Error> {
        let folder = self.folder.as_deref();
        for interface in &self.interfaces {
            let program = self.skel.progs.balance_xdp.as_fd();
            let known = folder.is_some_and(|f| pins::link(f, interface).exists());
            let attached = match attach::attach(interface, program, folder) {
                Err(Error::NoInterface { .. }) if known => None,
                attached => Some(attached?),
            };
            self.links.push(Link {
                interface: interface.clone(),
                attached,
            });
        }
        folder.map_or(Ok(()), |f| attach::detach_others(f, &self.interfaces))
    }

    /// Whether something was pinned under the name.
    pub fn taken_over(&self) -> bool {
        self.taken_over
    }

    /// Whether something is pinned under a name.
    pub fn pinned(name: &str) -> bool {
        pins::exist(name)
    }

    /// Whether a name was attached to an interface, which may be gone, when it was last started.
    pub fn pinned_at(name: &str, interface: &str) -> bool {
        pins::exist(name) && pins::link(&pins::folder(name), interface).exists()
    }

    /// Detaches and unpins all that a name has; that it has nothing is no error.
    ///
    /// # Errors
    /// When the name is none, or the kernel does not let us.
    pub fn remove(name: &str) -> Result<(), Error> {
        pins::check_name(name)?;
        pins::remove(name)
    }

    /// Attaches the program again where an interface is another than it was attached to (one that was
    /// deleted and made anew), and follows MAC addresses, so that frames to one that has changed do
    /// not pass; that of an interface that is gone stays. What has changed, by interface; one that
    /// refuses is tried, and given, again each time. Call it once a second.
    pub fn follow_interfaces(&mut self) -> Result<Vec<(String, Change)>, Error> {
        let mut changes = Vec::new();
        let program = self.skel.progs.balance_xdp.as_fd();
        for link in &mut self.links {
            let change = link.follow(program, self.folder.as_deref());
            changes.extend(change.map(|change| (link.interface.clone(), change)));
        }
        let now = macs::of(&self.interfaces)?;
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            macs::write(&mut bss.own_macs, &now);
        }
        Ok(changes)
    }

    /// Interfaces that the program is not attached to.
    pub fn detached(&self) -> Vec<String> {
        let detached = self.links.iter().filter(|l| l.attached.is_none());
        detached.map(|l| l.interface.clone()).collect()
    }

    /// The program: an XDP program.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.skel.progs.balance_xdp.as_fd()
    }

    /// The map of backends, for the program that sends health checks.
    pub(crate) fn backends_map(&self) -> BorrowedFd<'_> {
        self.skel.maps.backends.as_fd()
    }

    /// The epochs that closed since the last call, oldest first; times are ns, CLOCK_MONOTONIC.
    /// `tuple.backend` says who answered. Call it at least ten times a second: events wait in a
    /// buffer of limited size.
    pub fn poll(&mut self) -> Result<Vec<Epoch>, Error> {
        self.events.as_mut().map_or(Ok(Vec::new()), Events::poll)
    }

    /// Closes the epochs of idle flows, forgets the long idle, and gives what closed, as
    /// [`Self::poll`] does. Call it once per interval.
    pub fn sweep(&mut self) -> Result<Vec<Epoch>, Error> {
        self.close(false)
    }

    /// Closes all epochs, as at the end: what they have measured is not lost.
    pub fn close_all(&mut self) -> Result<Vec<Epoch>, Error> {
        self.close(true)
    }

    fn close(&mut self, all: bool) -> Result<Vec<Epoch>, Error> {
        let sweep = &self.skel.progs.flow_sweep;
        let events = self.events.as_mut();
        events.map_or(Ok(Vec::new()), |e| e.sweep(sweep, all))
    }

    /// Counts the flows of each backend, and takes out those that are over; by index, [`BACKENDS`]
    /// of them. It looks at each flow: call it once per interval.
    pub fn census(&mut self) -> Result<Vec<Counted>, Error> {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.active.fill(0);
            bss.kept.fill(0);
            bss.busy.fill(0);
        }
        // some room is free again before entries would have to make way for others
        let crowded = self.flow_counts.settled > self.skel.maps.flows_settled.max_entries() / 2;
        let census = types::balance_census {
            crowded: crowded.into(),
            ..Default::default()
        };
        let mut context = bytes(&census).to_vec();
        let run = ProgramInput {
            context_in: Some(&mut context),
            ..Default::default()
        };
        let counted = self.skel.progs.balance_census.test_run(run);
        counted.map_err(Error::bpf("counting flows"))?;
        let census: types::balance_census = read(&context).unwrap_or_default();
        self.flow_counts = FlowCounts {
            settled: census.settled,
            young: census.young,
            removed: census.removed,
        };
        let Some(bss) = self.skel.maps.bss_data.as_deref_mut() else {
            return Ok(Vec::new());
        };
        // packets that came meanwhile may be left out until the next census
        bss.busy_flows = bss.busy;
        let all = bss.active.iter().zip(&bss.kept).zip(&bss.busy);
        let counted = all.map(|((&active, &kept), &busy)| Counted {
            active,
            kept,
            busy: u64::try_from(busy).unwrap_or(0),
        });
        Ok(counted.collect())
    }

    /// Lets new flows of services with two choices take the second one for so long from now; `None`:
    /// not any more. Say it again after each [`Self::census`], which alone keeps the counts of busy
    /// flows right. [`Self::start`] lets them for 5 s.
    ///
    /// Not while the table of young flows is filling up: a flow that is pushed out of it goes on by its
    /// first choice.
    pub fn let_choose(&mut self, within: Option<Duration>) -> Result<(), Error> {
        let until = choices::until(within)?;
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.choices_until = until;
        }
        Ok(())
    }

    /// Flows of which one packet was seen that find room at a time.
    pub fn young_room(&self) -> u32 {
        self.skel.maps.flows_young.max_entries()
    }

    /// Flows that are kept, as of the last [`Self::census`].
    pub fn flow_counts(&self) -> FlowCounts {
        self.flow_counts
    }

    /// What became of the packets since the name was first started.
    pub fn outcomes(&self) -> Result<Outcomes, Error> {
        let cpus = percpu(&self.skel.maps.tallies, 0, "reading the tallies")?;
        Ok(Outcomes::sum(cpus))
    }

    /// What each backend that is not vacant was sent since the name was first started. An index that
    /// changes hands goes on counting.
    pub fn backend_tallies(&self) -> Result<Vec<(u16, Tally)>, Error> {
        let map = &self.skel.maps.backend_tallies;
        let tally = |(index, _)| {
            let cpus = percpu(map, u32::from(index), "reading the backends' tallies")?;
            Ok((index, Tally::sum(cpus)))
        };
        self.backends()?.into_iter().map(tally).collect()
    }

    /// What became of the packets that were measured, since this start.
    pub fn measured(&self) -> Result<Counters, Error> {
        let cpus = percpu(&self.skel.maps.counters, 0, "reading the counters")?;
        Ok(Counters::sum(cpus))
    }
}
