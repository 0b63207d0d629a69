//! The workloads that only experiments need, on the command line.

use std::io::{self, Write};

use anyhow::Result;
use clap::Subcommand;

use super::text::{human, latency, truth};
use super::{Load, examples};
use crate::experiments::downloads::{self, FetchReport, ServeReport};
use crate::experiments::incast::{self, AskReport as IncastReport};
use crate::experiments::lives::{self, ReceiveReport, SendReport};
use crate::experiments::multiplexed;
use crate::experiments::priority::{self, AskReport};
use crate::experiments::quic;
use crate::experiments::streams::{self, StreamsReport};

/// A workload that only experiments need.
#[derive(Debug, Subcommand)]
pub enum Workload {
    /// SET requests of many tasks on one connection, through a client library of Redis
    #[command(after_help = examples::MULTIPLEXED)]
    Multiplexed(Box<Load<multiplexed::Config>>),
    /// Requests over QUIC to `load quic-server`
    #[command(after_help = examples::QUIC)]
    Quic(Box<Load<quic::Config>>),
    /// The server for `load quic`
    QuicServer(quic::ServerConfig),
    /// Downloads whose records say when `load downloads-server` decided about them
    Downloads(Box<Load<downloads::FetchConfig>>),
    /// The server for `load downloads`, with several ways to write
    DownloadsServer(Box<Load<downloads::ServeConfig>>),
    /// Connections of random life, written to when TCP can send: does every byte arrive in time?
    Lives(Box<Load<lives::SendConfig>>),
    /// Small urgent requests beside a download on one HTTP/2 connection: when does the answer begin?
    Priority(Box<Load<priority::AskConfig>>),
    /// The server for `load priority`
    PriorityServer(priority::ServeConfig),
    /// Long flows or remote procedure calls over plain TCP: how much is carried
    Streams(Box<Load<streams::SendConfig>>),
    /// The server for `load streams`
    StreamsServer(Box<Load<streams::ServeConfig>>),
    /// The receiver for `load lives`
    LivesServer(Box<Load<lives::ReceiveConfig>>),
    /// One question to many senders at once: when is each answer there?
    Incast(Box<Load<incast::AskConfig>>),
    /// The senders for `load incast`
    IncastServer(incast::AnswerConfig),
}

impl Workload {
    /// Runs it and prints its report.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Multiplexed(load) => {
                let print = |interval: &_| load.format.print(interval, super::text::interval);
                let report = multiplexed::run(&load.config, print)?;
                load.format.print(&report, multiplexed_report)
            }
            Self::Quic(load) => load.format.print(&quic::run(&load.config)?, truth),
            Self::QuicServer(config) => serve(&config),
            Self::Downloads(load) => load
                .format
                .print(&downloads::fetch(&load.config)?, downloads_report),
            Self::DownloadsServer(load) => load
                .format
                .print(&downloads::serve(&load.config)?, downloads_server_report),
            Self::Lives(load) => load.format.print(&lives::send(&load.config)?, lives_report),
            Self::Priority(load) => load
                .format
                .print(&priority::ask(&load.config)?, priority_report),
            Self::PriorityServer(config) => priority::serve(&config),
            Self::Streams(load) => load
                .format
                .print(&streams::send(&load.config)?, streams_report),
            Self::StreamsServer(load) => load
                .format
                .print(&streams::serve(&load.config)?, streams_report),
            Self::LivesServer(load) => load
                .format
                .print(&lives::receive(&load.config)?, lives_server_report),
            Self::Incast(load) => load
                .format
                .print(&incast::ask(&load.config)?, incast_report),
            Self::IncastServer(config) => incast::answer(&config),
        }
    }
}

fn serve(config: &quic::ServerConfig) -> Result<()> {
    let server = quic::Server::start(config)?;
    let mut out = io::stdout().lock();
    writeln!(out, "listening on {}", server.addr())?;
    out.flush()?;
    drop(out);
    server.serve(config.duration);
    Ok(())
}

/// The report of `load multiplexed`.
fn multiplexed_report(out: &mut dyn Write, report: &multiplexed::Report) -> io::Result<()> {
    writeln!(
        out,
        "{} task(s) on {} connection(s); achieved {:.0}/s; {} requests, {} errors",
        report.tasks, report.connections, report.achieved_rps, report.requests, report.errors
    )?;
    latency(out, "latency", &report.latency_ns)
}

/// The report of `load downloads`.
fn downloads_report(out: &mut dyn Write, report: &FetchReport) -> io::Result<()> {
    writeln!(
        out,
        "{:.2} MB/s, {} downloads",
        report.bytes_per_s / 1e6,
        report.downloads
    )?;
    latency(out, "age of what arrives", &report.age_ns)?;
    latency(out, "ping", &report.ping_ns)
}

/// The report of `load downloads-server`.
fn downloads_server_report(out: &mut dyn Write, report: &ServeReport) -> io::Result<()> {
    if let Some(mode) = &report.window {
        writeln!(out, "window: {mode}")?;
    }
    let unsent = report
        .unsent_bytes
        .map_or("–".to_owned(), |b| format!("{b:.0} B"));
    writeln!(
        out,
        "{} bytes in {} writes, {} asked, {} waits, {:.2} s of CPU time; {unsent} waited a connection",
        report.bytes,
        report.writes,
        report.asked,
        report.waits,
        report.cpu_ns as f64 / 1e9,
    )
}

/// The report of `load streams` and of its server.
fn streams_report(out: &mut dyn Write, report: &StreamsReport) -> io::Result<()> {
    writeln!(
        out,
        "{:.1} MB/s written, {:.1} MB/s read, {:.0} requests/s; {} connections broken",
        report.written_per_s / 1e6,
        report.read_per_s / 1e6,
        report.requests_per_s,
        report.broken,
    )
}

/// The report of `load lives`.
fn lives_report(out: &mut dyn Write, report: &SendReport) -> io::Result<()> {
    writeln!(
        out,
        "{} lives: {} whole, {} reset, {} failed; {} waits, {} late, latest {}",
        report.lives,
        report.whole,
        report.reset,
        report.failed,
        report.waits,
        report.late,
        human(Some(report.latest_ns)),
    )?;
    match &report.why {
        Some(why) => writeln!(out, "the first that failed: {why}"),
        None => Ok(()),
    }
}

/// The report of `load lives-server`.
fn lives_server_report(out: &mut dyn Write, report: &ReceiveReport) -> io::Result<()> {
    writeln!(out, "{} lives", report.lives)
}

/// The report of `load priority`.
fn priority_report(out: &mut dyn Write, report: &AskReport) -> io::Result<()> {
    writeln!(out, "download {:.2} MB/s", report.bytes_per_s / 1e6)?;
    latency(out, "first byte", &report.first_byte_ns)
}

/// The report of `load incast`.
fn incast_report(out: &mut dyn Write, report: &IncastReport) -> io::Result<()> {
    let count = report.completions_ns.len();
    let at = |share: f64| {
        let place = (share * count as f64) as usize;
        human(report.completions_ns.get(place).copied())
    };
    writeln!(
        out,
        "{count} answers: p50 {}, p99 {}, longest {}; {} segments sent again, {} answers missing",
        at(0.5),
        at(0.99),
        human(report.completions_ns.last().copied()),
        report.retransmissions,
        report.incomplete,
    )
}
