//! A run's load: both clients, and what they saw together.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_testbed::nginx;
use batchwise_testbed::segment::VIP;
use serde::Deserialize;

use super::Stage;
use crate::Context;
use crate::passive::workload::{Service, Workload};
use crate::stats::quantile;
use crate::truth::Request;

const CONNECTIONS: u32 = 100;

/// What both clients saw.
#[derive(Default)]
pub struct Done {
    /// Responses a second.
    pub achieved_rps: f64,
    /// Of each response, ns.
    pub latencies: Vec<f64>,
    /// Broken connections, and those that could not be opened.
    pub broken_connections: u64,
    pub why_invalid: Vec<String>,
    /// Most that a client's thread waited for its CPU, as a share of the time.
    pub cpu_wait_share: f64,
    /// When the last one began, ns since 1970.
    pub from_ns: u64,
}

/// The part of what a load reports that is used.
#[derive(Deserialize)]
struct Report {
    achieved_rps: f64,
    broken_connections: u64,
    connect_failures: u64,
    cpu_wait_ns: Option<u64>,
    why_invalid: Vec<String>,
    measured_from_ts_ns: u64,
}

impl Stage {
    /// Has both clients make `rate` requests a second together, or as many as there can be, with so
    /// many pages on a connection (mean); all that is drawn at random follows from `seed`.
    pub fn load(
        &self,
        context: &Context,
        rate: Option<f64>,
        pages: u32,
        duration: Duration,
        seed: u64,
    ) -> Result<Done> {
        let share = rate.map(|rate| rate / self.segment.clients.len() as f64);
        let think = if rate.is_none() { " --think none" } else { "" };
        let start = |(host, number)| {
            let seed = seed * 100 + number;
            let options =
                format!("--in-flight 4 --pages-per-connection {pages} --seed {seed}{think} --site");
            let options = options.split(' ').map(str::to_owned);
            let workload = Workload {
                service: Service::Web,
                duration,
                connections: CONNECTIONS,
                rate: share.map(|rate| rate.round() as u64),
                options: options
                    .chain([self.description.display().to_string()])
                    .collect(),
            };
            let to = SocketAddr::from((VIP, nginx::PORT));
            workload.start_on(&context.command, host, to)
        };
        let clients = self.segment.clients.iter().zip(1..).map(start);
        let clients: Vec<_> = clients.collect::<Result<_>>()?;
        let mut done = Done::default();
        for client in clients {
            let (report, requests) = client.finish(&context.stop)?;
            let report = Report::deserialize(report).context("in the load's report")?;
            done.latencies.extend(requests.iter().map(Request::latency));
            done.achieved_rps += report.achieved_rps;
            done.broken_connections += report.broken_connections + report.connect_failures;
            let waited = report.cpu_wait_ns.unwrap_or(0) as f64 / duration.as_nanos() as f64;
            done.cpu_wait_share = done.cpu_wait_share.max(waited);
            done.why_invalid.extend(report.why_invalid);
            done.from_ns = report.measured_from_ts_ns;
        }
        Ok(done)
    }
}

impl Done {
    /// A quantile of the latency, ns.
    pub fn quantile(&self, q: f64) -> Result<f64> {
        quantile(&self.latencies, q).context("no request was answered")
    }
}
