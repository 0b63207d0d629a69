//! The load: connections that stay, connections that come and go, pages by way of the balancer, and data
//! that is written when TCP can send.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use batchwise_hint::Hints;
use batchwise_testbed::nginx;
use batchwise_testbed::process::lock;
use batchwise_testbed::redis::PORT;
use batchwise_testbed::segment::{VIP, VIP6};

use super::ground::Ground;
use crate::balance::faults::WHO;
use crate::drills::{Traffic, echo};

/// Connections that stay, and between two rounds of requests on them.
const STAYING: usize = 32;
const PAUSE: Duration = Duration::from_millis(5);
/// Threads whose connections come and go, and requests on each.
const THREADS: u32 = 2;
const REQUESTS: u32 = 2;
/// One in so many of them gives hints, of a handle of its own.
const HINTED: u64 = 100;
/// Their rate, a second.
pub const RATE: u32 = 1_000;
/// Pages a second.
const PAGES: u32 = 50;
/// More than any machine's slowness.
const PATIENCE: Duration = Duration::from_secs(10);
/// The balancer's addresses.
pub const SERVICES: [IpAddr; 2] = [IpAddr::V4(VIP), IpAddr::V6(VIP6)];

#[derive(Default)]
struct Shared {
    over: AtomicBool,
    /// Connections a second that come and go.
    rate: AtomicU32,
    connections: AtomicU64,
    requests: AtomicU64,
    broken: AtomicU64,
    wrong: AtomicU64,
    /// What broke, since it was asked last.
    what: Mutex<Vec<String>>,
}

/// At work until it is dropped.
pub struct Churn {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Churn {
    pub fn start(ground: &Ground) -> Result<Self> {
        let shared = Arc::new(Shared {
            rate: RATE.into(),
            ..Shared::default()
        });
        let redis = ground.triangle.server_address(PORT);
        let spawn = |work: fn(&Shared, SocketAddr)| {
            let shared = shared.clone();
            std::thread::spawn(move || work(&shared, redis))
        };
        // threads have the network namespace of the one that starts them
        let mut threads = ground.triangle.client.inside(|| {
            let come_and_go = (0..THREADS).map(|_| spawn(come_and_go));
            Ok(come_and_go.chain([spawn(stay)]).collect::<Vec<_>>())
        })?;
        let client = &ground.segment.clients[0];
        threads.push(client.inside(|| Ok(spawn(pages)))?);
        Ok(Self { shared, threads })
    }

    /// So many connections come and go a second, or as many as the machine can do.
    pub fn set_rate(&self, per_second: u32) {
        self.shared.rate.store(per_second, Ordering::Relaxed);
    }

    /// All so far.
    pub fn traffic(&self) -> Traffic {
        let get = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Traffic {
            connections: get(&self.shared.connections),
            requests: get(&self.shared.requests),
            broken: get(&self.shared.broken),
            wrong_replies: get(&self.shared.wrong),
        }
    }

    /// What broke since the last call, in words.
    pub fn take_what(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.shared.what))
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // a panic was printed there
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Counts requests of one connection; whether it can go on.
    fn count(&self, requests: u32, done: io::Result<bool>, what: &str) -> bool {
        let why = match done {
            Ok(true) => {
                self.requests
                    .fetch_add(u64::from(requests), Ordering::Relaxed);
                return true;
            }
            Ok(false) => {
                self.wrong.fetch_add(1, Ordering::Relaxed);
                "a wrong reply".to_owned()
            }
            Err(error) => {
                self.broken.fetch_add(1, Ordering::Relaxed);
                error.to_string()
            }
        };
        lock(&self.what).push(format!("{what}: {why}"));
        false
    }

    fn opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Does it so often a second, as `rate` says at the time, until all is over.
    fn at_rate(&self, rate: impl Fn() -> u32, mut each: impl FnMut(u64)) {
        let mut due = Instant::now();
        for number in 0.. {
            if self.is_over() {
                return;
            }
            let rate = rate();
            if rate == 0 {
                std::thread::sleep(PAUSE);
                due = Instant::now();
                continue;
            }
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            // what the machine could not do is not caught up with
            due = due.max(Instant::now() - PAUSE) + Duration::from_secs(1) / rate;
            each(number);
        }
    }
}

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn come_and_go(shared: &Shared, redis: SocketAddr) {
    let rate = || shared.rate.load(Ordering::Relaxed) / THREADS;
    shared.at_rate(rate, |number| {
        let ask = || {
            let stream = connect(redis)?;
            shared.opened();
            stream.set_nodelay(number % 2 == 0)?;
            let is_hinted = number.is_multiple_of(HINTED);
            let _request = is_hinted.then(|| Hints::for_connection(&stream).request());
            echo(&stream, &number.to_string(), REQUESTS as usize)
        };
        shared.count(REQUESTS, ask(), "one that comes and goes");
    });
}

fn stay(shared: &Shared, redis: SocketAddr) {
    let mut streams: Vec<TcpStream> = Vec::new();
    let hints = Hints::for_service(redis);
    for round in 0u64.. {
        while streams.len() < STAYING && !shared.is_over() {
            match connect(redis) {
                Ok(stream) => {
                    shared.opened();
                    let _ = stream.set_nodelay(streams.len().is_multiple_of(2));
                    streams.push(stream);
                }
                Err(error) => {
                    shared.count(0, Err(error), "one that stays");
                    std::thread::sleep(PATIENCE / 10);
                }
            }
        }
        streams.retain(|stream| {
            let request = hints.request();
            let done = echo(stream, &round.to_string(), REQUESTS as usize);
            drop(request);
            shared.count(REQUESTS, done, "one that stays")
        });
        if shared.is_over() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

fn pages(shared: &Shared, _: SocketAddr) {
    shared.at_rate(
        || PAGES,
        |number| {
            let service = SERVICES[number as usize % SERVICES.len()];
            shared.opened();
            shared.count(1, page(service), "one by way of the balancer");
        },
    );
}

/// Asks by way of the balancer who answers; whether it is one of the servers.
pub fn page(service: IpAddr) -> io::Result<bool> {
    let mut stream = connect(SocketAddr::from((service, nginx::PORT)))?;
    let head = format!("GET /{WHO} HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.rsplit("\r\n").next().unwrap_or_default();
    Ok(answer.starts_with("HTTP/1.1 200 ") && body.starts_with('s'))
}
