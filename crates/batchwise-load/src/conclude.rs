//! From what was counted to the report, for the run and for each phase of a schedule.

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;

use crate::arrival_check::ArrivalCheck;
use crate::config::Config;
use crate::cpu::CpuUse;
use crate::engine::Engine;
use crate::phase::Stretch;
use crate::report::{Figures, PhaseReport, Report};
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

/// The report of a run that has ended; `cpu` is what its thread used.
pub(crate) fn conclude(
    config: &Config,
    stretches: &[Stretch],
    engine: Engine,
    cpu: CpuUse,
) -> Result<Outcome> {
    let Engine {
        clock,
        recorder,
        lost,
        first_error,
        ..
    } = engine;
    ensure!(
        recorder.to > recorder.from,
        "every connection was lost before the measurement began: {}",
        lost.unwrap_or_default()
    );
    let mut tally = Tally::new(recorder.from, recorder.to);
    let mut lateness_sum = 0.0;
    for phase in &recorder.phases {
        lateness_sum += phase.expected_lateness() as f64 * phase.requests as f64;
        tally.merge(phase);
    }
    // Of the whole window, also replies to requests of an earlier phase or of the warm-up.
    tally.completed = recorder.completed;
    let expected_lateness = (lateness_sum / tally.requests.max(1) as f64) as u64;
    let open_loop = !config.closed;
    let gaps = open_loop.then(|| recorder.gaps.finish());
    let whole_run_ns = clock.now().max(1) as f64;
    let late_by_design = match config.sleeping {
        true => Some(0.1),
        false => (!config.busy_per_response.is_zero()).then_some(0.01),
    };
    let of_phase = Validity {
        first_error: first_error.as_deref(),
        cpu_wait_share: cpu.wait_ns.map(|ns| ns as f64 / whole_run_ns),
        late_by_design,
        open_loop,
        ..Validity::default()
    };
    let of_run = Validity {
        lost: lost.as_deref(),
        arrivals_off: gaps.as_ref().and_then(arrivals_off),
        ..of_phase.clone()
    };
    let ends = [&stretches[0], &stretches[stretches.len() - 1]];
    let mut whole = figures(&tally, expected_lateness, ends, &of_run);
    let mut phases = Vec::new();
    if !config.schedule.is_empty() {
        for (number, (stretch, tally)) in (1..).zip(stretches.iter().zip(&recorder.phases)) {
            let expected_lateness = tally.expected_lateness();
            let figures = figures(tally, expected_lateness, [stretch; 2], &of_phase);
            let reasons = figures.why_invalid.iter();
            let named = reasons.map(|why| format!("phase {number}: {why}"));
            whole.why_invalid.extend(named);
            phases.push(PhaseReport {
                figures,
                from_ts_ns: clock.wall(tally.from),
                to_ts_ns: clock.wall(tally.to),
            });
        }
    }
    whole.valid = whole.why_invalid.is_empty();
    let report = Report {
        whole,
        from: if open_loop { "intended" } else { "send" },
        preemptions: cpu.preemptions,
        cpu_wait_ns: cpu.wait_ns,
        measured_from_ts_ns: clock.wall(recorder.from),
        measured_to_ts_ns: clock.wall(recorder.to),
        warmup_ns: recorder.from,
        arrival_check: gaps,
        nodelay: config.nodelay,
        connections: config.connections as u64,
        keys: u64::from(config.keys),
        arrivals: open_loop.then_some(config.arrivals),
        seed: config.seed,
        busy_per_response_ns: config.busy_per_response.as_nanos() as u64,
        closed: config.closed,
        pipeline: config.closed.then_some(config.pipeline as u64),
        phases,
    };
    Ok(Outcome {
        report,
        from_intended: tally.intended.into_histogram(),
        from_send: tally.from_send.into_histogram(),
    })
}

/// What was counted from the start of the first stretch to the end of the last.
fn figures(
    tally: &Tally,
    expected_lateness: u64,
    [first, last]: [&Stretch; 2],
    validity: &Validity<'_>,
) -> Figures {
    let seconds = (tally.to - tally.from) as f64 * 1e-9;
    let scheduled = |value| validity.open_loop.then_some(value);
    // In a closed loop nothing is due before it is sent.
    let main = match validity.open_loop {
        true => &tally.intended,
        false => &tally.from_send,
    };
    let mut figures = Figures {
        offered_rps: tally.requests as f64 / seconds,
        achieved_rps: tally.completed as f64 / seconds,
        completed: tally.completed,
        requests: tally.requests,
        errors: tally.errors,
        latency_ns: main.latency(),
        latency_from_send_ns: tally.from_send.latency(),
        lateness_ns: tally.lateness.lateness(),
        send_call_ns: tally.send_cost.mean(),
        expected_lateness_ns: validity.open_loop.then_some(expected_lateness),
        backpressure: tally.backpressure,
        target_rps: scheduled(first.rate.from),
        target_end_rps: scheduled(last.rate.to),
        value_size: first.value_size,
        get_ratio: first.get_ratio,
        ..Figures::default()
    };
    figures.why_invalid = validity.why_invalid(&figures);
    figures.valid = figures.why_invalid.is_empty();
    let late = validity.lateness(&figures);
    figures.only_late = late.is_some() && figures.why_invalid.len() == 1;
    figures
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
