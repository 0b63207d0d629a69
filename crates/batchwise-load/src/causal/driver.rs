//! A closed-loop run, from the log's first line to what the report is made of.

use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result};

use super::engine::Engine;
use super::link::Dialogue;
use super::options::Options;
use super::tally::Tally;
use super::truth_log::{self, TruthLog};
use crate::clock::Clock;
use crate::cpu::{CpuUse, on_own_thread};

/// What a run leaves behind.
pub(crate) struct Measured {
    pub tally: Tally,
    pub clock: Clock,
    pub cpu: CpuUse,
    /// From the start to the last answer, ns.
    pub elapsed: u64,
}

/// Begins the log of a run whose connections have these addresses at the client, and then the run:
/// what can take long is not of it.
pub(crate) fn start(options: &Options, local: Vec<SocketAddr>) -> Result<(Clock, Tally)> {
    let connections = local.len() as u32;
    let log = options.log.as_deref();
    let log = log.map(|path| Ok::<_, anyhow::Error>((path, truth_log::create(path)?)));
    let log = log.transpose()?;
    let clock = Clock::start();
    let log = log.map(|(path, file)| TruthLog::start(path, file, local, clock));
    let end = options.duration.as_nanos() as u64;
    Ok((clock, Tally::new(end, connections, log.transpose()?)))
}

/// Lets the dialogues run on their connections.
pub(crate) fn drive<D: Dialogue + Send>(
    options: &Options,
    coalesce: bool,
    links: Vec<(TcpStream, D)>,
) -> Result<(Vec<D>, Measured)> {
    let local = links.iter().map(|(stream, _)| stream.local_addr());
    let local = local.collect::<Result<_, _>>();
    let (clock, tally) = start(
        options,
        local.context("cannot find out a connection's address")?,
    )?;
    on_own_thread(options.cpu, || {
        let mut engine = Engine::new(options.addr, links, coalesce, tally, clock)?;
        clock.wait_for_start();
        let before = CpuUse::of_this_thread()?;
        engine.run()?;
        let cpu = CpuUse::of_this_thread()?.since(&before);
        let elapsed = clock.now();
        let Engine { tally, links, .. } = engine;
        let measured = Measured {
            tally,
            clock,
            cpu,
            elapsed,
        };
        let dialogues = links.into_iter().map(|link| link.dialogue);
        Ok((dialogues.collect(), measured))
    })
}
