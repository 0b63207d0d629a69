//! The lines of the latest interval as Prometheus metrics, served over HTTP at `/metrics`.
//!
//! Every scrape is encoded from the latest lines, so services that vanished and parts that are not
//! known are absent by construction.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use batchwise_core::report::{Line, Nagle};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tiny_http::{Header, Method, Request, Response, Server};

use super::parts;

/// What OpenMetrics 1.0 text is called in HTTP.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// A service's histogram survives this many intervals of silence, as its counts must not restart
/// whenever nobody asks for a moment.
const SILENT_INTERVALS: u32 = 300;

/// The histogram's bounds within a power of ten.
const BOUNDS: [f64; 6] = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0];

type Labels = Vec<(&'static str, String)>;

/// Serves the metrics until it is dropped.
pub struct Exporter {
    state: Arc<Mutex<State>>,
    server: Arc<Server>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<Line>,
    lost_events: u64,
    totals: Vec<Totals>,
}

/// The interval totals of one service, which add up over time.
#[derive(Debug)]
struct Totals {
    labels: Labels,
    histogram: Histogram,
    silent: u32,
}

impl Exporter {
    /// Listens on `address` ("127.0.0.1:9464", "[::]:9464") and answers from a thread of its own.
    ///
    /// # Errors
    /// `address` is no address and port, is in use, or may not be listened on.
    pub fn bind(address: &str) -> anyhow::Result<Self> {
        let wanted: SocketAddr = address.parse().map_err(|_| {
            anyhow!("--metrics {address}: not an ADDRESS:PORT such as 127.0.0.1:9464 or [::]:9464")
        })?;
        let server = Server::http(wanted).map_err(|error| refused(wanted, error))?;
        let address = server.server_addr().to_ip().unwrap_or(wanted);
        let server = Arc::new(server);
        let state = Arc::new(Mutex::new(State::default()));
        let mut registry = Registry::with_prefix("batchwise");
        registry.register_collector(Box::new(Snapshot(Arc::clone(&state))));
        let thread = std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn({
                let server = Arc::clone(&server);
                move || {
                    for request in server.incoming_requests() {
                        answer(request, &registry);
                    }
                }
            })
            .context("cannot start the thread that serves metrics")?;
        Ok(Self {
            state,
            server,
            address,
            thread: Some(thread),
        })
    }

    /// Replaces what is served by the lines of the interval that just ended.
    pub fn update(&self, lines: &[Line]) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .update(lines);
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been printed; there is nothing left to do about it.
            let _ = thread.join();
        }
    }
}

fn refused(address: SocketAddr, error: Box<dyn std::error::Error + Send + Sync>) -> anyhow::Error {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    let remedy = match kind {
        Some(io::ErrorKind::AddrInUse) => "the address is in use; choose another port",
        Some(io::ErrorKind::AddrNotAvailable) => "this machine has no such address",
        Some(io::ErrorKind::PermissionDenied) => "not permitted; choose a port above 1023",
        _ => return anyhow!("--metrics {address}: {error}"),
    };
    anyhow!("--metrics {address}: {remedy}")
}

fn answer(request: Request, registry: &Registry) {
    let path = request.url().split('?').next().unwrap_or_default();
    let response = match (request.method(), path) {
        (Method::Get | Method::Head, "/metrics") => {
            let mut text = String::new();
            match prometheus_client::encoding::text::encode(&mut text, registry) {
                Ok(()) => with_type(Response::from_string(text), CONTENT_TYPE),
                Err(error) => Response::from_string(error.to_string()).with_status_code(500),
            }
        }
        (Method::Get | Method::Head, _) => {
            Response::from_string("the metrics are at /metrics\n").with_status_code(404)
        }
        _ => Response::from_string("only GET is served\n").with_status_code(405),
    };
    if let Err(error) = request.respond(response) {
        tracing::debug!(%error, "a metrics client left before it had the answer");
    }
}

fn with_type<R: io::Read>(response: Response<R>, content_type: &str) -> Response<R> {
    match Header::from_bytes("Content-Type", content_type) {
        Ok(header) => response.with_header(header),
        Err(()) => response,
    }
}

impl State {
    fn update(&mut self, lines: &[Line]) {
        self.lines = lines.to_vec();
        // The agent's count, which all lines repeat.
        let lost = lines.iter().map(|line| line.lost_events).max();
        self.lost_events = self.lost_events.max(lost.unwrap_or(0));
        for totals in &mut self.totals {
            totals.silent += 1;
        }
        for line in lines {
            let labels = service(line);
            let index = self.totals.iter().position(|known| known.labels == labels);
            let index = index.unwrap_or_else(|| {
                self.totals.push(Totals {
                    labels,
                    histogram: histogram(),
                    silent: 0,
                });
                self.totals.len() - 1
            });
            self.totals[index].silent = 0;
            if let Some(total) = line.latency_ns.total {
                self.totals[index].histogram.observe(seconds(total));
            }
        }
        self.totals
            .retain(|totals| totals.silent <= SILENT_INTERVALS);
    }
}

/// Log-linear: every power of ten from 1 µs to 10 s is divided in the same way.
fn histogram() -> Histogram {
    // Dividing gives the number that 1.5e-6 stands for; multiplying by a power of ten does not.
    let bounds = (0..7)
        .rev()
        .flat_map(|power| BOUNDS.map(|bound| bound / 10f64.powi(power)));
    Histogram::new(bounds.chain([10.0]))
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The labels that tell one line's series from another's.
fn service(line: &Line) -> Labels {
    let mut labels = vec![
        ("service", line.service.clone()),
        ("side", parts::side(line.side).to_owned()),
    ];
    if let Some(connection) = &line.connection {
        labels.push(("connection", connection.clone()));
    }
    labels
}

/// The labels of an estimate: also how it was made, as the numbers mean nothing without.
fn estimate(line: &Line) -> Labels {
    let mut labels = service(line);
    labels.push(("unit", parts::unit(line.unit).to_owned()));
    labels.push(("estimator", parts::estimator(line.estimator).to_owned()));
    labels
}

fn with(mut labels: Labels, key: &'static str, value: &str) -> Labels {
    labels.push((key, value.to_owned()));
    labels
}

/// Encodes the state at the time of a scrape.
struct Snapshot(Arc<Mutex<State>>);

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Snapshot")
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = &state.lines;
        gauges(
            &mut encoder,
            ("latency", Some(Unit::Seconds)),
            "Mean latency of a request in the latest interval, by part",
            lines.iter().flat_map(latencies),
        )?;
        gauges(
            &mut encoder,
            ("stage", Some(Unit::Seconds)),
            "Mean queueing delays that the network latency was computed from",
            lines.iter().flat_map(stages),
        )?;
        gauges(
            &mut encoder,
            ("throughput_per_second", None),
            "Requests (items of the unit) a second",
            lines
                .iter()
                .map(|line| (estimate(line), line.throughput_per_s)),
        )?;
        gauges(
            &mut encoder,
            ("connections", None),
            "Connections that were open at any time in the latest interval",
            lines
                .iter()
                .map(|line| (service(line), line.connections as f64)),
        )?;
        gauges(
            &mut encoder,
            ("confidence", None),
            "How far to trust the latency, 0 (guess) to 1",
            lines.iter().map(|line| (estimate(line), line.confidence)),
        )?;
        gauges(
            &mut encoder,
            ("nagle", None),
            "Whether Nagle's algorithm is in this state on the sockets of this end",
            lines.iter().flat_map(nagle_states),
        )?;
        encoder
            .encode_descriptor(
                "lost_events",
                "Events that this agent lost since it started",
                None,
                MetricType::Counter,
            )
            .and_then(|encoder| ConstCounter::new(state.lost_events).encode(encoder))?;
        if state.totals.is_empty() {
            return Ok(());
        }
        let mut family = encoder.encode_descriptor(
            "interval_latency",
            "Mean total latencies of the intervals since the agent started",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        state.totals.iter().try_for_each(|totals| {
            totals
                .histogram
                .encode(family.encode_family(&totals.labels)?)
        })
    }
}

fn gauges(
    encoder: &mut DescriptorEncoder,
    (name, unit): (&str, Option<Unit>),
    help: &str,
    values: impl Iterator<Item = (Labels, f64)>,
) -> fmt::Result {
    let mut values = values.peekable();
    if values.peek().is_none() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
    for (labels, value) in values {
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn latencies(line: &Line) -> impl Iterator<Item = (Labels, f64)> {
    let latency = &line.latency_ns;
    known(
        line,
        "part",
        [
            ("network", latency.network),
            ("turnaround", latency.turnaround),
            ("total", latency.total),
        ],
    )
}

fn stages(line: &Line) -> impl Iterator<Item = (Labels, f64)> {
    let stages = &line.stages_ns;
    known(
        line,
        "stage",
        [
            ("unacked", stages.unacked),
            ("unread_local", stages.unread_local),
            ("unread_remote", stages.unread_remote),
            ("ackdelay_remote", stages.ackdelay_remote),
        ],
    )
}

fn known<const N: usize>(
    line: &Line,
    key: &'static str,
    values: [(&'static str, Option<u64>); N],
) -> impl Iterator<Item = (Labels, f64)> {
    values
        .into_iter()
        .filter_map(move |(name, ns)| Some((with(estimate(line), key, name), seconds(ns?))))
}

fn nagle_states(line: &Line) -> impl Iterator<Item = (Labels, f64)> {
    [Nagle::On, Nagle::Off, Nagle::Mixed]
        .into_iter()
        .map(move |state| {
            let labels = with(service(line), "state", parts::nagle(state));
            (labels, f64::from(u8::from(line.nagle == state)))
        })
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
