//! An agent at each end: what it says of a load, what it says that it takes, and what the kernel says
//! that it takes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use batchwise_core::sense::report::{Estimator, Line, Side, Tails};
use batchwise_testbed::host::Host;
use batchwise_testbed::process::{cpu_time, now_ns};
use batchwise_testbed::topology::TwoHosts;
use batchwise_testbed::watcher::{WatchSpec, Watcher};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::clients::Truth;
use crate::Context;
use crate::stats::weighted_quantile;

/// Between two lines.
const INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks at the agents' CPU time.
const LOOK: Duration = Duration::from_millis(100);

/// How many latencies stand for a line's percentiles.
const DRAWS: u32 = 4_000;

/// What one end's agent said over the measured time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Share of one CPU, as it says: mean over time, and of the worst line.
    pub cost: f64,
    pub cost_max: f64,
    /// CPU time of its process, share of one CPU: its own part of `cost`, by the kernel.
    pub agent_cpu: Option<f64>,
    /// Share of the traffic that was counted.
    pub coverage: f64,
    /// Of most of the requests.
    pub estimator: Estimator,
    pub lines: usize,
    /// Requests a second.
    pub throughput_per_s: f64,
    /// ns.
    pub mean_ns: Option<f64>,
    pub p50_ns: Option<f64>,
    pub p99_ns: Option<f64>,
    /// How many requests percentiles are of.
    pub matched: u64,
    pub lost_events: u64,
}

/// CPU time that both agents had used, at times, ns since the Unix epoch.
pub type Spent = Vec<(u64, [Duration; 2])>;

/// At the client and at the server.
pub struct Agents([Watcher; 2]);

pub const SIDES: [Side; 2] = [Side::Client, Side::Server];

impl Agents {
    /// With this budget, or the command's own.
    pub fn start(
        context: &Context,
        hosts: &TwoHosts,
        port: u16,
        cost: Option<&str>,
    ) -> Result<Self> {
        let start = |host: &Host| {
            let spec = WatchSpec {
                ports: &[port],
                interval: INTERVAL,
                units: None,
                exchange: false,
                cgroup: Some(host.cgroup()),
                cost,
            };
            Watcher::start(&context.command, host, &spec, &context.stop)
        };
        Ok(Self([start(&hosts.client)?, start(&hosts.server)?]))
    }

    /// Does `work`; gives also what the agents used of the CPU meanwhile.
    pub fn during<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Spent)> {
        let (over, pids) = (AtomicBool::new(false), self.0.each_ref().map(Watcher::pid));
        thread::scope(|scope| {
            let looks = scope.spawn(|| look(&over, pids));
            let found = work();
            over.store(true, Ordering::Relaxed);
            let looks = looks
                .join()
                .map_err(|_| anyhow!("looking at agents failed"))??;
            Ok((found?, looks))
        })
    }

    /// Ends both; gives what they said of the measured time.
    pub fn finish(self, truth: &Truth, spent: &Spent) -> Result<[Option<End>; 2]> {
        let (from, to) = (truth.from_ts_ns, truth.to_ts_ns);
        let mut ends = [None, None];
        for (i, lines) in self.lines()?.iter().enumerate() {
            let end = End::of(&inside(lines, SIDES[i], from, to));
            let agent_cpu = share(spent, i, from, to);
            ends[i] = end.map(|end| End { agent_cpu, ..end });
        }
        Ok(ends)
    }

    /// Ends both; gives all that they said.
    pub fn lines(self) -> Result<[Vec<Line>; 2]> {
        let mut said = [Vec::new(), Vec::new()];
        for (lines, mut watcher) in said.iter_mut().zip(self.0) {
            watcher.check()?;
            *lines = watcher.finish();
        }
        Ok(said)
    }
}

fn look(over: &AtomicBool, [client, server]: [Pid; 2]) -> Result<Spent> {
    let mut looks = Spent::new();
    while !over.load(Ordering::Relaxed) {
        looks.push((now_ns(), [cpu_time(client)?, cpu_time(server)?]));
        thread::sleep(LOOK);
    }
    Ok(looks)
}

/// What an agent took of a CPU between the looks nearest to these times.
fn share(spent: &Spent, agent: usize, from: u64, to: u64) -> Option<f64> {
    let nearest = |ts: u64| spent.iter().min_by_key(|(at, _)| at.abs_diff(ts));
    let (before, after) = (nearest(from)?, nearest(to)?);
    let used = after.1[agent].saturating_sub(before.1[agent]);
    (before.0 < after.0).then(|| used.as_nanos() as f64 / (after.0 - before.0) as f64)
}

/// Latencies (with weights that add up to `weight`) that have the percentiles of a line, for percentiles over several
/// lines. In between, and below the median, they are as with an exponential tail in their logarithm: linear between them, one line
/// with a stall would have far too many long ones.
fn drawn(tails: &Tails, weight: f64) -> Vec<(f64, f64)> {
    let known = [
        (0.5, tails.p50),
        (0.9, tails.p90),
        (0.99, tails.p99),
        (0.999, tails.p999),
    ];
    let known = known
        .into_iter()
        .map_while(|(share, ns)| Some((-(1.0_f64 - share).ln(), (ns?.max(1) as f64).ln())));
    let known: Vec<_> = known.collect();
    let at = |share: f64| {
        let x = -(1.0 - share).ln();
        let above = known.iter().position(|(known, _)| *known >= x);
        let between = match above.unwrap_or(known.len()) {
            0 => known.get(..2),
            n => known.get(n - 1..=n),
        };
        let ln = match between {
            Some([(s, a), (t, b)]) => a + (b - a) * (x - s) / (t - s),
            _ => known[known.len() - 1].1,
        };
        ln.exp()
    };
    let draws = if known.is_empty() { 0 } else { DRAWS };
    let shares = (0..draws).map(|i| (f64::from(i) + 0.5) / f64::from(DRAWS));
    shares
        .map(|share| (at(share), weight / f64::from(DRAWS)))
        .collect()
}

/// The lines wholly inside the time, or, if none is, those that overlap it.
pub fn inside(lines: &[Line], side: Side, from: u64, to: u64) -> Vec<&Line> {
    let begin = |line: &Line| line.ts_ns.saturating_sub(line.interval_ns);
    let own = lines.iter().filter(|line| line.side == side);
    let overlap: Vec<_> = own
        .filter(|line| line.ts_ns > from && begin(line) < to)
        .collect();
    let whole = overlap.iter().copied();
    let whole: Vec<_> = whole
        .filter(|line| begin(line) >= from && line.ts_ns <= to)
        .collect();
    if whole.is_empty() { overlap } else { whole }
}

impl End {
    /// What lines say together; `None` of none.
    pub fn of(used: &[&Line]) -> Option<Self> {
        let time = |line: &Line| line.interval_ns as f64;
        let items = |line: &Line| line.throughput_per_s * time(line);
        let over_time = |value: fn(&Line) -> f64| {
            let sum: f64 = used.iter().map(|line| value(line) * time(line)).sum();
            sum / used.iter().map(|line| time(line)).sum::<f64>()
        };
        let totals: Vec<_> = used
            .iter()
            .filter_map(|line| Some((line.latency_ns.total? as f64, items(line))))
            .collect();
        let weights: f64 = totals.iter().map(|(_, weight)| weight).sum();
        let sum: f64 = totals.iter().map(|(ns, weight)| ns * weight).sum();
        let requests: Vec<_> = used
            .iter()
            .flat_map(|line| drawn(&line.tails_ns, items(line)))
            .collect();
        let most = |estimator| -> f64 {
            let of = used.iter().filter(|line| line.estimator == estimator);
            of.map(|line| items(line)).sum()
        };
        let estimators = used.iter().map(|line| line.estimator);
        Some(Self {
            cost: over_time(|line| line.cost),
            cost_max: used.iter().map(|line| line.cost).fold(0.0, f64::max),
            agent_cpu: None,
            coverage: over_time(|line| line.coverage),
            estimator: estimators.max_by(|&a, &b| most(a).total_cmp(&most(b)))?,
            lines: used.len(),
            throughput_per_s: over_time(|line| line.throughput_per_s),
            mean_ns: (weights > 0.0).then_some(sum / weights),
            p50_ns: weighted_quantile(&requests, 0.5),
            p99_ns: weighted_quantile(&requests, 0.99),
            matched: used.iter().map(|line| line.matched).sum(),
            lost_events: used.last()?.lost_events,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batchwise_core::sense::report::{Latency, Nagle, Stages, Unit};

    fn line(ts_ns: u64, rate: f64, estimator: Estimator, cost: f64) -> Line {
        Line {
            ts_ns,
            interval_ns: 100,
            service: "10.77.0.1:6379".into(),
            netns: 0,
            side: Side::Client,
            process: None,
            advice: None,
            connection: None,
            vantage: "socket".into(),
            estimator,
            view: None,
            unit: Unit::Sends,
            connections: 1,
            confidence: 1.0,
            throughput_per_s: rate,
            why: None,
            stderr_ns: Latency::default(),
            latency_ns: Latency {
                total: Some(ts_ns),
                ..Latency::default()
            },
            stages_ns: Stages::default(),
            tails_ns: Tails::default(),
            matched: 10,
            under_way: Some(0),
            oldest_ns: None,
            nagle: Nagle::Off,
            cost,
            coverage: 1.0,
            lost_events: 0,
        }
    }

    #[test]
    fn lines_inside_the_time_count_by_their_requests_and_their_length() {
        let lines = [
            line(100, 9.0, Estimator::Local, 1.0), // begins before
            line(200, 1.0, Estimator::Local, 0.01),
            line(300, 3.0, Estimator::Matched, 0.03),
            line(400, 9.0, Estimator::Local, 1.0), // ends after
        ];
        let end = End::of(&inside(&lines, Side::Client, 50, 350)).unwrap();
        assert_eq!((end.lines, end.cost_max), (2, 0.03));
        assert!((end.cost - 0.02).abs() < 1e-12 && end.throughput_per_s == 2.0);
        assert_eq!(end.mean_ns, Some(275.0));
        assert_eq!((end.estimator, end.matched), (Estimator::Matched, 20));
        assert_eq!(End::of(&inside(&lines, Side::Server, 50, 350)), None);
    }

    #[test]
    fn a_line_longer_than_the_time_is_better_than_none() {
        let lines = [line(200, 1.0, Estimator::Local, 0.01)];
        assert_eq!(inside(&lines, Side::Client, 120, 180).len(), 1);
        assert!(inside(&lines, Side::Client, 200, 300).is_empty());
    }

    #[test]
    fn percentiles_over_lines_are_those_of_all_their_requests() {
        let tails = |p50, p99| Tails {
            p50: Some(p50),
            p90: Some(p50),
            p99: Some(p99),
            p999: None,
        };
        let one = drawn(&tails(100, 1_000), 1.0);
        let near = |found: Option<f64>, ns: f64| found.is_some_and(|f| (f / ns - 1.0).abs() < 0.02);
        assert!(near(weighted_quantile(&one, 0.5), 100.0));
        assert!(near(weighted_quantile(&one, 0.99), 1_000.0));
        // one slow second of ten raises the percentile of all
        let nine = drawn(&tails(100, 100), 9.0);
        let slow = drawn(&tails(5_000, 5_000), 1.0);
        let all = [nine, slow].concat();
        assert!(near(weighted_quantile(&all, 0.5), 100.0));
        assert!(near(weighted_quantile(&all, 0.99), 5_000.0));
        assert!(drawn(&Tails::default(), 1.0).is_empty());
    }

    #[test]
    fn the_agents_cpu_time_is_that_between_the_looks_nearest_to_the_time() {
        let look = |at, ns| (at, [Duration::ZERO, Duration::from_nanos(ns)]);
        let spent = vec![look(0, 500), look(100, 500), look(200, 510), look(300, 900)];
        assert_eq!(share(&spent, 1, 95, 210), Some(0.1));
        assert_eq!(share(&spent, 0, 95, 210), Some(0.0));
        assert_eq!(share(&spent, 1, 200, 200), None);
    }
}
