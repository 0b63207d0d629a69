//! `batchwise-load web` and `web-site`.

use std::path::PathBuf;

use batchwise_load::Distribution;
use batchwise_load::distribution::parse_times;
use batchwise_load::web::{Config, Description, Site, run as run_load};
use clap::Args;

use super::Switch;
use super::truth::{TruthArgs, parse_constant_rate};

pub const EXAMPLES: &str = "\
Examples:
  A folder for nginx to serve (its keepalive_requests must be higher than what a connection will
  ask for):
    batchwise load web-site --out /srv/www
  Ten persons, each looking at a page for about a second:
    batchwise load web --addr 10.0.0.1:80 --connections 10 --duration 30s --log truth.csv
  2000 requests a second, page by page, as far as the server keeps up:
    batchwise load web --addr 10.0.0.1:80 --connections 10 --rate 2000 --format json";

/// A load of pages.
#[derive(Debug, Args)]
pub struct WebArgs {
    #[command(flatten)]
    truth: TruthArgs,
    /// Requests a second over all connections: pages begin by a schedule, as far as the pages
    /// before them are complete
    #[arg(long, value_parser = parse_constant_rate, conflicts_with = "think")]
    rate: Option<f64>,
    /// Requests in flight on each connection, at most
    #[arg(long, default_value_t = 4, value_name = "N")]
    in_flight: usize,
    /// The site's description, as `load web-site` leaves it in its folder; the one that comes
    /// with batchwise if left out
    #[arg(long, value_name = "FILE.toml")]
    site: Option<PathBuf>,
    /// Pause between two pages: none, 20ms, 10ms..30ms, exp:20ms, lognormal:MEDIAN:SIGMA
    #[arg(long, value_name = "DIST", default_value = "lognormal:1s:0.8",
          value_parser = parse_times)]
    think: Distribution,
    /// Pages on a connection, as a geometric mean; then it is closed and another one is opened, and
    /// one that is lost is replaced, too. Without it connections last
    #[arg(long, value_name = "N")]
    pages_per_connection: Option<f64>,
    /// Write requests that become possible together with one call, not each with its own
    #[arg(long)]
    coalesce: bool,
    /// Accept compressed responses
    #[arg(long, value_enum, default_value = "on")]
    gzip: Switch,
}

/// A folder of files.
#[derive(Debug, Args)]
pub struct WebSiteArgs {
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

fn describe(file: Option<&PathBuf>) -> anyhow::Result<Description> {
    Ok(match file {
        Some(path) => Description::read(path)?,
        None => Description::standard(),
    })
}

/// Runs the load and prints its report.
pub fn run(args: &WebArgs) -> anyhow::Result<()> {
    let config = Config {
        options: args.truth.options(),
        site: describe(args.site.as_ref())?,
        in_flight: args.in_flight,
        think: args.think,
        rate: args.rate,
        pages_per_connection: args.pages_per_connection,
        coalesce: args.coalesce,
        gzip: matches!(args.gzip, Switch::On),
    };
    args.truth.print(&run_load(&config)?)
}

/// Writes the files.
pub fn write_site(args: &WebSiteArgs) -> anyhow::Result<()> {
    let mut description = describe(args.site.as_ref())?;
    description.seed = args.seed.unwrap_or(description.seed);
    let (files, bytes) = Site::write(&description, &args.out)?;
    let folder = args.out.display();
    println!("{folder}: {files} files, {bytes} bytes, and site.toml");
    Ok(())
}
