//! What the commands that stay and look at a service, `watch` and `tune`, begin with: the ports that
//! make it, and the signals that end them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Which service is meant.
#[derive(Clone, Debug, Args)]
pub struct PortArgs {
    /// The service's port: local at its servers, remote at its clients (may be repeated)
    #[arg(
        long = "port",
        value_name = "PORT",
        required = true,
        value_delimiter = ','
    )]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    numbers: Vec<u16>,
}

impl PortArgs {
    /// The ports; at least one.
    pub fn numbers(&self) -> &[u16] {
        &self.numbers
    }
}

/// A flag that SIGINT and SIGTERM set from now on.
///
/// # Errors
/// The signals cannot be caught.
pub fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("catching signals")?;
    }
    Ok(stop)
}

/// Reads `500ms`, `5s`, `10us`, `0ns`, `1m 30s`.
///
/// # Errors
/// It is none; the message has an example.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|why| format!("{why}; write a number with a unit, such as 10us, 500ms or 5s"))
}
