//! From the kernel's records (`sense_intf.h`) to the plain structs of `batchwise-core`.

use std::mem::size_of;
use std::net::SocketAddr;

use batchwise_core::passive::address;
use batchwise_core::sense::connection::{Bypass, Connection, Quiet, Vitals};
use batchwise_core::sense::queue::QueueState;
use batchwise_core::sense::report::Side;
use batchwise_core::sense::sample::{Sample, Unsent};
use batchwise_core::sense::turns::Turns;
use batchwise_core::sense::wire::{PeerQueue, Queue};

use crate::plain::{Plain, read};
use crate::sense_skel::types;

const SERVER: u32 = types::sense_record_flag::SENSE_F_SERVER.0;
const AGREED: u32 = types::sense_record_flag::SENSE_F_AGREED.0;
const LATE_SEND: u32 = types::sense_record_flag::SENSE_F_LATE_SEND.0;

const HELD: u8 = types::sense_sock_state::SENSE_SOCK_HELD.0 as u8;
const ACK_DUE: u8 = types::sense_sock_state::SENSE_SOCK_ACK_DUE.0 as u8;
const ACK_SOON: u8 = types::sense_sock_state::SENSE_SOCK_ACK_SOON.0 as u8;

/// include/net/tcp.h
const NAGLE_OFF: u8 = 1;
const NAGLE_CORK: u8 = 2;

/// What a record says, in which nothing has happened since then, ns.
fn connection(r: &types::sense_record, since: u64) -> Connection {
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
    let heard = |p: types::sense_peer_queue| PeerQueue {
        time: p.time,
        integral: p.integral,
        total: p.total,
        heard: p.heard,
        raw_time: p.raw_time,
        raw_integral: p.raw_integral,
        raw_total: p.raw_total,
    };
    let peer = r.peer.map(|queues| queues.map(heard));
    Connection {
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
        nagle_off: r.info.nonagle & NAGLE_OFF != 0,
        app_nagle_off: r.app_setting_off != 0,
        epoch: r.epoch,
        segments_before: r.info.segs_begin,
        vitals: vitals(&r.info, r.acks),
        exchanges: r.flags & AGREED != 0,
        options: [r.options_sent, r.options_heard, r.options_refused],
        sample: Sample {
            at: r.info.now,
            local,
            peer,
            peer_hint: heard(r.peer_hint),
            overlaps: r.overlaps,
            unsure: r.unmatched.wrapping_add(r.guessed),
            turns: Turns {
                took: r.turns.took,
                bytes: r.turns.bytes,
                weighted: r.turns.weighted,
                begun: r.turns.begun,
                over: r.turns.over,
                crossed: r.turns.crossed,
                tiny: r.turns.tiny,
                strays: r.turns.strays,
            },
            unsent: unsent(r, since),
            rtt_min: known_rtt(r.info.rtt_min_us),
            late_send: r.flags & LATE_SEND != 0,
        },
    }
}

/// What is unsent has been since the last event.
fn unsent(r: &types::sense_record, since: u64) -> Unsent {
    let waited = r.info.now.saturating_sub(since);
    let backlog = u32::from(r.info.backlog);
    let if_any = |any: bool| if any { waited } else { 0 };
    Unsent {
        time: r.unsent.time + if_any(backlog != types::sense_backlog::SENSE_BACKLOG_NONE.0),
        acks: r.unsent.acks,
        held: r.unsent.held + if_any(backlog == types::sense_backlog::SENSE_BACKLOG_HELD.0),
    }
}

fn vitals(info: &types::sense_sock_info, acks: u16) -> Vitals {
    Vitals {
        bytes: info.bytes,
        bytes_sent: info.bytes_sent,
        segments: info.segs,
        segments_sent: info.segs_sent,
        outstanding: info.outstanding,
        unread: info.unread,
        rtt: u64::from(info.srtt_us) * 1_000,
        mss: info.mss.into(),
        corked: info.nonagle & NAGLE_CORK != 0,
        held: info.state & HELD != 0,
        ack_due: info.state & ACK_DUE != 0,
        ack_soon: info.state & ACK_SOON != 0,
        acks,
        under_way: info.under_way.into(),
        oldest: info.oldest,
        resent: info.resent,
        window_full_us: info.window_full_us,
        bypass: bypass(types::sense_bypass(info.bypass.into())),
    }
}

fn bypass(told: types::sense_bypass) -> Option<Bypass> {
    match told {
        types::sense_bypass::SENSE_BYPASS_MPTCP => Some(Bypass::Mptcp),
        types::sense_bypass::SENSE_BYPASS_SMC => Some(Bypass::Smc),
        types::sense_bypass::SENSE_BYPASS_SOCKMAP => Some(Bypass::Sockmap),
        types::sense_bypass::SENSE_BYPASS_KTLS => Some(Bypass::Ktls),
        _ => None,
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

/// What a walk over the connections told.
#[derive(Debug, Default)]
pub(crate) struct Dump {
    /// Records that were not being written meanwhile.
    pub whole: Vec<Connection>,
    /// Connections without an event since they were last told.
    pub quiet: Vec<Quiet>,
    /// Cookies and births of those whose records were being written.
    pub torn: Vec<(u64, u64)>,
}

impl Dump {
    /// Takes in what a page says, as written in the epoch that began at `began`.
    pub(crate) fn take(&mut self, mut bytes: &[u8], epoch: u32, began: u64) {
        while let Some(entry) = next::<u64>(&mut bytes) {
            if entry == u64::from(types::sense_entry::SENSE_ENTRY_QUIET.0) {
                let Some(q) = next::<types::sense_quiet>(&mut bytes) else {
                    break;
                };
                self.quiet.push(Quiet {
                    cookie: q.cookie,
                    born: q.born,
                    vitals: vitals(&q.info, q.acks as u16),
                    nagle_off: q.info.nonagle & NAGLE_OFF != 0,
                    app_nagle_off: q.app_setting_off != 0,
                });
                continue;
            }
            let Some(rec) = next::<types::sense_record>(&mut bytes) else {
                break;
            };
            let Some(version) = next::<u64>(&mut bytes) else {
                break;
            };
            if rec.version % 2 != 0 || u64::from(rec.version) != version {
                self.torn.push((rec.cookie, rec.born));
                continue;
            }
            let held = entry == u64::from(types::sense_entry::SENSE_ENTRY_HELD.0);
            let mut c = connection(&rec, if held { began } else { rec.last });
            if held {
                c.hold(epoch, began);
            }
            self.whole.push(c);
        }
    }
}

/// The next value that `bytes` begin with.
fn next<T: Plain>(bytes: &mut &[u8]) -> Option<T> {
    let (first, rest) = bytes.split_at_checked(size_of::<T>())?;
    *bytes = rest;
    read(first)
}

/// A record from the ring buffer of closed connections.
pub(crate) fn parse_closed(bytes: &[u8]) -> Option<Connection> {
    read::<types::sense_record>(bytes).map(|rec| connection(&rec, rec.last))
}
