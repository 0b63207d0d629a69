//! From the kernel's records (`sense_intf.h`) to the plain structs of `batchwise-core`.

use std::mem::size_of;
use std::net::SocketAddr;

use batchwise_core::passive::address;
use batchwise_core::sense::connection::{Connection, PeerState, Vitals};
use batchwise_core::sense::queue::QueueState;
use batchwise_core::sense::report::Side;
use batchwise_core::sense::sample::Sample;
use batchwise_core::sense::wire::{PeerQueue, Queue, State};

use crate::plain::{Plain, read};
use crate::sense_skel::types;

const SERVER: u32 = types::bw_record_flag::BW_F_SERVER.0;
const AGREED: u32 = types::bw_record_flag::BW_F_AGREED.0;
const LATE_SEND: u32 = types::bw_record_flag::BW_F_LATE_SEND.0;

/// What bw_dump writes per connection: the record, then the version that it had before and after.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Snapshot {
    pub rec: types::bw_record,
    pub version: u64,
}

impl From<&types::bw_record> for Connection {
    fn from(r: &types::bw_record) -> Self {
        let mut local = r.q.map(|queues| {
            queues.map(|q| QueueState {
                time: q.time,
                integral: q.integral,
                total: q.total,
                size: q.size,
            })
        });
        if r.info.ack_left > 0 {
            // no event has noticed yet that the last ACK left
            for queues in &mut local {
                let q = &mut queues[Queue::AckDelay as usize];
                q.track(r.info.ack_left, -i64::from(q.size));
            }
        }
        let heard = |p: types::bw_peer_queue| PeerQueue {
            time: p.time,
            integral: p.integral,
            total: p.total,
            heard: p.heard,
            raw_time: p.raw_time,
            raw_integral: p.raw_integral,
            raw_total: p.raw_total,
        };
        let peer = r.peer.map(|queues| queues.map(heard));
        Self {
            cookie: r.cookie,
            local: SocketAddr::new(address(r.local_addr), r.local_port),
            remote: SocketAddr::new(address(r.remote_addr), r.remote_port),
            netns: r.netns,
            side: if r.flags & SERVER != 0 {
                Side::Server
            } else {
                Side::Client
            },
            born: r.born,
            nagle_off: r.info.nagle_off != 0,
            app_nagle_off: r.app_setting_off != 0,
            epoch: r.epoch,
            vitals: Vitals {
                bytes: r.info.bytes,
                outstanding: r.info.outstanding,
                retransmits: r.info.retransmits,
                rtt: u64::from(r.info.srtt_us) * 1_000,
            },
            peer: (r.peer_state.at > 0).then_some(PeerState {
                at: r.peer_state.at,
                state: State::from_flags(r.peer_state.flags),
            }),
            exchanges: r.flags & AGREED != 0,
            options: [r.options_sent, r.options_heard, r.options_refused],
            sample: Sample {
                at: r.info.now,
                local,
                peer,
                peer_hint: heard(r.peer_hint),
                overlaps: r.overlaps,
                rtt_min: known_rtt(r.info.rtt_min_us),
                late_send: r.flags & LATE_SEND != 0,
            },
        }
    }
}

/// The kernel's "no measurement yet" is ~0.
fn known_rtt(us: u32) -> u64 {
    if us == u32::MAX {
        0
    } else {
        u64::from(us) * 1_000
    }
}

/// Splits what the iterator wrote into records that were not being written meanwhile, and counts
/// those that were.
pub(crate) fn parse_dump(bytes: &[u8]) -> (Vec<Connection>, usize) {
    let mut torn = 0;
    let connections = bytes
        .chunks_exact(size_of::<Snapshot>())
        .filter_map(read::<Snapshot>)
        .filter_map(|s| {
            let whole = s.rec.version % 2 == 0 && u64::from(s.rec.version) == s.version;
            torn += usize::from(!whole);
            whole.then(|| Connection::from(&s.rec))
        })
        .collect();
    (connections, torn)
}

/// A record from the ring buffer of closed connections.
pub(crate) fn parse_closed(bytes: &[u8]) -> Option<Connection> {
    read::<types::bw_record>(bytes).map(|rec| Connection::from(&rec))
}

impl Plain for Snapshot {}
impl Plain for types::bw_record {}
