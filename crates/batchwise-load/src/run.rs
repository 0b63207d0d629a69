//! A run from the first connection to the last answer.

use std::io;
use std::thread;

use crate::clock::Clock;
use crate::conclude::{Outcome, conclude};
use crate::config::{Arrivals, Config, Mode};
use crate::conn::Conn;
use crate::cpu::{CpuUse, pin};
use crate::engine::Engine;
use crate::error::Error;
use crate::payload::Requests;
use crate::phase::{Stretch, timeline};
use crate::progress;
use crate::recorder::Recorder;
use crate::report::Interval;
use crate::{closed, open, setup};

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
    let (stretches, value_sizes) = timeline(config);
    let mut requests = Requests::new(config.keys, &value_sizes);
    let mut conns = setup::connect(config)?;
    setup::prefill(config, &mut conns[0], &mut requests)?;

    let (progress, reader) = match config.progress {
        Some(every) => {
            let (progress, reader) = progress::channel(every.as_nanos() as u64, &stretches)?;
            (Some(progress), Some(reader))
        }
        None => (None, None),
    };
    let arrivals = match config.mode {
        Mode::Open { arrivals, .. } => arrivals,
        Mode::Closed { .. } => Arrivals::Constant,
    };
    let recorder = Recorder::new(&stretches, arrivals, progress)?;
    let clock = Clock::start();
    thread::scope(|scope| {
        let generator =
            scope.spawn(|| generate(config, &stretches, conns, requests, clock, recorder));
        let reported = reader.map_or(Ok(()), |reader| reader.run(&clock, on_interval));
        let generated = generator
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        reported.map_err(Error::Progress)?;
        let (engine, cpu) = generated?;
        conclude(config, &stretches, engine, cpu)
    })
}

/// The generator's thread.
fn generate(
    config: &Config,
    stretches: &[Stretch],
    conns: Vec<Conn>,
    requests: Requests,
    clock: Clock,
    recorder: Recorder,
) -> Result<(Engine, CpuUse), Error> {
    if let Some(cpu) = config.cpu {
        pin(cpu)?;
    }
    let poll = conns.len() > 1 || matches!(config.mode, Mode::Closed { .. });
    let mut engine = Engine::new(config, conns, requests, clock, recorder, poll)?;
    clock.wait_for_start();
    let before = CpuUse::of_this_thread()?;
    let ended = match config.mode {
        Mode::Open { arrivals, .. } => open::run(&mut engine, config, stretches, arrivals),
        Mode::Closed { pipeline } => closed::run(&mut engine, config, &stretches[0], pipeline),
    };
    if ended.is_err() {
        // The caller has the reason, from the reader of the interval reports.
        return Err(Error::Progress(io::ErrorKind::BrokenPipe.into()));
    }
    let after = CpuUse::of_this_thread()?;
    Ok((engine, after.since(&before)))
}
