//! From the kernel's records of the passive vantage (`intf.h`) to plain structs.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use batchwise_core::passive::{Estimate, Gaps};

use crate::passive_skel::types;

/// What carries a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP, QUIC among others.
    Udp,
}

/// Who talks to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Where its packets come from.
    pub client: SocketAddr,
    /// Where they go.
    pub server: SocketAddr,
    /// What carries it.
    pub transport: Transport,
}

/// Why an epoch closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// A packet came after its time was over.
    Due,
    /// Its flow was idle.
    Idle,
    /// Its flow ended (FIN, RST), began anew (SYN) or was forgotten.
    Ended,
    /// Its flow's place was taken by another.
    Evicted,
}

/// A closed epoch of one flow.
#[derive(Clone, Debug)]
pub struct Epoch {
    /// Names the flow within this run: a keyed hash.
    pub tag: u64,
    /// Who it is; `None` when the event that named it was lost.
    pub flow: Option<Flow>,
    /// The packet that opened it, ns, CLOCK_MONOTONIC.
    pub start: u64,
    /// When it closed, ns, CLOCK_MONOTONIC. Of an idle or ended flow: its last packet.
    pub end: u64,
    /// Why it closed.
    pub close: Close,
    /// What the kernel made of it.
    pub estimate: Estimate,
    /// What it was made of.
    pub gaps: Gaps,
}

/// What became of the packets so far. A packet is in exactly one of `measured`, `acks`,
/// `fragments`, `other`, `malformed` and `contended`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// All.
    pub packets: u64,
    /// Counted into a flow.
    pub measured: u64,
    /// Pure TCP acknowledgments, connection set-up and end without data, and UDP payloads that are
    /// taken for acknowledgments.
    pub acks: u64,
    /// Fragments, which have no ports or not all of their payload.
    pub fragments: u64,
    /// Not TCP or UDP over IP, to other ports, or from the server.
    pub other: u64,
    /// Headers that contradict themselves or the frame.
    pub malformed: u64,
    /// Not counted since another CPU was at work on the flow.
    pub contended: u64,
    /// Flows that showed a first gap.
    pub born: u64,
    /// Flows that lost their place to a new one.
    pub evicted: u64,
    /// Events that found no room.
    pub lost_events: u64,
}

impl Counters {
    /// The sum over CPUs.
    pub(super) fn sum(cpus: impl Iterator<Item = types::bw_counters>) -> Self {
        cpus.fold(Self::default(), |sum, c| {
            let [measured, acks, fragments, other, malformed, contended] = c.fate;
            Self {
                packets: sum.packets + c.fate.iter().sum::<u64>(),
                measured: sum.measured + measured,
                acks: sum.acks + acks,
                fragments: sum.fragments + fragments,
                other: sum.other + other,
                malformed: sum.malformed + malformed,
                contended: sum.contended + contended,
                born: sum.born + c.born,
                evicted: sum.evicted + c.evicted,
                lost_events: sum.lost_events + c.lost_events,
            }
        })
    }
}
