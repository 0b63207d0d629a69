//! The C side's structs and functions, mirrored by hand: what is compared is not what the generator
//! made of them.

use batchwise_core::passive::flight::{FLIGHT, Flight};
use batchwise_core::passive::{Algorithm, MODES, Params};

pub const EMPTY: u8 = 0xff;
pub const ACKS: u8 = 1;
pub const FULL: u8 = 2;
pub const AFTER_FULL: u8 = 4;
pub const IN_FLIGHT: u8 = 8;
pub const BURSTS: u8 = 16;

/// `struct bw_mode`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CMode {
    pub sum: u32,
    pub count: u16,
    pub marked: u16,
}

/// The modes of `struct bw_gaps`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CModes {
    pub mode: [CMode; MODES],
    pub lo: [u8; MODES],
    pub hi: [u8; MODES],
}

/// `struct bw_flight`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CFlight {
    pub sent: [u32; FLIGHT],
    pub sum: u64,
    pub told_sum: u64,
    pub count: u32,
    pub gaps: u32,
    pub usual: u32,
    pub begun: u32,
    pub alone: u32,
    pub told: u16,
    pub missing: u16,
    pub head: u8,
    pub len: u8,
    pub cap: u8,
    pub pending: u8,
    pub tainted: u8,
    pub late: u8,
    pub grows: u8,
    pub sure: u8,
}

impl CFlight {
    pub fn plain(&self) -> Flight {
        Flight {
            sent: self.sent,
            sum: self.sum,
            told_sum: self.told_sum,
            count: self.count,
            gaps: self.gaps,
            told: self.told,
            missing: self.missing,
            usual: self.usual,
            begun: self.begun,
            alone: self.alone,
            head: self.head,
            len: self.len,
            cap: self.cap,
            pending: self.pending,
            tainted: self.tainted,
            late: self.late,
            grows: self.grows != 0,
            sure: self.sure != 0,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union CKept {
    pub modes: CModes,
    pub flight: CFlight,
}

impl Default for CKept {
    fn default() -> Self {
        Self {
            modes: CModes::default(),
        }
    }
}

/// `struct bw_gaps`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CGaps {
    pub start: u64,
    pub last: u64,
    pub kept: CKept,
    pub discarded: u16,
    pub idle: u16,
    pub resent: u16,
    pub flags: u8,
    pub largest: u8,
}

/// `struct bw_stream`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CStream {
    pub next_seq: u32,
    pub ack: u32,
    pub acked_at: u32,
}

/// `struct bw_gaps_params`.
#[repr(C)]
pub struct CParams {
    pub epoch_ns: u64,
    pub max_ns: u64,
    pub idle_ns: u64,
    pub fixed_ns: u64,
    pub algorithm: u32,
    pub min_gaps: u32,
}

/// `struct bw_estimate`.
#[repr(C)]
#[derive(Default)]
pub struct CEstimate {
    pub latency: u64,
    pub ibg: u64,
    pub batches: u32,
    pub gaps: u32,
    pub idle: u32,
    pub confidence: u32,
    pub flags: u32,
    pub reserved: u32,
}

unsafe extern "C" {
    pub fn bw_twin_gaps_due(g: *const CGaps, p: *const CParams, now: u64) -> i32;
    pub fn bw_twin_gaps_open(g: *mut CGaps, now: u64);
    #[rustfmt::skip]
    pub fn bw_twin_gaps_tcp(
        g: *mut CGaps,
        s: *mut CStream,
        p: *const CParams,
        now: u64,
        seq: u32,
        len: u32,
        ack: u32,
        ip_len: u32,
    );
    pub fn bw_twin_gaps_tcp_ack(g: *const CGaps, s: *mut CStream, now: u64, ack: u32);
    pub fn bw_twin_gaps_datagram(g: *mut CGaps, p: *const CParams, now: u64, ip_len: u32);
    pub fn bw_twin_gaps_packet(
        g: *mut CGaps,
        p: *const CParams,
        now: u64,
        marked: i32,
        resent: i32,
    );
    pub fn bw_twin_gaps_estimate(g: *const CGaps, p: *const CParams, out: *mut CEstimate);
}

impl From<&Params> for CParams {
    fn from(p: &Params) -> Self {
        let (algorithm, fixed_ns) = match p.algorithm {
            Algorithm::Auto => (0, 0),
            Algorithm::Modes => (1, 0),
            Algorithm::Fixed(delta) => (2, delta),
        };
        Self {
            epoch_ns: p.epoch_ns,
            max_ns: p.max_ns,
            idle_ns: p.idle_ns,
            fixed_ns,
            algorithm,
            min_gaps: p.min_gaps,
        }
    }
}
