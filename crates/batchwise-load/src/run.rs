//! A run from the first connection to the last answer.

use std::thread;

use anyhow::Result;

use crate::clock::Clock;
use crate::conclude::{Outcome, conclude};
use crate::config::Config;
use crate::cpu::{CpuUse, pin};
use crate::engine::Engine;
use crate::payload::Requests;
use crate::phase::timeline;
use crate::progress;
use crate::recorder::Recorder;
use crate::report::Interval;
use crate::{closed, open, setup};

/// Runs a load and reports on it. `on_interval` gets an interim report every `config.progress`;
/// it runs on the calling thread, beside the generator's, and a failure of it ends the run.
///
/// An overloaded or vanishing server is no error but an invalid report. Errors are: a bad
/// configuration, and a server that cannot be reached or does not serve to begin with.
pub fn run(config: &Config, on_interval: impl FnMut(&Interval) -> Result<()>) -> Result<Outcome> {
    config.check()?;
    let (stretches, value_sizes) = timeline(config);
    let mut requests = Requests::new(config.keys, &value_sizes);
    let mut conns = setup::connect(config)?;
    setup::prefill(config, &mut conns[0], &mut requests)?;

    let every = config.progress.map(|every| every.as_nanos() as u64);
    let progress = every.map(|every| progress::channel(every, &stretches));
    let (progress, reader) = progress.unzip();
    let recorder = Recorder::new(&stretches, config.arrivals, progress);
    let clock = Clock::start();
    let generate = || -> Result<_> {
        config.cpu.map_or(Ok(()), pin)?;
        let poll = conns.len() > 1 || config.closed;
        let mut engine = Engine::new(config, conns, requests, clock, recorder, poll)?;
        clock.wait_for_start();
        let before = CpuUse::of_this_thread()?;
        match config.closed {
            true => closed::run(&mut engine, config, &stretches[0])?,
            false => open::run(&mut engine, config, &stretches)?,
        }
        Ok((engine, CpuUse::of_this_thread()?.since(&before)))
    };
    let (generated, reported) = thread::scope(|scope| {
        let generator = scope.spawn(generate);
        let reported = reader.map_or(Ok(()), |reader| reader.run(&clock, on_interval));
        (generator.join(), reported)
    });
    reported?;
    let (engine, cpu) = generated.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    conclude(config, &stretches, engine, cpu)
}
