//! The helper-free C of the BPF programs (`batchwise-bpf/src/lib`), compiled for the host, so that tests
//! hold it against its reference in batchwise-core: the same input must leave the same bits. Only tests
//! use this crate.

pub mod endpoint;
pub mod gaps;
pub mod packet;

use std::ffi::c_int;

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/types.skel.rs"));
}

pub use skel::types;

use types::{
    burst_credit, burst_lease, burst_packet, burst_reserved, burst_rules, bw_packet, bw_tuple,
    flow_estimate, flow_gaps, flow_gaps_params, flow_stream, sense_asks, sense_endpoint,
    sense_hist, sense_peer_queue, sense_queue, sense_sock_view, window_sender,
};

/// Length of an option of the exchange, as `SENSE_OPT_LEN`.
const OPTION: usize = 16;

// the types are generated from the same headers as the C is compiled from
unsafe extern "C" {
    /// Begins anew, as after a pause.
    pub safe fn bw_twin_resync(e: &mut sense_endpoint, now: u64, v: &sense_sock_view, snd_una: u32);
    /// The application sends.
    #[rustfmt::skip]
    pub safe fn bw_twin_send(
        e: &mut sense_endpoint,
        now: u64,
        v: &sense_sock_view,
        end: u32,
        more: c_int,
        mss: u32,
    );
    /// A segment arrives.
    #[rustfmt::skip]
    pub safe fn bw_twin_segment(
        e: &mut sense_endpoint,
        now: u64,
        v: &sense_sock_view,
        seq: u32,
        len: u32,
        ack: u32,
        segs: u32,
        push: c_int,
    );
    /// Works off the log of arrivals.
    pub safe fn bw_twin_drain(e: &mut sense_endpoint);
    /// The application reads.
    pub safe fn bw_twin_read(e: &mut sense_endpoint, now: u64, v: &sense_sock_view);
    /// A queue's option; unit and queue are within the arrays.
    pub safe fn bw_twin_encode(opt: &mut [u8; OPTION], unit: u32, queue: u32, q: &sense_queue);
    /// -2: it is no option of a queue; -1: a stale one; 0: it counts.
    pub safe fn bw_twin_hear(p: &mut sense_peer_queue, opt: &[u8; OPTION]) -> c_int;

    /// The bucket of a latency.
    pub safe fn bw_twin_hist_bucket(ns: u64) -> u32;
    /// A window begins.
    pub safe fn bw_twin_asks_reset(a: &mut sense_asks, snd_una: u32, write_seq: u32);
    /// A request.
    pub safe fn bw_twin_asks_begin(a: &mut sense_asks, end: u32, now: u64, unmatched: &mut u32);
    /// At a client, a response.
    #[rustfmt::skip]
    pub safe fn bw_twin_asks_answer(
        a: &mut sense_asks,
        end: u32,
        bytes: u32,
        ack: u32,
        guessed: &mut u32,
    );
    /// At a client, a read.
    #[rustfmt::skip]
    pub safe fn bw_twin_asks_read_answers(
        a: &mut sense_asks,
        h: &mut sense_hist,
        upto: u32,
        now: u64,
    );
    /// At a server, a read.
    pub safe fn bw_twin_asks_take(a: &mut sense_asks, upto: u32);
    /// At a server, a response.
    pub safe fn bw_twin_asks_answered(a: &mut sense_asks, h: &mut sense_hist, upto: u32, now: u64);
    /// The window ends.
    #[rustfmt::skip]
    pub safe fn bw_twin_asks_censor(a: &mut sense_asks, h: &mut sense_hist, since: u64, now: u64);

    /// Whether the open epoch is to be closed.
    #[link_name = "flow_gaps_due"]
    pub safe fn bw_twin_gaps_due(g: &flow_gaps, p: &flow_gaps_params, now: u64) -> c_int;
    /// Opens an epoch.
    #[link_name = "flow_gaps_open"]
    pub safe fn bw_twin_gaps_open(g: &mut flow_gaps, now: u64);
    /// A packet that counts.
    #[link_name = "flow_gaps_packet"]
    #[rustfmt::skip]
    pub safe fn bw_twin_gaps_packet(
        g: &mut flow_gaps,
        p: &flow_gaps_params,
        now: u64,
        marked: c_int,
        resent: c_int,
    );
    /// What the epoch comes to.
    #[link_name = "flow_gaps_estimate"]
    pub safe fn bw_twin_gaps_estimate(g: &flow_gaps, p: &flow_gaps_params, out: &mut flow_estimate);
    /// A TCP segment with payload.
    #[link_name = "flow_gaps_tcp"]
    #[rustfmt::skip]
    pub safe fn bw_twin_gaps_tcp(
        g: &mut flow_gaps,
        s: &mut flow_stream,
        p: &flow_gaps_params,
        now: u64,
        seq: u32,
        len: u32,
        ack: u32,
        ip_len: u32,
    );
    /// A TCP segment without payload.
    #[link_name = "flow_gaps_tcp_ack"]
    pub safe fn bw_twin_gaps_tcp_ack(g: &flow_gaps, s: &mut flow_stream, now: u64, ack: u32);
    /// A datagram.
    #[link_name = "flow_gaps_datagram"]
    pub safe fn bw_twin_gaps_datagram(
        g: &mut flow_gaps,
        p: &flow_gaps_params,
        now: u64,
        ip_len: u32,
    );

    /// Bytes that TCP gives to the device at once.
    pub safe fn bw_twin_device_room(pacing_rate: u64, mss: u32, queued: u32) -> u32;
    /// Bytes that TCP would send at once.
    pub safe fn bw_twin_space(s: &window_sender, slack: u32) -> u32;
    /// `window_allowed`.
    pub safe fn bw_twin_allowed(s: &window_sender) -> u32;

    /// `enum burst_verdict`. An `Option` of a reference is a pointer that may be null.
    #[rustfmt::skip]
    pub safe fn bw_twin_burst_decide(
        rules: &burst_rules,
        reserved: &mut burst_reserved,
        lease: Option<&mut burst_lease>,
        source: Option<&mut burst_credit>,
        now: u64,
        queued: u32,
        packet: &burst_packet,
    ) -> u32;
    /// Segments that a TOS byte tells of, where marks have these `low` bits.
    pub safe fn bw_twin_burst_segments(tos: u8, low: u32) -> u32;
    /// The TOS byte of a burst's packet.
    pub safe fn bw_twin_burst_mark(tos: u8, segments: u32, low: u32) -> u8;
    /// What it was before.
    pub safe fn bw_twin_burst_unmark(tos: u8, low: u32) -> u8;

    /// Reads a frame: `enum bw_parse`.
    ///
    /// # Safety
    /// `len` bytes from `data` on can be read, and `pkt` is aligned to 8 bytes.
    fn bw_twin_packet(data: *const u8, len: u32, pkt: *mut bw_packet) -> c_int;

    /// The client's tuple of the connection that an ICMP error is about: 0, or -1.
    ///
    /// # Safety
    /// `len` bytes from `data` on can be read, at least 8, and `t` is aligned to 8 bytes.
    fn bw_twin_quoted(data: *const u8, len: u32, v6: c_int, t: *mut bw_tuple) -> c_int;

    /// Whether an IP packet is a tunnel's, and then its ends: source, destination, destination inside.
    ///
    /// # Safety
    /// `len` bytes from `data` on can be read, and 48 from `ends` on written.
    fn bw_twin_tunnel(data: *const u8, len: u32, v6: c_int, ends: *mut [u8; 48]) -> c_int;

    /// A frame's TOS or traffic class, or -1.
    ///
    /// # Safety
    /// `len` bytes from `data` on can be read.
    fn bw_twin_tos(data: *const u8, len: u32) -> c_int;
}
