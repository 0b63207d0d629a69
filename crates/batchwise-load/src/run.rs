//! A run from the first connection to the report.

use std::io;
use std::thread;

use hdrhistogram::Histogram;

use crate::clock::Clock;
use crate::config::{Config, Mode};
use crate::conn::Conn;
use crate::cpu::{CpuUse, pin};
use crate::engine::Engine;
use crate::error::Error;
use crate::payload::Requests;
use crate::progress::{self, Progress};
use crate::recorder::Recorder;
use crate::report::{Interval, Report};
use crate::schedule::Arrivals;
use crate::validity::Validity;
use crate::{closed, open, setup};

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

/// Runs a load and reports on it. `on_interval` gets an interim report every `config.progress`;
/// it runs on the calling thread, beside the generator's, and a failure of it ends the run.
///
/// An overloaded or vanishing server is no error but an invalid report. Errors are: a bad
/// configuration, and a server that cannot be reached or does not serve to begin with.
pub fn run(
    config: &Config,
    on_interval: impl FnMut(&Interval) -> io::Result<()>,
) -> Result<Outcome, Error> {
    config.check()?;
    let mut requests = Requests::new(config.keys, config.value_size);
    let mut conns = setup::connect(config)?;
    setup::prefill(config, &mut conns[0], &mut requests)?;

    let from = config.warmup.as_nanos() as u64;
    let to = from + config.duration.as_nanos() as u64;
    let (progress, reader) = match config.progress {
        Some(every) => {
            let (progress, reader) = progress::channel(every.as_nanos() as u64, from, to)?;
            (Some(progress), Some(reader))
        }
        None => (None, None),
    };
    let recorder = recorder(config, from, to, progress)?;
    let clock = Clock::start();
    thread::scope(|scope| {
        let generator = scope.spawn(|| generate(config, conns, requests, clock, recorder));
        let reported = reader.map_or(Ok(()), |reader| reader.run(&clock, on_interval));
        let generated = generator
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        reported.map_err(Error::Progress)?;
        generated
    })
}

fn recorder(
    config: &Config,
    from: u64,
    to: u64,
    progress: Option<Progress>,
) -> Result<Recorder, Error> {
    let arrivals = match config.mode {
        Mode::Open { arrivals, .. } => arrivals,
        Mode::Closed { .. } => Arrivals::Constant,
    };
    Recorder::new(from, to, arrivals, progress)
}

/// The generator's thread.
fn generate(
    config: &Config,
    conns: Vec<Conn>,
    requests: Requests,
    clock: Clock,
    recorder: Recorder,
) -> Result<Outcome, Error> {
    if let Some(cpu) = config.cpu {
        pin(cpu)?;
    }
    let poll = conns.len() > 1 || matches!(config.mode, Mode::Closed { .. });
    let mut engine = Engine::new(config, conns, requests, clock, recorder, poll)?;
    clock.wait_for_start();
    let before = CpuUse::of_this_thread()?;
    let ended = match config.mode {
        Mode::Open { rate, arrivals } => open::run(&mut engine, config, rate, arrivals),
        Mode::Closed { pipeline } => closed::run(&mut engine, config, pipeline),
    };
    if ended.is_err() {
        // The caller has the reason, from the reader of the interval reports.
        return Err(Error::Progress(io::ErrorKind::BrokenPipe.into()));
    }
    let after = CpuUse::of_this_thread()?;
    conclude(config, engine, after.since(&before))
}

fn conclude(config: &Config, engine: Engine, cpu: CpuUse) -> Result<Outcome, Error> {
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
    let open_loop = matches!(config.mode, Mode::Open { .. });
    let gaps = open_loop.then(|| recorder.gaps.finish());
    let from_send = recorder.from_send.latency();
    let latency = if open_loop {
        recorder.intended.latency()
    } else {
        from_send
    };
    let lateness = recorder.lateness.lateness();
    let arrivals_off = gaps.as_ref().filter(|gaps| !gaps.ok).map(|gaps| {
        format!(
            "the arrivals do not have the distribution that was asked for (coefficient of \
             variation {:.3}, expected {}; KS distance {:.4}, limit {:.4})",
            gaps.cv.unwrap_or_default(),
            gaps.expected_cv,
            gaps.ks.unwrap_or_default(),
            gaps.ks_limit.unwrap_or_default(),
        )
    });
    let expected_lateness = recorder
        .send_cost
        .expected_wait(recorder.to - recorder.from);
    let whole_run_ns = clock.now().max(1) as f64;
    let why_invalid = Validity {
        requests: recorder.requests,
        completed: recorder.completed,
        errors: recorder.errors,
        first_error: first_error.as_deref(),
        lost: lost.as_deref(),
        backpressure: recorder.backpressure,
        latency,
        lateness,
        expected_lateness,
        cpu_wait_share: cpu.wait_ns.map(|ns| ns as f64 / whole_run_ns),
        client_works: !config.busy_per_response.is_zero(),
        open_loop,
        arrivals_off,
    }
    .why_invalid();
    let seconds = (recorder.to - recorder.from) as f64 * 1e-9;
    let (rate, arrivals, pipeline) = match config.mode {
        Mode::Open { rate, arrivals } => (Some(rate), Some(arrivals), None),
        Mode::Closed { pipeline } => (None, None, Some(pipeline as u64)),
    };
    let report = Report {
        offered_rps: recorder.requests as f64 / seconds,
        achieved_rps: recorder.completed as f64 / seconds,
        requests: recorder.requests,
        errors: recorder.errors,
        latency_ns: latency,
        from: if open_loop { "intended" } else { "send" }.to_owned(),
        valid: why_invalid.is_empty(),
        why_invalid,
        latency_from_send_ns: from_send,
        lateness_ns: lateness,
        send_call_ns: recorder.send_cost.mean(),
        expected_lateness_ns: open_loop.then_some(expected_lateness),
        backpressure: recorder.backpressure,
        preemptions: cpu.preemptions,
        cpu_wait_ns: cpu.wait_ns,
        measured_from_ts_ns: clock.wall(recorder.from),
        measured_to_ts_ns: clock.wall(recorder.to),
        warmup_ns: recorder.from,
        target_rps: rate.map(|rate| rate.from),
        target_end_rps: rate.map(|rate| rate.to),
        arrival_check: gaps,
        nodelay: config.nodelay,
        value_size: config.value_size as u64,
        get_ratio: config.get_ratio,
        connections: config.connections as u64,
        keys: u64::from(config.keys),
        arrivals,
        seed: config.seed,
        busy_per_response_ns: config.busy_per_response.as_nanos() as u64,
        closed: !open_loop,
        pipeline,
    };
    let from_intended = recorder.intended.into_histogram();
    Ok(Outcome {
        report,
        from_intended,
        from_send: recorder.from_send.into_histogram(),
    })
}
