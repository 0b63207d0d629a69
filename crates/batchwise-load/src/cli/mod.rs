//! The load generators on the command line: a workload is a subcommand.

mod examples;
#[cfg(feature = "experiments")]
mod experiments;
mod text;

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::web::{Description, Site};
use crate::{Config, memcached, web, write_hdr};

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
    /// Pages of objects from a web server, as a browser asks for them
    #[command(after_help = examples::WEB)]
    Web(Box<Load<web::Config>>),
    /// Write the files that `load web` asks for
    WebSite(WebSite),
    /// Gets and sets to a memcached server, a fixed number in flight
    #[command(after_help = examples::MEMCACHED)]
    Memcached(Box<Load<memcached::Config>>),
    #[cfg(feature = "experiments")]
    #[command(flatten)]
    Experiments(experiments::Workload),
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
        Workload::Web(load) => load.format.print(&web::run(&load.config)?, text::truth),
        Workload::WebSite(args) => write_site(&args),
        Workload::Memcached(load) => {
            let report = memcached::run(&load.config)?;
            load.format.print(&report, text::truth)
        }
        #[cfg(feature = "experiments")]
        Workload::Experiments(workload) => workload.run(),
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
