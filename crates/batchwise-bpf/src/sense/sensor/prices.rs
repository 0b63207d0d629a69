//! What counting costs on this machine, ns a run: found at the start with a connection of our own over
//! loopback, one thread at both ends, so that nothing is woken and no other CPU takes part.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

use batchwise_core::sense::governor::Prices;

use super::Sensor;
use crate::Error;
use crate::sense::ping::Ping;

/// With and without the programs in turn; the least counts, as all that disturbs adds.
const ROUNDS: usize = 8;
/// Requests of a batch: 2 ms.
const REQUESTS: u32 = 200;
/// Connections of a batch.
const CONNECTIONS: u32 = 10;

/// Where that cannot be measured (no loopback here): what a machine of 2026 pays
/// (`lab run hook-cost`).
const USUAL: Prices = Prices {
    member: 190.0,
    entry: 30.0,
    foreign: 75.0,
    started: 5_000.0,
    switch: SWITCH,
};

/// More than that it does not take to get to a program and back.
const MOST_ENTRY: f64 = 60.0;

/// What other CPUs lose when the programs are attached and detached, ns: text is patched under them
/// (docs/research/kernel.md#what-a-switch-costs).
const SWITCH: f64 = 800_000.0;

/// A listener whose connections are watched like any other, so that they cost the same.
#[derive(Debug)]
pub(super) struct Bench {
    watched: TcpListener,
    foreign: TcpListener,
}

impl Bench {
    pub fn new() -> io::Result<Self> {
        let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        Ok(Self {
            watched: listen()?,
            foreign: listen()?,
        })
    }

    /// The port that is watched.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.watched.local_addr()?.port())
    }
}

impl Sensor {
    /// Measures the prices, in a tenth of a second, during which nothing else is counted.
    pub fn prices(&mut self) -> Result<Prices, Error> {
        let Some(bench) = self.bench.take() else {
            return Ok(USUAL);
        };
        let prices = self.measure(&bench);
        self.detach();
        self.read()?; // nobody asked for these connections
        self.bench = Some(bench);
        prices
    }

    fn measure(&mut self, bench: &Bench) -> Result<Prices, Error> {
        let measuring = Error::io("measuring what counting costs, over loopback");
        let connect = || {
            Ok((
                Ping::connect(&bench.watched)?,
                Ping::connect(&bench.foreign)?,
            ))
        };
        let Ok((mut watched, mut foreign)) = connect().map_err(measuring) else {
            return Ok(USUAL);
        };
        let mut arms = [[f64::INFINITY; 3]; 2];
        let before = self.runs();
        for round in 0..2 * ROUNDS {
            let on = round % 2 == 1;
            if on {
                self.begin()?;
            }
            let times = [
                watched.requests(REQUESTS),
                foreign.requests(REQUESTS),
                Ping::connections(&bench.watched, CONNECTIONS),
            ];
            if on {
                self.detach();
            }
            for (least, time) in arms[usize::from(on)].iter_mut().zip(times) {
                *least = least.min(time.unwrap_or(f64::INFINITY));
            }
        }
        let extra = |what: usize| arms[1][what] - arms[0][what];
        let runs = self.runs();
        if runs.member - before.member < ROUNDS as u64 * u64::from(REQUESTS) {
            return Ok(USUAL); // not seen: loopback is not what it seems here
        }
        let price = |found: f64, usual: f64| match found > 0.0 && found.is_finite() {
            true => found.clamp(usual / 5.0, usual * 20.0),
            false => usual,
        };
        let timed = (runs.took - before.took) as f64 / (runs.timed - before.timed).max(1) as f64;
        // on a busy machine the difference of two times may say anything
        let entry = (extra(0) / RUNS - timed).clamp(0.0, MOST_ENTRY);
        let prices = Prices {
            member: timed + entry,
            entry,
            foreign: price(extra(1) / RUNS, USUAL.foreign),
            started: price(extra(2), USUAL.started),
            switch: SWITCH,
        };
        tracing::debug!("what counting costs, ns: {prices:?}");
        Ok(prices)
    }
}

/// Each end sends, has an arrival, and reads.
const RUNS: f64 = 6.0;
