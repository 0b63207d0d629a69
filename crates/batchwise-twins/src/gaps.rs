//! What `lib/gaps.h` takes and says, in the words of its reference.

use batchwise_core::passive::{Algorithm, Estimate, Kind, Params};

use crate::bw_twin_gaps_estimate;
use crate::types::{flow_estimate, flow_gaps, flow_gaps_algorithm, flow_gaps_params};

/// As the programs have them.
pub fn params(p: &Params) -> flow_gaps_params {
    let (algorithm, fixed_ns) = match p.algorithm {
        Algorithm::Auto => (flow_gaps_algorithm::FLOW_GAPS_AUTO, 0),
        Algorithm::Modes => (flow_gaps_algorithm::FLOW_GAPS_MODES, 0),
        Algorithm::Fixed(delta) => (flow_gaps_algorithm::FLOW_GAPS_FIXED, delta),
    };
    flow_gaps_params {
        epoch_ns: p.epoch_ns,
        max_ns: p.max_ns,
        idle_ns: p.idle_ns,
        fixed_ns,
        algorithm,
        min_gaps: p.min_gaps,
    }
}

/// What the epoch comes to, of gaps of this kind.
pub fn estimate(gaps: &flow_gaps, p: &flow_gaps_params, kind: Kind) -> Estimate {
    let mut out = flow_estimate::default();
    bw_twin_gaps_estimate(gaps, p, &mut out);
    let known = |ns| (out.batches > 0).then_some(ns);
    Estimate {
        latency: known(out.latency),
        ibg: known(out.ibg).filter(|_| kind != Kind::Flight),
        batches: out.batches,
        gaps: out.gaps,
        idle: out.idle,
        confidence: out.confidence,
        stalled: out.flags & 1 != 0,
    }
}
