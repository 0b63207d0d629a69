//! The client: one connection with a download, and a small request now and then.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::time::{sleep, sleep_until};

use super::{BULK, URGENT};
use crate::report::LatencySummary;
use crate::samples::Samples;
use crate::units::{parse_addr, parse_duration};

/// A client of `load priority-server`.
#[derive(Clone, Debug, Parser)]
pub struct AskConfig {
    /// The server's address
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    pub addr: SocketAddr,
    /// From one small request to the next
    #[arg(long, default_value = "100ms", value_parser = parse_duration)]
    pub every: Duration,
    /// Length of the measurement, after the warm-up
    #[arg(long, default_value = "5s", value_parser = parse_duration)]
    pub duration: Duration,
    /// Before the measurement
    #[arg(long, default_value = "1s", value_parser = parse_duration)]
    pub warmup: Duration,
}

/// What the client saw in the measured window.
#[derive(Clone, Debug, Serialize)]
pub struct AskReport {
    /// From a small request to its response's head.
    pub first_byte_ns: LatencySummary,
    /// Bytes of the download, a second.
    pub bytes_per_s: f64,
}

/// Bytes that the server may send ahead of what the client has read: more than any link of the experiment
/// holds, so that TCP alone is what holds it back.
const WINDOW: u32 = 1 << 30;

/// Runs the client.
pub fn ask(config: &AskConfig) -> Result<AskReport> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(config))
}

async fn run(config: &AskConfig) -> Result<AskReport> {
    let stream = TcpStream::connect(config.addr).await;
    let stream = stream.with_context(|| format!("connecting to {}", config.addr))?;
    stream.set_nodelay(true)?;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async { drop(connection.await) });
    let mut bulk = get(&mut sender, config.addr, BULK).await?.into_body();
    let from = tokio::time::Instant::now() + config.warmup;
    let end = from + config.duration;
    let download = async {
        let mut bytes = 0;
        loop {
            tokio::select! {
                biased;
                () = sleep_until(end) => return Ok(bytes),
                frame = bulk.frame() => {
                    let Some(frame) = frame else { bail!("the download has ended") };
                    if tokio::time::Instant::now() >= from {
                        bytes += frame?.data_ref().map_or(0, Bytes::len) as u64;
                    }
                }
            }
        }
    };
    let urgent = async {
        let mut first = Samples::default();
        sleep_until(from).await;
        while tokio::time::Instant::now() < end {
            let asked = Instant::now();
            let response = get(&mut sender, config.addr, URGENT).await?;
            first.record(asked.elapsed().as_nanos() as u64);
            response.into_body().collect().await?;
            sleep(config.every.saturating_sub(asked.elapsed())).await;
        }
        Ok(first.latency())
    };
    let (bytes, first_byte_ns) = tokio::try_join!(download, urgent)?;
    Ok(AskReport {
        first_byte_ns,
        bytes_per_s: bytes as f64 / config.duration.as_secs_f64(),
    })
}

async fn get(
    sender: &mut SendRequest<Empty<Bytes>>,
    host: SocketAddr,
    path: &str,
) -> Result<hyper::Response<hyper::body::Incoming>> {
    sender.ready().await?;
    let uri = format!("http://{host}{path}");
    Ok(sender
        .send_request(Request::get(uri).body(Empty::new())?)
        .await?)
}
