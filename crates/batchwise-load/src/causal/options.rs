//! What all workloads with a truth log are asked, on their command lines.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

use crate::random_seed;
use crate::units::{parse_addr, parse_duration};

/// Whom to load, for how long, and where the truth goes.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The server's address, such as 127.0.0.1:80
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    pub addr: SocketAddr,
    /// Connections
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub connections: usize,
    /// How long requests are sent
    #[arg(long, default_value = "5s", value_parser = parse_duration)]
    pub duration: Duration,
    /// Write the truth about each request: connection, sent_ns, response_ns, triggered_ns,
    /// request_bytes, response_bytes; ns since 1970
    #[arg(long, value_name = "FILE.csv")]
    pub log: Option<PathBuf>,
    /// Repeats what another run drew at random; random if left out
    #[arg(long, default_value_t = random_seed(), hide_default_value = true)]
    pub seed: u64,
    /// Run the client on this CPU; it needs one of its own
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
}

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
        let longest = Duration::from_secs(86400);
        ensure!(
            (Duration::from_millis(1)..=longest).contains(&self.duration),
            "the duration must be 1ms to a day"
        );
        ensure!(
            (1..=60_000).contains(&self.connections),
            "the number of connections must be 1 to 60000"
        );
        Ok(())
    }
}

/// Refuses a rate that is no rate, and a number of requests in flight that makes no sense.
pub(crate) fn check_load(rate: Option<f64>, in_flight: usize) -> Result<()> {
    ensure!(
        rate.is_none_or(|rate| rate > 0.0 && rate <= 50e6),
        "the rate must be above 0 and at most 50m requests/s"
    );
    ensure!(
        (1..=65536).contains(&in_flight),
        "the requests in flight must be 1 to 65536"
    );
    Ok(())
}
