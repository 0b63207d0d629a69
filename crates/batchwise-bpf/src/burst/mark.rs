//! The loader of the program that marks bursts on a sender, and of the one that takes marks off at the
//! border of the network that knows them.

use std::os::fd::{AsFd, BorrowedFd};

use batchwise_core::burst::mark::{CLASSES, CodePoints};

use crate::Error;
use crate::attach::interface::{Attachment, Interface, Tc};
use crate::features::{self, Machine, Subcommand};
use crate::mark_skel::{MarkSkel, MarkSkelBuilder, types};
use crate::object::{load, percpu, rodata};

/// What is done with packets that leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marking {
    /// Bursts of this host's sockets are marked.
    Mark {
        /// Local or remote ports of connections; none: all.
        ports: Vec<u16>,
        /// Segments of a burst, at least.
        least: u32,
    },
    /// Marks are taken off.
    Border,
}

/// Packets by their one fate, since the start. A GSO buffer is one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkFates {
    /// Marked, by class of what was left of the burst.
    pub marked: [u64; CLASSES.len()],
    /// Of these: the first of their burst.
    pub bursts: u64,
    /// What TCP sent at once was no burst.
    pub too_short: u64,
    /// Its DSCP is not 0.
    pub dscp_used: u64,
    /// Its DSCP is one of those that marks have.
    pub taken: u64,
    /// No payload.
    pub no_data: u64,
    /// Of a port that was not asked for.
    pub other_port: u64,
    /// Of no TCP socket of this host.
    pub no_socket: u64,
    /// Its headers could not be read, or not be written.
    pub unreadable: u64,
    /// A mark was taken off.
    pub cleared: u64,
}

/// The program, at an interface until this is dropped.
pub struct Marker {
    // before the program: what is attached goes first
    attached: Option<Attachment>,
    pub(crate) skel: MarkSkel<'static>,
    border: bool,
}

impl Marker {
    /// Loads the program and attaches it to what leaves by this interface. Marks have these code points.
    ///
    /// # Errors
    /// When the interface or the kernel does not allow it; each says the remedy.
    pub fn attach(interface: &str, marking: &Marking, points: CodePoints) -> Result<Self, Error> {
        let interface = Interface::find(interface)?;
        let mut marker = Self::load(marking, points)?;
        marker.attached = Some(interface.tc_once(marker.program(), Tc::Egress)?);
        Ok(marker)
    }

    /// Loads the program and attaches it nowhere.
    pub fn load(marking: &Marking, points: CodePoints) -> Result<Self, Error> {
        features::require(&Machine::look(), Subcommand::Burst)?;
        let border = matches!(marking, Marking::Border);
        let skel = load::<MarkSkelBuilder>(|open| {
            open.progs.burst_mark.set_autoload(!border);
            open.progs.burst_border.set_autoload(border);
            let ro = rodata(open.maps.rodata_data.as_deref_mut())?;
            ro.low = points.low();
            if let Marking::Mark { ports, least } = marking {
                ro.least = *least;
                ro.some_ports = !ports.is_empty();
                for &port in ports {
                    ro.port_bits[usize::from(port) / 64] |= 1 << (port % 64);
                }
            }
            Ok(())
        })?;
        Ok(Self {
            attached: None,
            skel,
            border,
        })
    }

    /// The program, for tests.
    pub fn program(&self) -> BorrowedFd<'_> {
        match self.border {
            true => self.skel.progs.burst_border.as_fd(),
            false => self.skel.progs.burst_mark.as_fd(),
        }
    }

    /// Whether it is still where it was attached: interfaces go.
    pub fn is_attached(&self) -> bool {
        let at = self.attached.as_ref();
        at.is_some_and(|attached| attached.ifindex().is_some())
    }

    /// What became of the packets so far.
    pub fn fates(&self) -> Result<MarkFates, Error> {
        let mut sum = MarkFates::default();
        let fates = &self.skel.maps.fates;
        for cpu in percpu::<types::burst_mark_fates>(fates, 0, "reading the counters")? {
            for (sum, cpu) in sum.marked.iter_mut().zip(cpu.marked) {
                *sum += cpu;
            }
            sum.bursts += cpu.bursts;
            sum.too_short += cpu.too_short;
            sum.dscp_used += cpu.dscp_used;
            sum.taken += cpu.taken;
            sum.no_data += cpu.no_data;
            sum.other_port += cpu.other_port;
            sum.no_socket += cpu.no_socket;
            sum.unreadable += cpu.unreadable;
            sum.cleared += cpu.cleared;
        }
        Ok(sum)
    }
}
