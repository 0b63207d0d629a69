//! From the kernel's records of the passive vantage (`intf.h`) to plain structs.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use batchwise_core::passive::{Estimate, Gaps};

use crate::passive_skel::types;

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
