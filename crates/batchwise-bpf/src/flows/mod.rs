//! What passive and balance share: the table of measured flows, as its loader sees it. The C side is
//! `flows.h` (the table) and `measure.h` (what a packet does to it).

pub(crate) mod events;
mod record;

pub use record::{Counters, gaps_from};

/// Writes what is measured into a program's read-only data, before it is loaded. A macro, since each
/// program has types of its own, generated from the same C.
macro_rules! configure {
    ($ro:ident, $types:ident, $measure:expr) => {
        let (algorithm, fixed_ns) = $crate::flows::events::algorithm(&$measure.params);
        $ro.gaps_params = $types::flow_gaps_params {
            epoch_ns: $measure.params.epoch_ns,
            max_ns: $measure.params.max_ns,
            idle_ns: $measure.params.idle_ns,
            fixed_ns,
            algorithm: $types::flow_gaps_algorithm(algorithm),
            min_gaps: $measure.params.min_gaps,
        };
        $ro.hash_keys = $crate::flows::events::hash_keys();
        $ro.n_buckets = $crate::flows::events::buckets($measure.flows);
        $ro.udp_acks = $measure.udp_acks.into();
        let forget_ns = $measure.forget.as_nanos();
        $ro.forget_ns = forget_ns.try_into().unwrap_or(i64::MAX as u64);
    };
}
pub(crate) use configure;
