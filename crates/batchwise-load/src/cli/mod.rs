//! The load generators on the command line: a workload is a subcommand.

mod examples;
mod text;

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::web::{Description, Site};
use crate::{
    Config, downloads, incast, lives, memcached, multiplexed, priority, quic, streams, web,
    write_hdr,
};

/// Load a service and measure its latency honestly, from the intended send times
#[derive(Debug, Parser)]
#[command(version, after_long_help = examples::ALL)]
struct Cli {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Debug, Subcommand)]
enum Workload {
    /// SET and GET requests to a Redis server
    #[command(after_help = examples::REDIS)]
    Redis(Box<Load<Config>>),
    /// SET requests of many tasks on one connection, through a client library of Redis
    #[command(after_help = examples::MULTIPLEXED)]
    Multiplexed(Box<Load<multiplexed::Config>>),
    /// Pages of objects from a web server, as a browser asks for them
    #[command(after_help = examples::WEB)]
    Web(Box<Load<web::Config>>),
    /// Write the files that `load web` asks for
    WebSite(WebSite),
    /// Gets and sets to a memcached server, a fixed number in flight
    #[command(after_help = examples::MEMCACHED)]
    Memcached(Box<Load<memcached::Config>>),
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

/// A load, and how it is reported.
#[derive(Debug, Args)]
struct Load<C: Args> {
    #[command(flatten)]
    config: C,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// One object on a line; with --progress one more for each interval, before it
    #[value(alias = "jsonl")]
    Json,
    /// For people
    Text,
}

/// A folder of files.
#[derive(Debug, Args)]
struct WebSite {
    /// Where to write the files; it is made if it does not exist
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The site's description; the one that comes with batchwise if left out
    #[arg(long, value_name = "FILE.toml")]
    site: Option<PathBuf>,
    /// Another seed than the description's: give `load web` the site.toml that is written then
    #[arg(long)]
    seed: Option<u64>,
}

/// The command line, for manual pages and completions.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs a load and prints its report. It is no error when the report says that it is not valid; it is
/// one if there is no report.
pub fn run() -> Result<()> {
    match Cli::parse().workload {
        Workload::Redis(load) => redis(&load),
        Workload::Multiplexed(load) => {
            let print = |interval: &_| load.format.print(interval, text::interval);
            let report = multiplexed::run(&load.config, print)?;
            load.format.print(&report, text::multiplexed)
        }
        Workload::Web(load) => load.format.print(&web::run(&load.config)?, text::truth),
        Workload::WebSite(args) => write_site(&args),
        Workload::Memcached(load) => {
            let report = memcached::run(&load.config)?;
            load.format.print(&report, text::truth)
        }
        Workload::Quic(load) => load.format.print(&quic::run(&load.config)?, text::truth),
        Workload::QuicServer(config) => serve(&config),
        Workload::Downloads(load) => load
            .format
            .print(&downloads::fetch(&load.config)?, text::downloads),
        Workload::DownloadsServer(load) => load
            .format
            .print(&downloads::serve(&load.config)?, text::downloads_server),
        Workload::Lives(load) => load.format.print(&lives::send(&load.config)?, text::lives),
        Workload::Priority(load) => load
            .format
            .print(&priority::ask(&load.config)?, text::priority),
        Workload::PriorityServer(config) => priority::serve(&config),
        Workload::Streams(load) => load
            .format
            .print(&streams::send(&load.config)?, text::streams),
        Workload::StreamsServer(load) => load
            .format
            .print(&streams::serve(&load.config)?, text::streams),
        Workload::LivesServer(load) => load
            .format
            .print(&lives::receive(&load.config)?, text::lives_server),
        Workload::Incast(load) => load.format.print(&incast::ask(&load.config)?, text::incast),
        Workload::IncastServer(config) => incast::answer(&config),
    }
}

impl Format {
    fn print<T: Serialize>(
        self,
        report: &T,
        text: fn(&mut dyn Write, &T) -> io::Result<()>,
    ) -> Result<()> {
        let mut out = io::stdout().lock();
        let written = match self {
            Self::Json => serde_json::to_writer(&mut out, report)
                .map_err(io::Error::from)
                .and_then(|()| writeln!(out)),
            Self::Text => text(&mut out, report),
        };
        written
            .and_then(|()| out.flush())
            .context("cannot write the report")
    }
}

fn redis(load: &Load<Config>) -> Result<()> {
    let Load { config, format } = load;
    let outcome = crate::run(config, |interval| format.print(interval, text::interval))?;
    if let Some(path) = &config.hdr {
        write_hdr(path, &outcome)?;
    }
    format.print(&outcome.report, text::report)
}

fn write_site(args: &WebSite) -> Result<()> {
    let mut description = Description::read(args.site.as_deref())?;
    description.seed = args.seed.unwrap_or(description.seed);
    let (files, bytes) = Site::write(&description, &args.out)?;
    let folder = args.out.display();
    println!("{folder}: {files} files, {bytes} bytes, and site.toml");
    Ok(())
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
