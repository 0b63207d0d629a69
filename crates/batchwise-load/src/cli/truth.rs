//! What the closed loops with a truth log have in common on the command line.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use batchwise_load::units::{parse_duration, parse_rate};
use batchwise_load::{Options, TruthReport};
use clap::Args;

use super::{Format, human, parse_addr, write_latency, write_validity};

/// The options of all of them.
#[derive(Debug, Args)]
pub struct TruthArgs {
    /// The server's address, such as 127.0.0.1:80
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    addr: SocketAddr,
    /// Connections
    #[arg(long, default_value_t = 1, value_name = "N")]
    connections: usize,
    /// How long requests are sent
    #[arg(long, default_value = "5s", value_parser = parse_duration)]
    duration: Duration,
    /// Write the truth about each request: connection, sent_ns, response_ns, triggered_ns,
    /// request_bytes, response_bytes; ns since 1970
    #[arg(long, value_name = "FILE.csv")]
    log: Option<PathBuf>,
    /// Repeats what another run drew at random; random if left out
    #[arg(long)]
    seed: Option<u64>,
    /// Run the client on this CPU; it needs one of its own
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

impl TruthArgs {
    /// For the library.
    pub fn options(&self) -> Options {
        Options {
            addr: self.addr,
            connections: self.connections,
            duration: self.duration,
            seed: self.seed.unwrap_or_else(batchwise_load::random_seed),
            log: self.log.clone(),
            cpu: self.cpu,
        }
    }

    /// Prints the report of a run.
    pub fn print(&self, report: &TruthReport) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        let written = match self.format {
            Format::Json => serde_json::to_writer(&mut out, report)
                .map_err(io::Error::from)
                .and_then(|()| writeln!(out)),
            Format::Text => write_text(&mut out, report),
        };
        written
            .and_then(|()| out.flush())
            .context("cannot write the report")
    }
}

/// Reads a rate that does not climb.
pub fn parse_constant_rate(text: &str) -> Result<f64, String> {
    let rate = parse_rate(text)?;
    match rate.from == rate.to {
        true => Ok(rate.from),
        false => Err("a closed loop has one rate, such as 2500 or 10k".to_owned()),
    }
}

fn write_text(out: &mut impl Write, report: &TruthReport) -> io::Result<()> {
    write!(
        out,
        "{} connection(s), seed {}; offered {:.0}/s, achieved {:.0}/s; {} requests, {} errors",
        report.connections,
        report.seed,
        report.offered_rps,
        report.achieved_rps,
        report.requests,
        report.errors
    )?;
    match report.pages {
        Some(pages) => writeln!(out, ", {pages} pages")?,
        None => writeln!(out)?,
    }
    if report.connections_opened != report.connections || !report.breaks.is_empty() {
        writeln!(
            out,
            "{} connections opened, {} broken, {} could not be opened",
            report.connections_opened, report.broken_connections, report.connect_failures
        )?;
    }
    write_latency(out, "request to response", &report.latency_ns)?;
    write_latency(out, "request to request", &report.triggered_ns)?;
    write_latency(out, "the client's own part", &report.client_think_ns)?;
    writeln!(
        out,
        "{} responses caused a request; the client used {} of its CPU and waited for it for {} \
         in all",
        report.triggers,
        report
            .cpu_share
            .map_or("an unknown share".to_owned(), |share| format!(
                "{:.0} %",
                share * 100.0
            )),
        human(report.cpu_wait_ns)
    )?;
    write_validity(out, report.valid, &report.why_invalid)
}
