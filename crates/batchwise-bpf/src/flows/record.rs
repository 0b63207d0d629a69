//! From the kernel's records of measured flows (`flows_intf.h`) to plain structs of `batchwise-core`.

use std::collections::HashMap;
use std::mem::size_of;
use std::net::SocketAddr;

use batchwise_core::passive::flight::Flight;
use batchwise_core::passive::{Epoch, Estimate, Gaps, Kind, Mode, Transport, Tuple, address};

use crate::flows_skel::{types, types::flow_fate, types::flow_gaps_flag};
use crate::plain::read;

/// As in lib/modes.h: a slot without a mode.
const NO_MODE: u8 = 0xff;
const GAPS_ACKS: u8 = flow_gaps_flag::FLOW_GAPS_ACKS.0 as u8;
const GAPS_FULL: u8 = flow_gaps_flag::FLOW_GAPS_FULL.0 as u8;
const GAPS_AFTER_FULL: u8 = flow_gaps_flag::FLOW_GAPS_AFTER_FULL.0 as u8;
const GAPS_FLIGHT: u8 = flow_gaps_flag::FLOW_GAPS_FLIGHT.0 as u8;
const GAPS_BURSTS: u8 = flow_gaps_flag::FLOW_GAPS_BURSTS.0 as u8;
const EST_STALLED: u32 = types::flow_estimate_flag::FLOW_EST_STALLED.0;
const PROTO_TCP: u8 = 6;
const PROTO_UDP: u8 = 17;

/// What became of the packets so far. A packet is in exactly one of `measured`, `acks`,
/// `fragments`, `other`, `malformed` and `contended`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// All.
    pub packets: u64,
    /// Counted into a flow.
    pub measured: u64,
    /// Without payload (TCP's acknowledgments, its set-up and end), and UDP payloads that are taken
    /// for acknowledgments.
    pub acks: u64,
    /// Fragments: they have no ports, or not all of their payload.
    pub fragments: u64,
    /// Not TCP or UDP over IP, to other ports, or a server's SYN-ACK.
    pub other: u64,
    /// Headers that contradict themselves or the frame.
    pub malformed: u64,
    /// Not counted since another CPU was at work on the flow.
    pub contended: u64,
    /// Flows that showed a first gap.
    pub born: u64,
    /// Flows that lost their slot to a new one.
    pub evicted: u64,
    /// Events that found no room.
    pub lost_events: u64,
}

impl Counters {
    /// The sum over CPUs.
    pub(crate) fn sum(cpus: impl Iterator<Item = types::flow_counters>) -> Self {
        cpus.fold(Self::default(), |sum, c| {
            let fate = |fate: flow_fate| c.fate[fate.0 as usize];
            Self {
                packets: sum.packets + c.fate.iter().sum::<u64>(),
                measured: sum.measured + fate(flow_fate::FLOW_FATE_MEASURED),
                acks: sum.acks + fate(flow_fate::FLOW_FATE_ACK),
                fragments: sum.fragments + fate(flow_fate::FLOW_FATE_FRAGMENT),
                other: sum.other + fate(flow_fate::FLOW_FATE_OTHER),
                malformed: sum.malformed + fate(flow_fate::FLOW_FATE_MALFORMED),
                contended: sum.contended + fate(flow_fate::FLOW_FATE_CONTENDED),
                born: sum.born + c.born,
                evicted: sum.evicted + c.evicted,
                lost_events: sum.lost_events + c.lost_events,
            }
        })
    }
}

// a fate that the kernel side gains has to be named above
const _: () = assert!(flow_fate::FLOW_FATES.0 == 6);

/// What the ring buffer brought: who flows are, and the epochs that closed.
#[derive(Debug)]
pub(crate) struct Collector {
    names: HashMap<u64, Tuple>,
    /// More names than this are of flows whose end was lost.
    most_names: usize,
    closed: Vec<Epoch>,
}

impl Collector {
    /// For a table of so many flows.
    pub(crate) fn new(flows: usize) -> Self {
        Self {
            names: HashMap::new(),
            most_names: flows * 2,
            closed: Vec::new(),
        }
    }

    /// An event.
    pub(crate) fn event(&mut self, bytes: &[u8]) {
        // the kernel rounds nothing: an event has exactly its struct's size
        if bytes.len() == size_of::<types::flow_born>() {
            if let Some(born) = read::<types::flow_born>(bytes) {
                self.name(born.tag, tuple(&born.tuple));
            }
        } else if let Some(epoch) = read::<types::flow_epoch>(bytes) {
            self.close(&epoch);
        }
    }

    /// The epochs that closed since the last call.
    pub(crate) fn take(&mut self) -> Vec<Epoch> {
        std::mem::take(&mut self.closed)
    }

    fn name(&mut self, tag: u64, tuple: Option<Tuple>) {
        if self.names.len() >= self.most_names {
            self.names.clear(); // those that live are named again by their next epochs
        }
        self.names.extend(tuple.map(|t| (tag, t)));
    }

    fn close(&mut self, e: &types::flow_epoch) {
        let tuple = tuple(&e.tuple).or_else(|| self.names.get(&e.tag).copied());
        if e.gone != 0 {
            self.names.remove(&e.tag);
        } else if !self.names.contains_key(&e.tag) {
            self.name(e.tag, tuple);
        }
        if e.est.gaps > 0 {
            self.closed.push(Epoch {
                tuple,
                start: e.gaps.start,
                end: e.end,
                estimate: estimate(&e.est),
                gaps: gaps(&e.gaps),
            });
        }
    }
}

/// `None` where the kernel had no packet to name the flow by.
fn tuple(t: &types::bw_tuple) -> Option<Tuple> {
    Some(Tuple {
        client: SocketAddr::new(address(t.src), t.sport),
        server: SocketAddr::new(address(t.dst), t.dport),
        transport: match t.proto {
            PROTO_TCP => Transport::Tcp,
            PROTO_UDP => Transport::Udp,
            _ => return None,
        },
        backend: t.backend,
    })
}

/// The bytes of a `struct flow_gaps`, for the tests that hold the kernel's arithmetic against core's.
#[doc(hidden)]
pub fn gaps_from(bytes: &[u8]) -> Option<Gaps> {
    read::<types::flow_gaps>(bytes).map(|kept| gaps(&kept))
}

fn gaps(g: &types::flow_gaps) -> Gaps {
    let kept = &g.__anon_flow_gaps_1;
    let kind = match g.flags & (GAPS_FLIGHT | GAPS_BURSTS) {
        0 => Kind::Modes,
        GAPS_BURSTS => Kind::Bursts,
        _ => Kind::Flight,
    };
    let mut gaps = Gaps::default();
    if kind == Kind::Flight {
        // SAFETY: plain integers; the flag says that this is what the kernel kept.
        gaps.flight = flight(unsafe { &kept.flight });
    } else {
        // SAFETY: as above.
        gaps = Gaps::from_modes(&modes(unsafe { &kept.__anon_flow_gaps_2 }));
    }
    gaps.kind = kind;
    gaps.start = g.start;
    gaps.last = g.last;
    gaps.discarded = g.discarded;
    gaps.idle = g.idle;
    gaps.resent = g.resent;
    gaps.acks = g.flags & GAPS_ACKS != 0;
    gaps.full = g.flags & GAPS_FULL != 0;
    gaps.after_full = g.flags & GAPS_AFTER_FULL != 0;
    gaps.largest = g.largest;
    gaps
}

fn modes(kept: &types::__anon_flow_gaps_2) -> Vec<Mode> {
    (0..kept.mode.len())
        .filter(|&i| kept.lo[i] != NO_MODE)
        .map(|i| Mode {
            sum: kept.mode[i].sum,
            count: kept.mode[i].count,
            marked: kept.mode[i].marked,
            lo: kept.lo[i],
            hi: kept.hi[i],
        })
        .collect()
}

fn flight(f: &types::flow_flight) -> Flight {
    Flight {
        sent: f.sent,
        sum: f.sum,
        pure_ack_sum: f.pure_ack_sum,
        count: f.count,
        gaps: f.gaps,
        pure_acks: f.pure_acks,
        missing: f.missing,
        usual: f.usual,
        begun: f.begun,
        alone: f.alone,
        head: f.head,
        len: f.len,
        cap: f.cap,
        pending: f.pending,
        tainted: f.tainted,
        late: f.late,
        grows: f.grows != 0,
        sure: f.sure != 0,
    }
}

fn estimate(e: &types::flow_estimate) -> Estimate {
    Estimate {
        latency: (e.latency > 0).then_some(e.latency),
        ibg: (e.ibg > 0).then_some(e.ibg),
        batches: e.batches,
        gaps: e.gaps,
        idle: e.idle,
        confidence: e.confidence,
        stalled: e.flags & EST_STALLED != 0,
    }
}
