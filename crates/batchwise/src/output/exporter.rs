//! Serving metrics to Prometheus: an HTTP server at `/metrics` that encodes a state at every scrape.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use batchwise_core::sense::report::Side;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use tiny_http::{Header, Method, Request, Response, Server};

use super::parts;

/// What OpenMetrics 1.0 text is called in HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What tells a sample from the others of its family.
pub type Labels = Vec<(&'static str, String)>;

/// What is served.
pub trait Metrics: Default + Send + 'static {
    /// Writes all families, as they are now; their names get the prefix `batchwise_`.
    ///
    /// # Errors
    /// The text cannot be written.
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result;
}

/// Serves the metrics until it is dropped.
pub struct Exporter<M> {
    state: Arc<Mutex<M>>,
    server: Arc<Server>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl<M: Metrics> Exporter<M> {
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
        let state = Arc::new(Mutex::new(M::default()));
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

    /// Changes what is served.
    pub fn update(&self, change: impl FnOnce(&mut M)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Where it listens.
    #[cfg(test)]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl<M> fmt::Debug for Exporter<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl<M> Drop for Exporter<M> {
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

/// Encodes the state at the time of a scrape.
struct Snapshot<M>(Arc<Mutex<M>>);

impl<M> fmt::Debug for Snapshot<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Snapshot")
    }
}

impl<M: Metrics> Collector for Snapshot<M> {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.encode(&mut encoder)
    }
}

/// The labels of one side of a service.
pub fn service(server: String, side: Side) -> Labels {
    vec![("service", server), ("side", parts::side(side).to_owned())]
}

/// `labels` and one more.
pub fn with(mut labels: Labels, key: &'static str, value: &str) -> Labels {
    labels.push((key, value.to_owned()));
    labels
}

/// Metrics are in base units.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// One family of gauges; without values it is absent.
///
/// # Errors
/// The text cannot be written.
pub fn gauges(
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

/// One family of counters, whose name gets `_total`; without values it is absent.
///
/// # Errors
/// The text cannot be written.
pub fn counters(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (Labels, u64)>,
) -> fmt::Result {
    let mut values = values.peekable();
    if values.peek().is_none() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in values {
        let family = family.encode_family(&labels)?;
        ConstCounter::new(value).encode(family)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "exporter_testing.rs"]
pub mod testing;
