//! The HTTP server for Prometheus, in one thread. Clients are not trusted: connections, headers and
//! time are bounded, bodies are never read, and an answer is encoded once for all that ask for it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::store::{Store, lock};
use super::{CPU, FAILURES, HEARTBEAT, Metrics, protobuf};

/// How OpenMetrics 1.0 text is called in HTTP.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Connections at a time. One more, and the oldest is closed: idle clients keep nobody out.
const MOST_CONNECTIONS: usize = 32;
/// Bytes of a request's head.
const LONGEST_HEAD: usize = 16 << 10;
/// The head must be there by then.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// The answer must have been read by then.
const CONNECTION_TIME: Duration = Duration::from_secs(10);
/// So many connections, which may bring one request each, are let in at once, and the next behind …
const AT_ONCE: usize = 5;
/// … this time: a flood costs little more CPU time than scrapes do, and a wake-up for all of them.
const PACE: Duration = Duration::from_millis(200);
/// So many wait to be let in. Those who come in a flood wait in vain anyway; others behind fewer of them.
const QUEUE: i32 = 16;
/// After the system refused a connection, which is most often for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the metrics at `/metrics` until it is dropped.
pub struct Server {
    #[cfg(test)]
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `address` ("127.0.0.1:9464", "[::]:9464") and answers from a thread of its own.
    pub fn bind<M: Metrics>(address: &str, store: &Store<M>) -> anyhow::Result<Self> {
        let wanted: SocketAddr = address.parse().map_err(|_| {
            anyhow!("--metrics {address}: not an ADDRESS:PORT such as 127.0.0.1:9464 or [::]:9464")
        })?;
        let listener = TcpListener::bind(wanted).map_err(|error| refused(wanted, &error))?;
        #[cfg(test)]
        let address = listener.local_addr()?;
        SockRef::from(&listener).listen(QUEUE)?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let page = Arc::new(Page::new(Arc::clone(store)));
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || runtime.block_on(serve(listener, page, stopped)))
            .context("cannot start the thread that serves metrics")?;
        Ok(Self {
            #[cfg(test)]
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Whatever clients do: the thread drops its connections and ends.
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been printed; there is nothing left to do about it.
            let _ = thread.join();
        }
    }
}

fn refused(address: SocketAddr, error: &io::Error) -> anyhow::Error {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => "the address is in use; choose another port",
        io::ErrorKind::AddrNotAvailable => "this machine has no such address",
        io::ErrorKind::PermissionDenied => "not permitted; choose a port above 1023",
        _ => return anyhow!("--metrics {address}: {error}"),
    };
    anyhow!("--metrics {address}: {remedy}")
}

async fn serve(listener: TcpListener, page: Arc<Page>, mut stop: oneshot::Receiver<()>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!("metrics are not served: {error}"),
    };
    let mut open = VecDeque::with_capacity(MOST_CONNECTIONS);
    let (mut since, mut let_in) = (Instant::now(), 0);
    loop {
        let accepted = tokio::select! {
            _ = &mut stop => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "a metrics client is not let in");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        open.retain(|connection: &tokio::task::AbortHandle| !connection.is_finished());
        if open.len() >= MOST_CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let connection = tokio::spawn(connection(stream, Arc::clone(&page)));
        open.push_back(connection.abort_handle());
        if since.elapsed() >= PACE {
            (since, let_in) = (Instant::now(), 0);
        }
        let_in += 1;
        if let_in >= AT_ONCE {
            tokio::select! {
                _ = &mut stop => return,
                () = sleep_until(since + PACE) => {}
            }
        }
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, page: Arc<Page>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer(&request, &page);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(LONGEST_HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(CONNECTION_TIME, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a metrics client"),
        Err(_) => tracing::debug!("a metrics client took too long"),
    }
}

/// What a client that sends this, and no more, is answered: for the fuzzer.
pub fn answer_to<M: Metrics>(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let page = Arc::new(Page::new(Store::<M>::default()));
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build()?.block_on(async {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(bytes).await?;
        client.shutdown().await?;
        connection(server, page).await;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await?;
        Ok(answer)
    })
}

fn answer(request: &Request<Incoming>, page: &Page) -> Response<Full<Bytes>> {
    let (status, kind, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let form = page.form(request.headers().get(ACCEPT));
            match form.body((page.version)()) {
                Ok(body) => (StatusCode::OK, form.kind, body),
                Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            }
        }
        (&Method::GET | &Method::HEAD, _) => {
            plain(StatusCode::NOT_FOUND, "the metrics are at /metrics\n")
        }
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is served\n"),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> (StatusCode, &'static str, Bytes) {
    (status, "text/plain; charset=utf-8", text.into())
}

/// A state in each form that is asked for.
struct Page {
    version: Box<dyn Fn() -> u64 + Send + Sync>,
    text: Form,
    protobuf: Form,
}

/// A version, encoded when it is first asked for.
struct Form {
    kind: &'static str,
    encode: Box<dyn Fn() -> anyhow::Result<Vec<u8>> + Send + Sync>,
    encoded: Mutex<Option<(u64, Bytes)>>,
}

impl Page {
    fn new<M: Metrics>(state: Store<M>) -> Self {
        let mut registry = Registry::with_prefix("batchwise");
        registry.register_collector(Box::new(Snapshot(Arc::clone(&state))));
        let text = move || {
            let mut text = String::new();
            text::encode(&mut text, &registry)?;
            Ok(text.into_bytes())
        };
        let same = Arc::clone(&state);
        Self {
            version: Box::new(move || lock(&state).version),
            text: Form::new(OPEN_METRICS, text),
            protobuf: Form::new(protobuf::CONTENT_TYPE, move || messages(&same)),
        }
    }

    /// Prometheus asks for messages where it takes native histograms.
    fn form(&self, accepted: Option<&HeaderValue>) -> &Form {
        let accepted = accepted.and_then(|accepted| accepted.to_str().ok());
        let takes = |accepted: &str| accepted.contains("proto=io.prometheus.client.MetricFamily");
        match accepted.is_some_and(takes) {
            true => &self.protobuf,
            false => &self.text,
        }
    }
}

impl Form {
    fn new(
        kind: &'static str,
        encode: impl Fn() -> anyhow::Result<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            kind,
            encode: Box::new(encode),
            encoded: Mutex::default(),
        }
    }

    /// Clients that do not read their answers keep one body between them, not one each. A version that comes meanwhile
    /// is encoded too, and encoded again when it is asked for.
    fn body(&self, version: u64) -> anyhow::Result<Bytes> {
        let mut encoded = lock(&self.encoded);
        if let Some((_, body)) = encoded.as_ref().filter(|(of, _)| *of == version) {
            return Ok(body.clone());
        }
        let body = Bytes::from((self.encode)()?);
        *encoded = Some((version, body.clone()));
        Ok(body)
    }
}

/// All families as messages.
fn messages<M: Metrics>(state: &Store<M>) -> anyhow::Result<Vec<u8>> {
    let state = lock(state);
    let mut page = Vec::new();
    for family in M::FAMILIES {
        protobuf::append(&mut page, family, &state.metrics)?;
    }
    protobuf::append(&mut page, &HEARTBEAT, &state.heartbeat_ns)?;
    protobuf::append(&mut page, &CPU, &state.cpu_seconds)?;
    protobuf::append(&mut page, &FAILURES, &state.failures)?;
    Ok(page)
}

/// Encodes the state as it is at the time.
struct Snapshot<M>(Store<M>);

impl<M> fmt::Debug for Snapshot<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Snapshot")
    }
}

impl<M: Metrics> Collector for Snapshot<M> {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let state = lock(&self.0);
        let mut families = M::FAMILIES.iter();
        families.try_for_each(|family| family.encode(&mut encoder, &state.metrics))?;
        HEARTBEAT.encode(&mut encoder, &state.heartbeat_ns)?;
        CPU.encode(&mut encoder, &state.cpu_seconds)?;
        FAILURES.encode(&mut encoder, &state.failures)
    }
}
