//! Whether estimates agree with what the load generator measured.

use batchwise_core::report::{Estimator, Line, Side, Unit};
use batchwise_lab::window::{EndEstimate, estimates_in};
use batchwise_load::Report;

use crate::closeness::close;

/// A load for tests of estimates: light enough for a busy machine with two CPUs.
pub const LIGHT: &str = "--rate 4000 --duration 3s --value-size 64";

/// What the lines say of the measured window of a load, in sends.
pub fn estimate(lines: &[Line], side: Side, load: &Report) -> EndEstimate {
    let (from, to) = (load.measured_from_ts_ns, load.measured_to_ts_ns);
    estimates_in(lines, side, from, to)
        .remove(&Unit::Sends)
        .unwrap_or_else(|| panic!("no line of the {side:?} in {from}..{to}: {lines:#?}"))
}

/// The estimate is two-sided and agrees with what the load measured. Loosely: how true it is on a
/// quiet machine is the lab's to say.
pub fn assert_agrees(lines: &[Line], side: Side, load: &Report) {
    let estimate = estimate(lines, side, load);
    assert_eq!(estimate.estimator, Estimator::TwoSided, "{estimate:?}");
    let measured = load.latency_from_send_ns.mean.expect("requests") as f64;
    let total = estimate.total_ns.expect("a total");
    assert!(
        close(total, measured, 0.35),
        "{side:?}: {total} ns estimated, {measured} ns measured; {estimate:?}"
    );
    assert_throughput(estimate.throughput_per_s, load);
}

/// The throughput is what the load achieved.
pub fn assert_throughput(estimated: f64, load: &Report) {
    assert!(
        close(estimated, load.achieved_rps, 0.15),
        "{estimated}/s estimated, {}/s measured",
        load.achieved_rps
    );
}
