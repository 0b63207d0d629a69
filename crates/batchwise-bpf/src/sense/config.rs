//! What is watched, and what is counted of it.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use batchwise_core::sense::report::Unit;

use crate::sense_skel::types;

const CALLS: u32 = 1 << types::sense_unit::SENSE_CALLS.0;
const BYTES: u32 = 1 << types::sense_unit::SENSE_BYTES.0;
const SEGMENTS: u32 = 1 << types::sense_unit::SENSE_SEGS.0;
/// Beside the units: what a peer wants to know of our acknowledgments. `SENSE_ACKDELAYS` in lib/endpoint.h.
pub(super) const ACKDELAYS: u32 = 1 << types::sense_unit::SENSE_UNITS.0;

/// Which items are counted, a bit per kind as in `enum sense_unit`, and which are advertised to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    pub(super) counted: u32,
    pub(super) advertised: u32,
}

impl Units {
    /// What an estimate in each of `units` needs. Send calls need bytes, too: coalesced messages
    /// are told apart by them. Calls and bytes are always counted here: confidence comes from the
    /// number of requests, and a peer's claims are held against the bytes that passed.
    pub fn of(units: &[Unit]) -> Self {
        let advertised = units.iter().fold(0, |bits, u| {
            bits | match u {
                Unit::Sends => CALLS | BYTES,
                Unit::Bytes => BYTES,
                Unit::Packets => SEGMENTS,
            }
        });
        Self {
            counted: advertised | CALLS | BYTES,
            advertised,
        }
    }
}

/// What to watch.
#[derive(Clone, Debug)]
pub struct Config {
    /// Local (server) or remote (client) ports.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Only sockets made in this cgroup v2 or below it.
    pub cgroup: Option<PathBuf>,
    /// What to count.
    pub units: Units,
    /// Match requests with responses, for [`super::Sensor::tails`].
    pub tails: bool,
    /// [`super::Sensor::read`] tells in short of connections without an event since the last reading, and leaves out those of
    /// which there is no news, but for each tenth time.
    pub brief: bool,
}
