//! Experiment `fleet`: a thousand agents with twenty services each, in one process, and a real Prometheus that scrapes them with
//! the packaged rules. What it costs Prometheus, how long each panel of the fleet's dashboard takes, and whether it finds what is wrong.

mod agents;
mod prometheus;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use batchwise_testbed::topology::TwoHosts;
use nix::sys::resource::{Resource, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::applications::{Missing, lacking};
use crate::engine::text::percent;
use crate::engine::{Experiment, Report, Results, Round, Run, Table, Turn, two_hosts};
use crate::stats::median;
use agents::{Fleet, SERVICES, SLOW};
use prometheus::{INTERVAL, Prometheus};

pub struct FleetExperiment;

const DASHBOARD: &str = include_str!("../../../../packaging/grafana/batchwise-fleet.json");
/// Each panel is asked for so often.
const ASKED: usize = 5;
/// Of descriptors: an agent has a handful.
const DESCRIPTORS: u64 = 20_000;

/// What Prometheus keeps of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    Native,
    Both,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Panel {
    pub title: String,
    pub query: String,
    /// Median of its times, ns.
    pub took_ns: f64,
    pub series: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub kept: Kept,
    pub agents: usize,
    /// That were scraped in the end.
    pub up: f64,
    pub series: f64,
    pub samples_per_s: f64,
    /// The most that Prometheus had, bytes.
    pub memory: u64,
    /// CPU time of Prometheus, as a share of one CPU.
    pub cpu: f64,
    /// The slowest of a hundred scrapes, and what all rules take, s.
    pub scrape_s: f64,
    pub rules_s: f64,
    pub panels: Vec<Panel>,
    /// Machines on which the slow service is, and those that the recorded advice says.
    pub slow: usize,
    pub said: f64,
    /// Its 99th percentile over all machines, s.
    pub p99_s: f64,
}

#[derive(Debug, Serialize)]
pub struct Summary {
    /// The slowest panel, ns, for each point.
    slowest_ns: Vec<f64>,
    /// Whether every agent was scraped and the slow service was found on every machine where it is.
    found: bool,
    missing: std::collections::BTreeMap<String, String>,
}

/// Settling, and what is measured.
fn time(quick: bool) -> Duration {
    INTERVAL * if quick { 6 } else { 20 }
}

impl Experiment for FleetExperiment {
    type Stage = TwoHosts;
    type Arm = Kept;
    type Point = Point;
    type More = Missing;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "fleet"
    }

    fn about(&self) -> &'static str {
        "a thousand agents and a real Prometheus: what the fleet's dashboard costs, and what it finds"
    }

    fn rounds(&self, _quick: bool) -> Result<Vec<Round<Kept>>> {
        Ok(vec![Round::in_order([Kept::Native, Kept::Both])])
    }

    fn stage(&self, _context: &Context) -> Result<(TwoHosts, Value)> {
        two_hosts("fleet")
    }

    fn prepare(&self, run: &mut Run<'_, Missing>, _stage: &mut TwoHosts) -> Result<()> {
        if let Some(why) = lacking("prometheus") {
            let remedy = "`go install github.com/prometheus/prometheus/cmd/prometheus@latest`";
            let why = format!("{why}: {remedy}");
            run.more.missing.insert("fleet".into(), why);
        }
        setrlimit(Resource::RLIMIT_NOFILE, DESCRIPTORS, DESCRIPTORS)
            .context("raising the limit of descriptors")
    }

    fn measure(
        &self,
        run: &mut Run<'_, Missing>,
        stage: &mut TwoHosts,
        turn: Turn<'_, Kept>,
    ) -> Result<Vec<Point>> {
        if !run.more.missing.is_empty() {
            return Ok(Vec::new());
        }
        let (context, host) = (run.context, &stage.server);
        let agents = if context.quick { 100 } else { 1_000 };
        let mut fleet = Fleet::start(host, agents)?;
        fleet.interval()?;
        let classic = *turn.arm == Kept::Both;
        let prometheus = Prometheus::start(host, &fleet.addresses(), classic, &context.stop)?;
        let begin = Instant::now();
        while begin.elapsed() < time(context.quick) {
            let next = Instant::now() + INTERVAL;
            fleet.interval()?;
            let rest = next.saturating_duration_since(Instant::now());
            context.stop.sleep(rest)?;
        }
        let cpu = prometheus.cpu_time()?.as_secs_f64() / begin.elapsed().as_secs_f64();
        let slow = format!("{{process=\"{SLOW}\"}}");
        let value = |query: &str| prometheus.value(query);
        Ok(vec![Point {
            kept: *turn.arm,
            agents,
            up: value("sum(up{job=\"batchwise\"})")?,
            series: value("sum(prometheus_tsdb_head_series)")?,
            samples_per_s: value("sum(rate(prometheus_tsdb_head_samples_appended_total[1m]))")?,
            cpu,
            scrape_s: value("quantile(0.99, scrape_duration_seconds{job=\"batchwise\"})")?,
            rules_s: value("sum(prometheus_rule_group_last_duration_seconds)")?,
            panels: panels(&prometheus, time(context.quick))?,
            slow: fleet.slow(),
            said: value(&format!("sum(batchwise:fleet_advice:machines{slow})"))?,
            p99_s: value(&format!("batchwise:fleet_latency_seconds:p99_5m{slow}"))?,
            memory: prometheus.memory()?,
        }])
    }

    fn describe(&self, point: &Point) -> String {
        format!(
            "{:?}: {:.0} series, {} MiB, scrapes {:.2} s, rules {:.2} s, the slowest panel {:.2} s, {:.0} of {} slow machines found",
            point.kept,
            point.series,
            point.memory >> 20,
            point.scrape_s,
            point.rules_s,
            slowest(point) / 1e9,
            point.said,
            point.slow
        )
    }

    fn summary(&self, results: &Results<Point, Missing>) -> Summary {
        let points = &results.points;
        let is_found = |p: &Point| p.up as usize == p.agents && p.said as usize == p.slow;
        Summary {
            slowest_ns: points.iter().map(slowest).collect(),
            found: !points.is_empty() && points.iter().all(is_found),
            missing: results.more.missing.clone(),
        }
    }

    fn report(&self, results: &Results<Point, Missing>, summary: &Summary) -> Report {
        let mut report = Report::new(
            "Fleet: a thousand machines in one Prometheus",
            format!(
                "Agents in one process, each on an address of its own with {SERVICES} services, serve what `watch` serves; Prometheus scrapes all of them every {} s, with \
                 the packaged rules. On three machines of a hundred one service is held by Nagle's algorithm.",
                INTERVAL.as_secs()
            ),
        )
        .table(Table::of(
            &results.points,
            &[
                ("histograms", &|p| format!("{:?}", p.kept).to_lowercase()),
                ("agents", &|p| format!("{:.0} of {}", p.up, p.agents)),
                ("series", &|p| format!("{:.0}", p.series)),
                ("samples/s", &|p| format!("{:.0}", p.samples_per_s)),
                ("memory", &|p| format!("{} MiB", p.memory >> 20)),
                ("CPU", &|p| percent(Some(p.cpu))),
                ("a scrape, p99", &|p| format!("{:.3} s", p.scrape_s)),
                ("rules", &|p| format!("{:.2} s", p.rules_s)),
                ("slow machines found", &|p| format!("{:.0} of {}", p.said, p.slow)),
                ("p99 of that service", &|p| format!("{:.1} ms", p.p99_s * 1e3)),
            ],
        ));
        for point in &results.points {
            report = report
                .heading(format!(
                    "Panels, {} histograms",
                    format!("{:?}", point.kept).to_lowercase()
                ))
                .table(Table::of(
                    &point.panels,
                    &[
                        ("panel", &|p| p.title.clone()),
                        ("query", &|p| p.query.clone()),
                        ("series", &|p| p.series.to_string()),
                        ("takes", &|p| format!("{:.0} ms", p.took_ns / 1e6)),
                    ],
                ));
        }
        report.left_out(&summary.missing)
    }
}

fn slowest(point: &Point) -> f64 {
    point
        .panels
        .iter()
        .map(|panel| panel.took_ns)
        .fold(0.0, f64::max)
}

/// Each query of the dashboard, as it is when it is opened.
fn panels(prometheus: &Prometheus<'_>, over: Duration) -> Result<Vec<Panel>> {
    let dashboard: Value = serde_json::from_str(DASHBOARD)?;
    let list = |of: &Value, name: &str| of[name].as_array().cloned().unwrap_or_default();
    let mut panels = Vec::new();
    for panel in list(&dashboard, "panels") {
        for target in list(&panel, "targets") {
            let query = target["expr"].as_str().unwrap_or_default();
            let query = [
                ("$side", "server"),
                ("$process", ".*"),
                ("$__rate_interval", "1m"),
            ]
            .iter()
            .fold(query.to_owned(), |query, (name, value)| {
                query.replace(name, value)
            });
            let mut took = Vec::new();
            let mut series = 0;
            for _ in 0..ASKED {
                let (found, time) = prometheus.range(&query, over)?;
                series = found.len();
                took.push(time.as_nanos() as f64);
            }
            panels.push(Panel {
                title: panel["title"].as_str().unwrap_or_default().to_owned(),
                query,
                took_ns: median(&took).unwrap_or_default(),
                series,
            });
        }
    }
    Ok(panels)
}
