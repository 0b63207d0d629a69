//! Load generators whose latencies can be trusted: an open loop for Redis, and closed loops for web
//! servers and memcached that keep the truth about each request (see [`TruthReport`]). With the feature
//! `experiments` also those that only the lab needs, QUIC and a client library of Redis among them.
//!
//! The open-loop generator is one busy thread on non-blocking sockets. Its arrival schedule is
//! fixed in advance and never waits for responses, so a slow server cannot hide its own delays
//! (no coordinated omission): latencies run from the *intended* send time. Each run checks itself
//! and says in its report whether it may be believed, and if not, why not.
//!
//! ```no_run
//! use batchwise_load::{Config, run};
//! use clap::Parser;
//! let config = Config::parse_from(["redis", "--addr", "127.0.0.1:6379", "--rate", "100k"]);
//! let outcome = run(&config, |_interval| Ok(()))?;
//! println!("{:?}", outcome.report.whole.latency_ns.mean);
//! # Ok::<(), anyhow::Error>(())
//! ```

mod arrival_check;
mod causal;
pub mod cli;
mod clock;
mod closed;
mod conclude;
mod config;
mod conn;
mod cpu;
mod engine;
#[cfg(feature = "experiments")]
pub mod experiments;
mod hdr;
pub mod memcached;
mod open;
mod payload;
mod phase;
mod progress;
mod rate;
mod recorder;
mod report;
mod resp;
mod run;
mod samples;
mod schedule;
mod send_cost;
mod setup;
mod tally;
mod units;
mod validity;
pub mod web;

pub use arrival_check::ArrivalCheck;
pub use causal::distribution::Distribution;
pub use causal::{Break, Options, TruthReport};
pub use conclude::Outcome;
pub use config::Config;
pub use hdr::write_hdr;
pub use rate::{Arrivals, Phase, Rate, random_seed};
pub use report::{Figures, Interval, LatencySummary, LatenessSummary, PhaseReport, Report};
pub use run::run;
