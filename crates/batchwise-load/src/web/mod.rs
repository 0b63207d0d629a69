//! A web client like a browser: pages whose objects refer to each other, over persistent HTTP/1.1
//! connections with a few pipelined requests each (the paper's §5.1).

mod browser;
mod files;
mod http;
mod site;

use std::sync::Arc;

use crate::Error;
use crate::causal::distribution::Distribution;
use crate::causal::driver::{Driven, drive};
use crate::causal::options::{check_in_flight, check_rate};
use crate::causal::pace::Pace;
use crate::causal::report::{Context, conclude};
use crate::causal::{Options, TruthReport};
use crate::setup::open_streams;
use browser::{Browser, Requests};
pub use site::{Description, ObjectType, Site};

/// A run of the web client.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server and the connections.
    pub options: Options,
    /// What the server serves.
    pub site: Description,
    /// Requests in flight on each connection, at most.
    pub in_flight: usize,
    /// The pause between two pages, ns.
    pub think: Distribution,
    /// Requests a second over all connections; if given, pages begin by a schedule, not after
    /// `think`.
    pub rate: Option<f64>,
    /// Pages on a connection, a geometric mean; then it is closed, and another one is opened for
    /// the next page. One that is lost is replaced. Connections last when `None`.
    pub pages_per_connection: Option<f64>,
    /// Write all requests that become possible together with one call.
    pub coalesce: bool,
    /// Accept compressed responses.
    pub gzip: bool,
}

impl Config {
    /// The site that comes with batchwise, four requests in flight, and persons that look at a
    /// page for about a second.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            site: Description::standard(),
            in_flight: 4,
            think: Distribution::LogNormal {
                median: 1e9,
                sigma: 0.8,
            },
            rate: None,
            pages_per_connection: None,
            coalesce: false,
            gzip: true,
        }
    }
}

/// Runs the web client. An overloaded or vanishing server is no error but an invalid report.
pub fn run(config: &Config) -> Result<TruthReport, Error> {
    let options = &config.options;
    options.check()?;
    check_rate(config.rate)?;
    check_in_flight(config.in_flight)?;
    if config.pages_per_connection.is_some_and(|pages| pages < 1.0) {
        let text = "the pages on a connection must be 1 or more";
        return Err(Error::Config(text.into()));
    }
    let site = Site::build(&config.site)?;
    let pace = match config.rate {
        Some(rate) => Pace::rate(rate / site.objects_per_page(), options.connections),
        None => Pace::Think(config.think),
    };
    let requests = Requests::new(&site, options.addr, config.gzip);
    let (site, requests) = (Arc::new(site), Arc::new(requests));
    let streams = open_streams(options.addr, options.connections, true)?;
    let browser = |number: u64| {
        let (site, requests) = (Arc::clone(&site), Arc::clone(&requests));
        Browser::new(
            site,
            requests,
            pace,
            config.in_flight,
            config.pages_per_connection,
            options.seed ^ number,
        )
    };
    let browsers = (0..).map(browser);
    let driven = drive(
        options,
        config.coalesce,
        streams.into_iter().zip(browsers).collect(),
    )?;
    let Driven {
        dialogues,
        tally,
        clock,
        cpu,
        elapsed,
    } = &driven;
    let context = Context {
        workload: "web",
        connections: options.connections,
        target_rps: config.rate,
        pages: Some(dialogues.iter().map(|browser| browser.pages).sum()),
        seed: options.seed,
    };
    Ok(conclude(&context, tally, clock, cpu, *elapsed))
}
