//! Pushes metrics to whoever takes OTLP over HTTP, from a thread of its own: one that is away costs a counter. What
//! OpenTelemetry's environment variables say of headers, certificates and times holds.

use std::env;
use std::fs;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prost::Message as _;
use ureq::http::Uri;
use ureq::tls::{Certificate, ClientCert, PrivateKey, TlsConfig};

use super::otlp::{Attributes, Export};
use super::store::{Store, lock};
use super::{CPU, FAILURES, HEARTBEAT, Metrics};
use crate::frame::clock::wall_clock_ns;
use crate::frame::companion::Companion;
use crate::frame::tls::roots;

/// Between two exports, and for how long each may take, unless the environment says otherwise.
const INTERVAL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Pushes until it is dropped.
pub struct Pusher {
    _companion: Companion,
}

impl Pusher {
    pub fn start<M: Metrics>(url: &str, store: &Store<M>) -> anyhow::Result<Self> {
        let to = Collector::new(url)?;
        let every = milliseconds("OTEL_METRIC_EXPORT_INTERVAL")?.unwrap_or(INTERVAL);
        let (of_all, started) = (resource(), wall_clock_ns());
        let store = store.clone();
        lock(&store).failures = Some(0);
        let push = move |stopped: Receiver<()>| {
            let mut is_away = false;
            // the last values are wanted, too
            loop {
                let is_last = stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout);
                if is_last && is_away {
                    return;
                }
                let mut export = Export::new(of_all.clone(), started, wall_clock_ns());
                let state = lock(&store);
                M::FAMILIES
                    .iter()
                    .for_each(|family| export.add(family, &state.metrics));
                export.add(&HEARTBEAT, &state.heartbeat_ns);
                export.add(&CPU, &state.cpu_seconds);
                export.add(&FAILURES, &state.failures);
                drop(state);
                let sent = to.send(&export.request());
                if let Err(error) = &sent {
                    *lock(&store).failures.get_or_insert_default() += 1;
                    if !is_away {
                        tracing::warn!("{} takes no metrics: {error:#}", to.uri);
                    }
                }
                is_away = sent.is_err();
                if is_last {
                    return;
                }
            }
        };
        Ok(Self {
            _companion: Companion::start("otlp", push)?,
        })
    }
}

/// Where they go.
struct Collector {
    uri: Uri,
    headers: Attributes,
    agent: ureq::Agent,
}

impl Collector {
    fn new(url: &str) -> anyhow::Result<Self> {
        let uri: Uri = full(url).parse().with_context(|| format!("--otlp {url}"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
            bail!("--otlp {url}: not a URL such as http://127.0.0.1:4318");
        }
        let mut tls = TlsConfig::builder();
        if let Some(pem) = file("CERTIFICATE")? {
            tls = tls.root_certs(roots(&pem));
        }
        if let (Some(chain), Some(key)) = (file("CLIENT_CERTIFICATE")?, file("CLIENT_KEY")?) {
            let of = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE";
            let certificate = Certificate::from_pem(&chain).context(of)?;
            let key = PrivateKey::from_pem(&key).context("OTEL_EXPORTER_OTLP_CLIENT_KEY")?;
            tls = tls.client_cert(Some(ClientCert::new_with_certs(&[certificate], key)));
        }
        let timeout = milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT")?.unwrap_or(TIMEOUT);
        let config = ureq::Agent::config_builder();
        let config = config.timeout_global(Some(timeout)).tls_config(tls.build());
        Ok(Self {
            uri,
            headers: pairs(variable("HEADERS").as_deref().unwrap_or_default()),
            agent: config.build().into(),
        })
    }

    fn send(&self, request: &ExportMetricsServiceRequest) -> anyhow::Result<()> {
        let mut post = self
            .agent
            .post(&self.uri)
            .content_type("application/x-protobuf");
        for (key, value) in &self.headers {
            post = post.header(key, value);
        }
        post.send(&request.encode_to_vec()[..])?;
        Ok(())
    }
}

/// A base URL gets the path that metrics have.
fn full(url: &str) -> String {
    let after = url.split_once("://").map_or(url, |(_, rest)| rest);
    match after.split_once('/') {
        None => format!("{url}/v1/metrics"),
        Some((_, "")) => format!("{url}v1/metrics"),
        Some(_) => url.to_owned(),
    }
}

/// Of an exporter, for metrics or for all.
fn variable(name: &str) -> Option<String> {
    let [own, any] = ["METRICS_", ""].map(|kind| format!("OTEL_EXPORTER_OTLP_{kind}{name}"));
    [own, any]
        .iter()
        .find_map(|name| env::var(name).ok())
        .filter(|value| !value.is_empty())
}

fn file(name: &str) -> anyhow::Result<Option<Vec<u8>>> {
    let path = variable(name);
    let read = |path| {
        fs::read(&path).with_context(|| format!("{path}, as OTEL_EXPORTER_OTLP_{name} says"))
    };
    path.map(read).transpose()
}

fn milliseconds(name: &str) -> anyhow::Result<Option<Duration>> {
    let value = env::var(name).ok().filter(|value| !value.is_empty());
    let read = |value: String| {
        let number = value.parse().ok().filter(|ms| *ms > 0);
        number
            .map(Duration::from_millis)
            .with_context(|| format!("{name}={value}: not a number of milliseconds"))
    };
    value.map(read).transpose()
}

/// The host's name, by which instances of a service differ, and what the environment says: that goes first.
fn resource() -> Attributes {
    let mut all = pairs(&env::var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy();
    for key in ["host.name", "service.instance.id"] {
        if all.iter().all(|(known, _)| known != key) {
            all.push((key.to_owned(), name.clone().into_owned()));
        }
    }
    all
}

/// `key1=value1,key2=value2`, values encoded as in URLs (W3C Baggage).
fn pairs(text: &str) -> Attributes {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(key, value)| (key.trim().to_owned(), decoded(value.trim())))
        .collect()
}

fn decoded(value: &str) -> String {
    percent_encoding::percent_decode_str(value)
        .decode_utf8_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_gets_the_path_of_metrics_and_any_other_path_stays() {
        for (given, sent_to) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/metrics"),
            ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/metrics"),
            (
                "https://a/api/v1/otlp/v1/metrics",
                "https://a/api/v1/otlp/v1/metrics",
            ),
        ] {
            assert_eq!(full(given), sent_to);
        }
    }

    #[test]
    fn what_the_environment_lists_is_pairs_with_encoded_values() {
        let found = pairs("Authorization=Basic%20YTpi, x-scope-orgid = 7 ,,nothing");
        let expected = [("Authorization", "Basic YTpi"), ("x-scope-orgid", "7")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_url_is_refused_with_an_example() {
        for wrong in ["collector", "ftp://a", "http://"] {
            let refused = Collector::new(wrong).map(|_| ()).expect_err(wrong);
            assert!(format!("{refused:#}").contains("--otlp"), "{refused:#}");
        }
    }
}
