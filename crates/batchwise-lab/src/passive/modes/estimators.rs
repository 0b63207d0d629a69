//! The estimators that are compared, and what each says about the epochs of a simulated flow.

use batchwise_core::passive::paper::Paper;
use batchwise_core::passive::stream::{Stream, datagram};
use batchwise_core::passive::{Algorithm, Estimate, Gaps, Params};

use super::flow::{Flow, Packet};
use crate::engine::color::{BATCHWISE, Color, NAGLE};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Algorithm 1 with a threshold, ns.
    Fixed(u64),
    /// Algorithm 2 with an epsilon, ns.
    Paper(u64),
    /// Our modes, but the largest with 5 % of the gaps is the pause, as in the paper.
    Largest,
    /// Ours, without acknowledgments (UDP, encrypted transports).
    Sizes,
    /// Ours, with TCP's acknowledgments on packets that carry payload.
    Acks,
    /// Ours, with pure ACKs too.
    Pure,
    /// Ours, requests in flight by acknowledgments.
    Flight,
}

/// Each with its name, and its colour in figures.
pub const KINDS: [(Kind, &str, Color); 8] = [
    (Kind::Fixed(500_000), "fixed 500 us", Color(164, 118, 168)),
    (Kind::Paper(10_000), "paper 10 us", NAGLE),
    (Kind::Paper(100_000), "paper 100 us", Color(226, 168, 76)),
    (Kind::Largest, "largest mode", Color(150, 150, 150)),
    (Kind::Sizes, "modes, sizes", Color(158, 196, 228)),
    (Kind::Acks, "modes, ACKs", Color(86, 145, 198)),
    (Kind::Pure, "modes, pure ACKs too", Color(24, 78, 142)),
    (Kind::Flight, "in flight", BATCHWISE),
];

fn largest(gaps: &Gaps, p: &Params) -> Estimate {
    let modes = || gaps.modes().iter().filter(|m| m.mean_ns() < p.idle_ns);
    let all: u32 = modes().map(|m| u32::from(m.marked)).sum();
    let ibg = modes().rfind(|m| u32::from(m.marked) * 20 >= all.max(1));
    let Some(ibg) = ibg else {
        return Estimate::default();
    };
    let sum: u64 = modes()
        .filter(|m| m.hi <= ibg.hi)
        .map(|m| u64::from(m.sum) << 4)
        .sum();
    Estimate {
        latency: Some(sum / u64::from(ibg.count)),
        confidence: 1000,
        ..Estimate::default()
    }
}

/// Runs an estimator over a flow, epochs of `min_gaps` gaps each: estimate over truth, less one; `None`
/// when the estimator says that it does not know.
pub fn judge(flow: &Flow, kind: Kind, min_gaps: u32) -> Vec<Option<f64>> {
    let algorithm = match kind {
        Kind::Fixed(delta) => Algorithm::Fixed(delta),
        Kind::Flight => Algorithm::Auto,
        _ => Algorithm::Modes,
    };
    let params = Params {
        algorithm,
        epoch_ns: 1,
        max_ns: 30_000_000_000,
        min_gaps,
        ..Params::default()
    };
    let (mut gaps, mut stream) = (Gaps::default(), Stream::default());
    gaps.open(0);
    let mut paper = match kind {
        Kind::Paper(epsilon) => Some(Paper::new(epsilon)),
        _ => None,
    };
    let (mut began, mut previous) = (None, 0);
    let mut errors = Vec::new();
    for &Packet { at, header, .. } in &flow.packets {
        let at = at as u64;
        if header.len == 0 {
            if matches!(kind, Kind::Pure | Kind::Flight) {
                stream.ack(&gaps, at, header.ack);
            }
            continue;
        }
        let closed = match (&paper, kind) {
            (Some(paper), _) => paper.due(&params, at).then(|| paper.estimate(&params)),
            (_, Kind::Largest) => gaps.due(&params, at).then(|| largest(&gaps, &params)),
            _ => gaps.due(&params, at).then(|| gaps.estimate(&params)),
        };
        if let Some(e) = closed {
            match &mut paper {
                Some(paper) => paper.open(at),
                None => gaps.open(at),
            }
            if let Some(from) = began {
                let truth = truth(flow, from, previous);
                errors.extend(truth.map(|truth| Some(e.latency? as f64 / truth - 1.0)));
            }
            began = Some(previous);
        }
        match (&mut paper, kind) {
            (Some(paper), _) => {
                paper.packet(at, !gaps.after_full, false);
                gaps.after_full = gaps.full_sized(header.ip_len);
            }
            (_, Kind::Acks | Kind::Pure | Kind::Flight) => {
                stream.segment(&mut gaps, &params, at, &header);
            }
            _ => datagram(&mut gaps, &params, at, header.ip_len),
        }
        previous = at;
    }
    errors
}

/// The truth: the mean latency of the requests whose responses the epoch's gaps waited for.
fn truth(flow: &Flow, from: u64, to: u64) -> Option<f64> {
    let (from, to) = (from as f64, to as f64);
    let first = flow.requests.partition_point(|r| r.sent + 1.0 < from);
    let end = flow.requests.partition_point(|r| r.sent + 1.0 < to);
    let requests = flow.requests.get(first..end).filter(|r| !r.is_empty())?;
    Some(requests.iter().map(|r| r.latency).sum::<f64>() / requests.len() as f64)
}
