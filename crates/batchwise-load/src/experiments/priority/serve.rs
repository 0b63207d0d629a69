//! The server: hyper, as anybody would write it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_window::{WindowedStream, not_sent_low_water};
use clap::{Parser, ValueEnum};
use futures_util::stream;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use super::BULK;
use crate::units::{parse_addr, parse_duration};

/// An HTTP/2 server of a download without an end, and of small responses.
#[derive(Clone, Debug, Parser)]
pub struct ServeConfig {
    /// Where to listen, such as 127.0.0.1:7073
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    pub addr: SocketAddr,
    /// What its connections are wrapped in
    #[arg(long, value_enum, default_value = "none")]
    pub wrap: Wrap,
    /// For how long
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub duration: Duration,
}

/// What a connection is wrapped in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wrap {
    /// Nothing: what servers do.
    None,
    /// TCP_NOTSENT_LOWAT at 16 KiB.
    Lowat,
    /// `WindowedStream`.
    Window,
}

/// Bytes of a frame of the download.
const FRAME: usize = 16_384;
/// Bytes of a small response.
const SMALL: usize = 200;

type Body = BoxBody<Bytes, Infallible>;

/// Serves until the time is over.
pub fn serve(config: &ServeConfig) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(config.addr).await;
        let listener = listener.with_context(|| format!("listening at {}", config.addr))?;
        // the end of the time is the end of it
        let _over = tokio::time::timeout(config.duration, accept(&listener, config.wrap)).await;
        Ok(())
    })
}

async fn accept(listener: &TcpListener, wrap: Wrap) -> Result<Infallible> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        match wrap {
            Wrap::None => begin(stream),
            Wrap::Lowat => {
                not_sent_low_water(stream.as_fd(), 16_384)?;
                begin(stream);
            }
            Wrap::Window => begin(WindowedStream::new(stream)),
        }
    }
}

fn begin(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let server = http2::Builder::new(TokioExecutor::new());
    let connection = server.serve_connection(TokioIo::new(stream), service_fn(answer));
    // a client that goes away is no news
    tokio::spawn(async { drop(connection.await) });
}

async fn answer(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let body = match request.uri().path() {
        BULK => {
            let frame = || Ok(Frame::data(Bytes::from_static(&[7; FRAME])));
            StreamBody::new(stream::repeat_with(frame)).boxed()
        }
        _ => Full::new(Bytes::from_static(&[1; SMALL])).boxed(),
    };
    Ok(Response::new(body))
}
