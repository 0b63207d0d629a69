//! A closed-loop run over TCP, from the log's first line to the report. The generator has a thread
//! of its own, so that what it is pinned to stays with it.

use std::net::TcpStream;
use std::thread;

use super::engine::Engine;
use super::link::Dialogue;
use super::options::Options;
use super::tally::Tally;
use super::truth_log::LogFile;
use crate::Error;
use crate::clock::Clock;
use crate::cpu::{CpuUse, pin};

/// What a run leaves behind.
pub(crate) struct Driven<D> {
    pub dialogues: Vec<D>,
    pub tally: Tally,
    pub clock: Clock,
    pub cpu: CpuUse,
    /// From the start to the last answer, ns.
    pub elapsed: u64,
}

/// Lets the dialogues run on their connections.
pub(crate) fn drive<D: Dialogue + Send>(
    options: &Options,
    coalesce: bool,
    links: Vec<(TcpStream, D)>,
) -> Result<Driven<D>, Error> {
    let address = |why| Error::system("cannot find out a connection's address", why);
    let local = links.iter().map(|(stream, _)| stream.local_addr());
    let local: Vec<_> = local.collect::<Result<_, _>>().map_err(address)?;
    let log = options.log.as_deref().map(LogFile::create).transpose()?;
    let clock = Clock::start(); // after what can take long: it is not of the run
    let log = log.map(|file| file.start(local, clock));
    let tally = Tally::new(
        options.duration.as_nanos() as u64,
        links.len() as u32,
        log.transpose()?,
    )?;
    let generate = || {
        options.cpu.map_or(Ok(()), pin)?;
        let mut engine = Engine::new(options.addr, links, coalesce, tally, clock)?;
        clock.wait_for_start();
        let before = CpuUse::of_this_thread()?;
        engine.run()?;
        Ok((
            engine,
            CpuUse::of_this_thread()?.since(&before),
            clock.now(),
        ))
    };
    let (engine, cpu, elapsed) = thread::scope(|scope| {
        scope
            .spawn(generate)
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    let Engine {
        mut tally, links, ..
    } = engine;
    tally.close_log()?;
    Ok(Driven {
        dialogues: links.into_iter().map(|link| link.dialogue).collect(),
        tally,
        clock,
        cpu,
        elapsed,
    })
}
