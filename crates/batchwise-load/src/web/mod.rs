//! A web client like a browser: pages whose objects refer to each other, over persistent HTTP/1.1
//! connections with a few pipelined requests each (the paper's §5.1).

mod browser;
mod files;
mod http;
mod site;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, ensure};
use clap::{ArgAction, Parser};

use crate::causal::conclude::conclude;
use crate::causal::distribution::{Distribution, parse_times};
use crate::causal::driver::drive;
use crate::causal::options::check_load;
use crate::causal::pace::Pace;
use crate::causal::{Options, TruthReport};
use crate::setup::open_streams;
use crate::units::{on_off, parse_constant_rate};
use browser::{Browser, Requests};
pub use site::{Description, ObjectType, Site};

/// A run of the web client.
#[derive(Clone, Debug, Parser)]
pub struct Config {
    /// The server and the connections.
    #[command(flatten)]
    pub options: Options,
    /// Requests a second over all connections: pages begin by a schedule, as far as the pages
    /// before them are complete
    #[arg(long, value_parser = parse_constant_rate, conflicts_with = "think")]
    pub rate: Option<f64>,
    /// Requests in flight on each connection, at most
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub in_flight: usize,
    /// The site's description, as `load web-site` leaves it in its folder; the one that comes
    /// with batchwise if left out
    #[arg(long, value_name = "FILE.toml")]
    pub site: Option<PathBuf>,
    /// Pause between two pages: none, 20ms, 10ms..30ms, exp:20ms, lognormal:MEDIAN:SIGMA
    #[arg(long, value_name = "DIST", default_value = "lognormal:1s:0.8",
          value_parser = parse_times)]
    pub think: Distribution,
    /// Pages on a connection, as a geometric mean; then it is closed and another one is opened, and
    /// one that is lost is replaced, too. Without it connections last
    #[arg(long, value_name = "N")]
    pub pages_per_connection: Option<f64>,
    /// Write requests that become possible together with one call, not each with its own
    #[arg(long)]
    pub coalesce: bool,
    /// Accept compressed responses
    #[arg(long, default_value = "on", value_parser = on_off(), action = ArgAction::Set)]
    pub gzip: bool,
}

/// Runs the web client. An overloaded or vanishing server is no error but an invalid report.
pub fn run(config: &Config) -> Result<TruthReport> {
    let options = &config.options;
    options.check()?;
    check_load(config.rate, config.in_flight)?;
    ensure!(
        config.pages_per_connection.is_none_or(|pages| pages >= 1.0),
        "the pages on a connection must be 1 or more"
    );
    let site = Site::build(&Description::read(config.site.as_deref())?)?;
    let pace = match config.rate {
        Some(rate) => Pace::rate(rate / site.objects_per_page(), options.connections),
        None => Pace::Think(config.think),
    };
    let requests = Arc::new(Requests::new(&site, options.addr, config.gzip));
    let site = Arc::new(site);
    let streams = open_streams(options.addr, options.connections, true)?;
    let browser = |number: u64| {
        let (site, requests) = (Arc::clone(&site), Arc::clone(&requests));
        Browser::new(site, requests, pace, config, options.seed ^ number)
    };
    let browsers = (0..).map(browser);
    let links = streams.into_iter().zip(browsers).collect();
    let (browsers, measured) = drive(options, config.coalesce, links)?;
    let pages = browsers.iter().map(|browser| browser.pages).sum();
    conclude("web", options, config.rate, Some(pages), measured)
}
