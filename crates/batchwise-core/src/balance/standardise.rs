//! Like with like: clients are near and far, and a server is not slow because far clients happen to
//! use it. Latency is taken for the client group's part plus the server's part; both are fitted to
//! all observations, and each server is given the latency that it would have with everybody's mix
//! of clients.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::maglev::BackendId;

/// Groups beyond this count as one.
const MOST_GROUPS: usize = 4096;
/// Rounds of the fit, at most.
const ROUNDS: usize = 20;
/// Relative change of every server's part below which the fit is over.
const SETTLED: f64 = 1e-4;

/// What some clients near to each other saw of one backend in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Clients near to each other, see [`group`].
    pub group: u64,
    /// Who answered.
    pub backend: BackendId,
    /// Responses.
    pub samples: u64,
    /// Their mean latency, ns.
    pub latency_ns: f64,
}

/// A backend's latency with the common mix of clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standard {
    /// Who.
    pub backend: BackendId,
    /// Responses.
    pub samples: u64,
    /// ns.
    pub latency_ns: f64,
}

/// The group of a client: its /24 (IPv4) or /56 (IPv6).
pub fn group(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(a) => u64::from(a.to_bits() >> 8),
        IpAddr::V6(a) => (a.to_bits() >> 72) as u64 | 1 << 63,
    }
}

/// The backends that were observed, in the order of their ids.
pub fn standardise(observations: &[Observation]) -> Vec<Standard> {
    let _ = (MOST_GROUPS, ROUNDS, SETTLED);
    let mut sums: BTreeMap<BackendId, (u64, f64)> = BTreeMap::new();
    for o in observations.iter().filter(|o| usable(o)) {
        let sum = sums.entry(o.backend).or_default();
        sum.0 += o.samples;
        sum.1 += o.samples as f64 * o.latency_ns;
    }
    let standard = |(backend, (samples, sum))| Standard {
        backend,
        samples,
        latency_ns: sum / samples as f64,
    };
    sums.into_iter().map(standard).collect()
}

fn usable(o: &Observation) -> bool {
    o.samples > 0 && o.latency_ns.is_finite() && o.latency_ns > 0.0
}
