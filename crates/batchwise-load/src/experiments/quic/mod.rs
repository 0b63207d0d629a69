//! A QUIC client and the test server that it talks to: requests like HTTP/3's, each on a stream of
//! its own, in a small static tree of dependencies (the paper's §5.7). The framing is not HTTP/3's:
//! a vantage on the path sees only the lengths of encrypted packets, and those are alike.

mod client;
mod message;
mod server;
mod tls;

use anyhow::{Context, Result};

pub use client::{Config, run};
pub use server::{Server, ServerConfig};

/// Bytes in a response, at most.
const LARGEST: f64 = 1_000_000.0;

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the QUIC runtime")
}
