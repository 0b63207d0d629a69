//! The QUIC client: a closed loop of page after page on each connection.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::{LARGEST, message, runtime, tls};
use crate::causal::conclude::conclude;
use crate::causal::distribution::{Distribution, parse_amounts, parse_times};
use crate::causal::driver::{Measured, start};
use crate::causal::pace::Pace;
use crate::causal::page::{Page, Walk};
use crate::causal::tally::Tally;
use crate::causal::truth_log::Record;
use crate::causal::{Options, TruthReport};
use crate::clock::Clock;
use crate::cpu::{CpuUse, on_own_thread};
use crate::engine::Drain;
use crate::setup::connect_error;

const PATIENCE: Duration = Duration::from_secs(5);
/// How long the server is told that this is the end.
const FAREWELL: Duration = Duration::from_millis(200);
/// The tree: the root's response names so many objects,
const BRANCHES: u32 = 8;
/// and the response of each of them so many.
const LEAVES: u32 = 2;

/// A run of the QUIC client: page after page on each connection, which has a UDP port of its own. By
/// default it is the paper's first scenario.
#[derive(Clone, Debug, Parser)]
pub struct Config {
    /// The server and the connections.
    #[command(flatten)]
    pub options: Options,
    /// Requests in flight on a connection, at most; of a range, each page draws one
    #[arg(long, default_value = "1..16", value_name = "DIST", value_parser = parse_amounts)]
    pub streams: Distribution,
    /// Bytes in a response: 500, or 1600..15100, each size equally likely
    #[arg(long, default_value = "30..130", value_name = "DIST", value_parser = parse_amounts)]
    pub response_size: Distribution,
    /// Pause between two pages: none, 20ms, 10ms..30ms, exp:20ms, lognormal:MEDIAN:SIGMA
    #[arg(long, value_name = "DIST", default_value = "none", value_parser = parse_times)]
    pub think: Distribution,
}

impl Config {
    fn check(&self) -> Result<()> {
        self.options.check()?;
        let within = |distribution: &Distribution, highest: f64| {
            let bounds = distribution.bounds();
            bounds.is_some_and(|(low, high)| low >= 1.0 && high <= highest)
        };
        ensure!(
            within(&self.streams, 64.0),
            "the streams must be a number or a range within 1..64"
        );
        ensure!(
            within(&self.response_size, LARGEST),
            "the response size must be a number or a range within 1..1000000"
        );
        Ok(())
    }
}

/// Runs the QUIC client. An overloaded or vanishing server is no error but an invalid report.
pub fn run(config: &Config) -> Result<TruthReport> {
    config.check()?;
    on_own_thread(config.options.cpu, || runtime()?.block_on(load(config)))
}

async fn load(config: &Config) -> Result<TruthReport> {
    let options = &config.options;
    let mut endpoints = Vec::with_capacity(options.connections);
    let mut connections = Vec::with_capacity(options.connections);
    let mut local = Vec::with_capacity(options.connections);
    for _ in 0..options.connections {
        let (endpoint, connection) = connect(options.addr).await?;
        let address = endpoint.local_addr();
        local.push(address.map_err(|why| connect_error(options.addr, why))?);
        endpoints.push(endpoint);
        connections.push(connection);
    }
    let (clock, tally) = start(options, local)?;
    let tally = RefCell::new(tally);
    let page = Page::grow(0, |object| match object {
        0 => 1..BRANCHES + 1,
        branch if branch <= BRANCHES => {
            let first = BRANCHES + 1 + (branch - 1) * LEAVES;
            first..first + LEAVES
        }
        _ => 0..0,
    });
    clock.wait_for_start();
    let before = CpuUse::of_this_thread()?;
    let clients = connections.iter().zip(0..).map(|(connection, number)| {
        let client = Client {
            config,
            page: &page,
            clock,
            tally: &tally,
            connection,
            number,
        };
        client.converse()
    });
    let pages = join_all(clients).await.into_iter().sum();
    let elapsed = clock.now();
    let cpu = CpuUse::of_this_thread()?.since(&before);
    let farewell = endpoints.iter().map(|endpoint| {
        endpoint.close(0u32.into(), b"the end");
        endpoint.wait_idle()
    });
    // If the server does not hear of it, its own timeout tells it.
    let _ = tokio::time::timeout(FAREWELL, join_all(farewell)).await;
    let measured = Measured {
        tally: tally.into_inner(),
        clock,
        cpu,
        elapsed,
    };
    conclude("quic", options, None, Some(pages), measured)
}

/// Opens a connection from a UDP port of its own, bound to the address that the network sees.
async fn connect(addr: SocketAddr) -> Result<(Endpoint, Connection)> {
    let failed = |why: io::Error| connect_error(addr, why);
    let any: SocketAddr = match addr {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let route = || {
        let probe = UdpSocket::bind(any)?;
        probe.connect(addr)?;
        probe.local_addr()
    };
    let local = route().map_err(failed)?.ip();
    let mut endpoint = Endpoint::client((local, 0).into()).map_err(failed)?;
    let mut quic = tls::client().context("cannot set up TLS")?;
    let mut transport = quinn::TransportConfig::default();
    // Segments are cut here, not in the network card: a vantage on a virtual link sees packets.
    transport.enable_segmentation_offload(false);
    quic.transport_config(transport.into());
    endpoint.set_default_client_config(quic);
    let connecting = endpoint
        .connect(addr, tls::NAME)
        .map_err(|why| failed(io::Error::other(why)))?;
    let connection = tokio::time::timeout(PATIENCE, connecting)
        .await
        .map_err(|_| failed(io::ErrorKind::TimedOut.into()))?
        .map_err(|why| failed(why.into()))?;
    Ok((endpoint, connection))
}

/// One connection's client.
struct Client<'a> {
    config: &'a Config,
    page: &'a Page,
    clock: Clock,
    tally: &'a RefCell<Tally>,
    connection: &'a Connection,
    number: u32,
}

/// What became of a request.
struct Outcome {
    node: u32,
    record: Record,
    fault: Option<String>,
}

impl Client<'_> {
    /// Page after page; returns how many were completed.
    async fn converse(self) -> u64 {
        let end = self.tally.borrow().end;
        let mut rng = SmallRng::seed_from_u64(self.config.options.seed ^ u64::from(self.number));
        let mut pace = Pace::Think(self.config.think);
        let mut begins = pace.first(&mut rng);
        let (mut pages, mut streams) = (0, 0);
        let mut walk = Walk::default();
        let mut flights = FuturesUnordered::new();
        // The response whose consequences are being sent.
        let mut answered: Option<Outcome> = None;
        let mut drain = Drain::default();
        loop {
            let mut first = None;
            if walk.finished() && self.clock.now() >= begins && begins < end {
                walk.begin(self.page);
                streams = self.config.streams.sample_whole(&mut rng) as usize;
            }
            while flights.len() < streams && self.clock.now() < end {
                let Some(node) = walk.next() else { break };
                let size = self.config.response_size.sample_whole(&mut rng) as u32;
                match self.ask(size).await {
                    Ok((sent, receive)) => {
                        first.get_or_insert(sent);
                        flights.push(self.hear(node, size, sent, receive));
                    }
                    Err(why) => {
                        let waiting = flights.len() as u64 + 1;
                        self.lost(waiting, why);
                        return pages;
                    }
                }
            }
            if let Some(outcome) = answered.take() {
                let record = Record {
                    triggered: first,
                    ..outcome.record
                };
                self.tally.borrow_mut().answered(record, outcome.fault);
            }
            if flights.is_empty() {
                let now = self.clock.now();
                if now >= end || begins >= end {
                    return pages;
                }
                let pause = Duration::from_nanos(begins.saturating_sub(now));
                tokio::time::sleep(pause).await;
                continue;
            }
            let now = self.clock.now();
            let left = Duration::from_nanos(drain.stop(now, end).saturating_sub(now));
            let next = tokio::time::timeout(left, flights.next()).await;
            if next.is_err() && now < end {
                continue;
            }
            let Ok(Some(outcome)) = next else {
                self.tally.borrow_mut().failed(flights.len() as u64, || {
                    "no answer within a second after the end".to_owned()
                });
                return pages;
            };
            match outcome {
                Ok(outcome) => {
                    walk.answered(self.page, outcome.node);
                    if walk.finished() {
                        pages += 1;
                        begins = pace.after(outcome.record.response, &mut rng);
                    }
                    answered = Some(outcome);
                }
                Err(why) => {
                    self.lost(flights.len() as u64 + 1, why);
                    return pages;
                }
            }
        }
    }

    fn lost(&self, requests: u64, why: io::Error) {
        let (number, total) = (self.number + 1, self.config.options.connections);
        let why = format!("connection {number} of {total}: {why}");
        let mut tally = self.tally.borrow_mut();
        tally.failed(requests, || why.clone());
        tally.lost(why);
    }

    /// Sends a request; returns when.
    async fn ask(&self, size: u32) -> io::Result<(u64, RecvStream)> {
        let (mut send, receive): (SendStream, RecvStream) = self.connection.open_bi().await?;
        let request = message::request(size);
        let sent = self.clock.now();
        self.tally.borrow_mut().sent(request.len());
        send.write_all(&request).await?;
        send.finish().map_err(io::Error::from)?;
        Ok((sent, receive))
    }

    /// Reads the response.
    async fn hear(
        &self,
        node: u32,
        size: u32,
        sent: u64,
        mut receive: RecvStream,
    ) -> io::Result<Outcome> {
        let mut bytes = 0;
        while let Some(chunk) = receive.read_chunk(usize::MAX, true).await? {
            bytes += chunk.bytes.len() as u64;
        }
        let record = Record {
            connection: self.number,
            sent,
            response: self.clock.now(),
            triggered: None,
            request_bytes: message::REQUEST as u32,
            response_bytes: bytes,
        };
        let fault = (bytes != u64::from(size))
            .then(|| format!("a response of {bytes} B where {size} B had been asked for"));
        Ok(Outcome {
            node,
            record,
            fault,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        let check = |options: &str| {
            let line = format!("quic --addr 127.0.0.1:1 {options}");
            Config::parse_from(line.split_whitespace()).check()
        };
        assert!(check("").is_ok());
        for bad in ["--streams 0", "--response-size exp:100"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
