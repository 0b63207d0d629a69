//! From what was counted to the report, for the run and for each phase of a schedule.

use hdrhistogram::Histogram;

use crate::arrival_check::ArrivalCheck;
use crate::clock::Clock;
use crate::config::{Config, Mode};
use crate::cpu::CpuUse;
use crate::engine::Engine;
use crate::error::Error;
use crate::phase::Stretch;
use crate::report::{LatencySummary, PhaseReport, Report};
use crate::tally::Tally;
use crate::validity::Validity;

/// What a run gives.
#[derive(Debug)]
pub struct Outcome {
    /// The figures.
    pub report: Report,
    /// Latency from the intended send times, ns. In a closed loop there are none, and this is
    /// from the decision to send.
    pub from_intended: Histogram<u64>,
    /// Latency from the actual sends, ns.
    pub from_send: Histogram<u64>,
}

impl Outcome {
    /// The histogram of the report's main latency.
    pub fn latency(&self) -> &Histogram<u64> {
        if self.report.closed {
            &self.from_send
        } else {
            &self.from_intended
        }
    }
}

/// The report of a run that has ended; `cpu` is what its thread used.
pub(crate) fn conclude(
    config: &Config,
    stretches: &[Stretch],
    engine: Engine,
    cpu: CpuUse,
) -> Result<Outcome, Error> {
    let Engine {
        clock,
        recorder,
        lost,
        first_error,
        ..
    } = engine;
    if recorder.to <= recorder.from {
        return Err(Error::LostBeforeMeasuring(lost.unwrap_or_default()));
    }
    let mut whole = Tally::new(recorder.from, recorder.to)?;
    let mut lateness_sum = 0.0;
    for phase in &recorder.phases {
        lateness_sum += phase.expected_lateness() as f64 * phase.requests as f64;
        whole.merge(phase);
    }
    // Of the whole window, also replies to requests of an earlier phase or of the warm-up.
    whole.completed = recorder.completed;
    let expected_lateness = (lateness_sum / whole.requests.max(1) as f64) as u64;
    let open_loop = matches!(config.mode, Mode::Open { .. });
    let gaps = open_loop.then(|| recorder.gaps.finish());
    let whole_run_ns = clock.now().max(1) as f64;
    let rules = Validity {
        first_error: first_error.as_deref(),
        cpu_wait_share: cpu.wait_ns.map(|ns| ns as f64 / whole_run_ns),
        client_works: !config.busy_per_response.is_zero(),
        open_loop,
        ..Validity::default()
    };
    let mut why_invalid = Validity {
        lost: lost.as_deref(),
        arrivals_off: gaps.as_ref().and_then(arrivals_off),
        ..of(&whole, expected_lateness, &rules)
    }
    .why_invalid();
    let mut phases = Vec::new();
    if !config.phases.is_empty() {
        for (number, (stretch, tally)) in (1..).zip(stretches.iter().zip(&recorder.phases)) {
            let report = phase_report(stretch, tally, &clock, &rules);
            let reasons = report.why_invalid.iter();
            why_invalid.extend(reasons.map(|why| format!("phase {number}: {why}")));
            phases.push(report);
        }
    }
    let seconds = (recorder.to - recorder.from) as f64 * 1e-9;
    let (arrivals, pipeline) = match config.mode {
        Mode::Open { arrivals, .. } => (Some(arrivals), None),
        Mode::Closed { pipeline } => (None, Some(pipeline as u64)),
    };
    let (first, last) = (&stretches[0], &stretches[stretches.len() - 1]);
    let report = Report {
        offered_rps: whole.requests as f64 / seconds,
        achieved_rps: whole.completed as f64 / seconds,
        requests: whole.requests,
        errors: whole.errors,
        latency_ns: main_latency(&whole, open_loop),
        from: if open_loop { "intended" } else { "send" }.to_owned(),
        valid: why_invalid.is_empty(),
        why_invalid,
        latency_from_send_ns: whole.from_send.latency(),
        lateness_ns: whole.lateness.lateness(),
        send_call_ns: whole.send_cost.mean(),
        expected_lateness_ns: open_loop.then_some(expected_lateness),
        backpressure: whole.backpressure,
        preemptions: cpu.preemptions,
        cpu_wait_ns: cpu.wait_ns,
        measured_from_ts_ns: clock.wall(recorder.from),
        measured_to_ts_ns: clock.wall(recorder.to),
        warmup_ns: recorder.from,
        target_rps: open_loop.then_some(first.rate.from),
        target_end_rps: open_loop.then_some(last.rate.to),
        arrival_check: gaps,
        nodelay: config.nodelay,
        value_size: first.value_size,
        get_ratio: first.get_ratio,
        connections: config.connections as u64,
        keys: u64::from(config.keys),
        arrivals,
        seed: config.seed,
        busy_per_response_ns: config.busy_per_response.as_nanos() as u64,
        closed: !open_loop,
        pipeline,
        phases,
    };
    Ok(Outcome {
        report,
        from_intended: whole.intended.into_histogram(),
        from_send: whole.from_send.into_histogram(),
    })
}

/// In a closed loop nothing is due before it is sent.
fn main_latency(tally: &Tally, open_loop: bool) -> LatencySummary {
    match open_loop {
        true => tally.intended.latency(),
        false => tally.from_send.latency(),
    }
}

/// What the rules look at, of one tally.
fn of<'a>(tally: &Tally, expected_lateness: u64, rules: &Validity<'a>) -> Validity<'a> {
    Validity {
        requests: tally.requests,
        completed: tally.completed,
        errors: tally.errors,
        backpressure: tally.backpressure,
        latency: main_latency(tally, rules.open_loop),
        lateness: tally.lateness.lateness(),
        expected_lateness,
        ..rules.clone()
    }
}

fn arrivals_off(gaps: &ArrivalCheck) -> Option<String> {
    (!gaps.ok).then(|| {
        format!(
            "the arrivals do not have the distribution that was asked for (coefficient of \
             variation {:.3}, expected {}; KS distance {:.4}, limit {:.4})",
            gaps.cv.unwrap_or_default(),
            gaps.expected_cv,
            gaps.ks.unwrap_or_default(),
            gaps.ks_limit.unwrap_or_default(),
        )
    })
}

fn phase_report(
    stretch: &Stretch,
    tally: &Tally,
    clock: &Clock,
    rules: &Validity<'_>,
) -> PhaseReport {
    let seconds = (tally.to - tally.from) as f64 * 1e-9;
    let expected_lateness = tally.expected_lateness();
    let why_invalid = of(tally, expected_lateness, rules).why_invalid();
    PhaseReport {
        offered_rps: tally.requests as f64 / seconds,
        achieved_rps: tally.completed as f64 / seconds,
        requests: tally.requests,
        errors: tally.errors,
        latency_ns: tally.intended.latency(),
        latency_from_send_ns: tally.from_send.latency(),
        lateness_ns: tally.lateness.lateness(),
        send_call_ns: tally.send_cost.mean(),
        expected_lateness_ns: Some(expected_lateness),
        backpressure: tally.backpressure,
        from_ts_ns: clock.wall(tally.from),
        to_ts_ns: clock.wall(tally.to),
        target_rps: stretch.rate.from,
        target_end_rps: stretch.rate.to,
        value_size: stretch.value_size,
        get_ratio: stretch.get_ratio,
        valid: why_invalid.is_empty(),
        why_invalid,
    }
}
