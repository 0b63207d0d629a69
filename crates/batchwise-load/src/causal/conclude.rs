//! From what a closed loop counted to its report.

use anyhow::Result;

use super::driver::Measured;
use super::judgement::why_invalid;
use super::options::Options;
use super::report::TruthReport;

/// The report of a run, once its log is written. `target_rps` is the rate that was asked for.
pub(crate) fn conclude(
    workload: &'static str,
    options: &Options,
    target_rps: Option<f64>,
    pages: Option<u64>,
    measured: Measured,
) -> Result<TruthReport> {
    let Measured {
        mut tally,
        clock,
        cpu,
        elapsed,
    } = measured;
    tally.close_log()?;
    let seconds = tally.end as f64 * 1e-9;
    let share = |ns: Option<u64>| ns.map(|ns| ns as f64 / elapsed.max(1) as f64);
    let mut report = TruthReport {
        workload,
        offered_rps: target_rps.unwrap_or(tally.requests as f64 / seconds),
        achieved_rps: tally.in_window as f64 / seconds,
        requests: tally.requests,
        errors: tally.errors,
        latency_ns: tally.latency.latency(),
        triggered_ns: tally.triggered.latency(),
        client_think_ns: tally.think.latency(),
        triggers: tally.triggered.count(),
        pages,
        cpu_share: share(cpu.run_ns),
        cpu_wait_ns: cpu.wait_ns,
        preemptions: cpu.preemptions,
        backpressure: tally.backpressure,
        bytes_sent: tally.bytes_sent,
        bytes_received: tally.bytes_received,
        connections: options.connections as u64,
        connections_opened: u64::from(tally.connections),
        broken_connections: tally.broken,
        connect_failures: tally.connect_failures,
        breaks: tally.breaks,
        target_rps,
        measured_from_ts_ns: clock.wall(0),
        measured_to_ts_ns: clock.wall(tally.end),
        seed: options.seed,
        ..TruthReport::default()
    };
    let (lost, first_error) = (tally.lost.as_deref(), tally.first_error.as_deref());
    report.why_invalid = why_invalid(&report, lost, first_error, share(cpu.wait_ns));
    report.valid = report.why_invalid.is_empty();
    Ok(report)
}
