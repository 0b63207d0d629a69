//! Like with like: clients are near and far, and a server is not slow because far clients happen to
//! use it. Latency is taken for the client group's part plus the server's part; both are fitted to
//! all observations, and each server is given the latency that it would have with everybody's mix
//! of clients.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::IpAddr;

use super::maglev::BackendId;

/// Groups beyond this count as one.
const MOST_GROUPS: usize = 4096;
/// Rounds of the fit, at most.
const ROUNDS: usize = 20;
/// Latencies from here on (11 days, in ns) are nonsense.
const LONGEST: f64 = 1e15;
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

/// The backends that were observed, in the order of their ids. Where backends have no group in common,
/// not even by way of others, nothing can be told apart: each backend's part is then what is left when
/// the groups' parts have explained what they can.
pub fn standardise(observations: &[Observation]) -> Vec<Standard> {
    let (cells, groups) = cells(observations);
    let mut backends: BTreeMap<BackendId, (u64, f64)> = BTreeMap::new();
    for cell in &cells {
        let sum = backends.entry(cell.backend).or_default();
        sum.0 = sum.0.saturating_add(cell.samples);
        sum.1 += cell.weight;
    }
    let mut near = alloc::vec![0.0; groups];
    let mut parts: BTreeMap<BackendId, f64> = BTreeMap::new();
    for _ in 0..ROUNDS {
        let mut sums: BTreeMap<BackendId, f64> = BTreeMap::new();
        for c in &cells {
            *sums.entry(c.backend).or_default() += c.weight * (c.latency_ns - near[c.group]);
        }
        let mut change: f64 = 0.0;
        for (backend, sum) in sums {
            let part = sum / backends.get(&backend).map_or(1.0, |b| b.1);
            let before = parts.insert(backend, part).unwrap_or(0.0);
            change = change.max((part - before).abs() / part.abs().max(1.0));
        }
        if change < SETTLED {
            break;
        }
        let mut rests = alloc::vec![(0.0, 0.0); groups];
        for c in &cells {
            let part = parts.get(&c.backend).copied().unwrap_or(0.0);
            rests[c.group].0 += c.weight * (c.latency_ns - part);
            rests[c.group].1 += c.weight;
        }
        for (near, (sum, weight)) in near.iter_mut().zip(rests) {
            *near = sum / weight;
        }
    }
    let all: f64 = cells.iter().map(|c| c.weight).sum();
    let common = cells.iter().map(|c| c.weight * near[c.group]).sum::<f64>() / all;
    let least = cells
        .iter()
        .map(|c| c.latency_ns)
        .fold(f64::INFINITY, f64::min);
    parts
        .into_iter()
        .zip(backends.into_values())
        .map(|((backend, part), (samples, _))| Standard {
            backend,
            samples,
            // A sum of parts may fall below all that was ever seen; a latency does not.
            latency_ns: (part + common).max(least),
        })
        .collect()
}

struct Cell {
    group: usize,
    backend: BackendId,
    samples: u64,
    weight: f64,
    latency_ns: f64,
}

/// Observations that say something, with groups numbered by size; those beyond the most share one.
fn cells(observations: &[Observation]) -> (Vec<Cell>, usize) {
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    for o in observations.iter().filter(|o| usable(o)) {
        let size = sizes.entry(o.group).or_default();
        *size = size.saturating_add(o.samples);
    }
    let mut order: Vec<(Reverse<u64>, u64)> =
        sizes.into_iter().map(|(g, n)| (Reverse(n), g)).collect();
    order.sort_unstable();
    let groups = order.len().min(MOST_GROUPS);
    let ranks: BTreeMap<u64, usize> = (0..).zip(order).map(|(at, (_, g))| (g, at)).collect();
    let mut cells: Vec<Cell> = observations
        .iter()
        .filter(|o| usable(o))
        .map(|o| Cell {
            group: ranks.get(&o.group).map_or(0, |at| (*at).min(groups - 1)),
            backend: o.backend,
            samples: o.samples,
            weight: o.samples as f64,
            latency_ns: o.latency_ns,
        })
        .collect();
    // Sums of floats depend on their order, and decisions must not depend on that of observations.
    cells.sort_by(|a, b| {
        let key = |c: &Cell| (c.group, c.backend, c.samples);
        key(a)
            .cmp(&key(b))
            .then(a.latency_ns.total_cmp(&b.latency_ns))
    });
    (cells, groups)
}

fn usable(o: &Observation) -> bool {
    o.samples > 0 && o.latency_ns > 0.0 && o.latency_ns < LONGEST
}
