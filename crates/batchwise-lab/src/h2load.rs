//! h2load as a client of an HTTP server, and the log that it writes of its requests.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::lines::Printing;

use crate::Context;

/// For it to end.
const GRACE: Duration = Duration::from_secs(5);

/// What it does.
pub struct Load<'a> {
    pub url: &'a str,
    pub connections: u32,
    /// Requests a second on each; `None`: each asks as soon as it is answered.
    pub rate: Option<u32>,
    pub time: Duration,
}

/// A request: when it began, ns since the Unix epoch, and what it took, ns.
pub type Request = (u64, f64);

/// Runs it in a host, with its log in `dir`.
pub fn run(context: &Context, host: &Host, dir: &Path, load: &Load<'_>) -> Result<Vec<Request>> {
    let log = dir.join("requests");
    let mut command = Command::new("h2load");
    command.args(["--h1", "-c", &load.connections.to_string()]);
    command.args(["-D", &load.time.as_secs().to_string()]);
    if let Some(rate) = load.rate {
        command.args(["--rps", &rate.to_string()]);
    }
    command.arg("--log-file").arg(&log).arg(load.url);
    let mut client = Printing::start_text(host, "h2load", command, Role::Workload)?;
    let status = client.wait(&context.stop, load.time + GRACE)?;
    ensure!(
        status.success(),
        "h2load failed ({status}): {}",
        client.text()
    );
    let text = fs::read_to_string(&log).context("h2load's log")?;
    let _ = fs::remove_file(&log);
    let parse = |line: &str| {
        let mut columns = line.split_whitespace();
        let (begin, took) = (columns.next()?.parse::<u64>().ok()?, columns.nth(1)?);
        Some((begin * 1_000, took.parse::<f64>().ok()? * 1e3))
    };
    Ok(text.lines().filter_map(parse).collect())
}
