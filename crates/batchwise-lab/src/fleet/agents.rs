//! Agents of a fleet, in this process: each serves what `watch` would of its machine's services, on an address of its own.

use std::net::Ipv4Addr;

use anyhow::Result;
use batchwise::simulated::Agent;
use batchwise_core::sense::report::Line;
use batchwise_core::sense::tails::Histogram;
use batchwise_testbed::host::Host;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution as _, LogNormal};
use serde_json::json;

pub const SERVICES: usize = 20;
/// The one that is slow, and on so many machines of a hundred.
pub const SLOW: &str = "cart";
const SLOW_PERCENT: usize = 3;
const PORT: u16 = 9464;
/// Requests of a service in an interval.
const REQUESTS: u32 = 200;
/// Buckets of a histogram of up to 1 s, in µs.
const BUCKETS: usize = 512;

const NAMES: [&str; SERVICES] = [
    "gateway", "login", "catalog", "search", SLOW, "checkout", "payment", "stock", "shipping",
    "mail", "images", "reviews", "prices", "ads", "sessions", "queue", "metrics", "audit", "redis",
    "postgres",
];

pub struct Fleet {
    agents: Vec<(String, Agent)>,
    random: StdRng,
}

impl Fleet {
    /// In a host's namespace.
    pub fn start(host: &Host, agents: usize) -> Result<Self> {
        let start = |machine: usize| {
            let address = address(machine);
            Ok((address.clone(), Agent::serve(&address)?))
        };
        Ok(Self {
            agents: host.inside(|| (0..agents).map(start).collect::<Result<Vec<_>>>())?,
            random: StdRng::seed_from_u64(1),
        })
    }

    pub fn addresses(&self) -> Vec<&str> {
        self.agents
            .iter()
            .map(|(address, _)| &address[..])
            .collect()
    }

    /// Machines whose [`SLOW`] service is.
    pub fn slow(&self) -> usize {
        (0..self.agents.len())
            .filter(|machine| is_slow(*machine))
            .count()
    }

    /// An interval is over at all of them.
    pub fn interval(&mut self) -> Result<()> {
        for (machine, (_, agent)) in self.agents.iter().enumerate() {
            let of = |service| latencies(machine, service, &mut self.random);
            let latencies: Vec<_> = (0..SERVICES).map(of).collect();
            let lines = latencies.iter().enumerate();
            let lines = lines.map(|(service, latencies)| line(machine, service, latencies));
            agent.interval(&lines.collect::<Result<Vec<_>>>()?, &latencies)?;
        }
        Ok(())
    }
}

/// Below 127.0.0.0/8, which needs no configuration.
fn address(machine: usize) -> String {
    let [_, _, high, low] = (machine as u32 + 1).to_be_bytes();
    format!("{}:{PORT}", Ipv4Addr::new(127, 1, high, low))
}

fn is_slow(machine: usize) -> bool {
    machine % 100 < SLOW_PERCENT
}

/// Log-normal, around 60 µs to 5 ms; where it is slow, around 43 ms.
fn latencies(machine: usize, service: usize, random: &mut StdRng) -> Histogram {
    let median_us = match is_slow(machine) && NAMES[service] == SLOW {
        true => 43_000.0,
        false => 60.0 * 1.26_f64.powi(service as i32),
    };
    let mut of = Histogram {
        over: vec![0; BUCKETS],
        shift: 10,
        ..Histogram::default()
    };
    let bounds: Vec<_> = of.over().map(|(ns, _)| ns).collect();
    let spread = LogNormal::new(f64::ln(median_us * 1e3), 0.4).ok();
    for _ in 0..REQUESTS {
        let ns = spread.map_or(0.0, |spread| spread.sample(random)) as u64;
        let bucket = bounds.partition_point(|bound| *bound < ns).min(BUCKETS - 1);
        of.over[bucket] += 1;
        of.sum += ns;
    }
    // some machines have more to do
    let times = random.random_range(1..4);
    of.over.iter_mut().for_each(|count| *count *= times);
    of.sum *= times;
    of
}

fn line(machine: usize, service: usize, latencies: &Histogram) -> Result<Line> {
    let requests = latencies.requests().max(1);
    let mean = latencies.sum / requests;
    let quantile = |share| latencies.quantile(share);
    let name = NAMES[service];
    let advice = (mean > 40_000_000).then(
        || json!({"id": "BW-NAGLE-HOLDS", "text": "held by Nagle's algorithm", "share": 0.9}),
    );
    let line = json!({
        "ts_ns": 0, "interval_ns": 1_000_000_000, "service": format!("10.{}.{}.1:{}", machine / 256, machine % 256, 8000 + service),
        "netns": 4_026_531_840_u32, "side": "server",
        "process": {"pid": 1000 + service, "comm": name, "unit": format!("{name}.service"), "container": null, "pod_uid": null},
        "vantage": "socket", "estimator": "turns", "view": null, "unit": "sends", "connections": 8, "confidence": 0.25,
        "throughput_per_s": requests as f64, "advice": advice,
        "latency_ns": {"network": 40_000, "turnaround": mean.saturating_sub(40_000), "total": mean},
        "stages_ns": {"unacked": 30_000, "unsent": 1_000, "held_by_nagle": 0, "held_by_delack": 0, "unread_local": 5_000,
            "unread_remote": null, "ackdelay_remote": null},
        "tails_ns": {"p50": quantile(0.5), "p90": quantile(0.9), "p99": quantile(0.99), "p999": null},
        "under_way": 1, "oldest_ns": 1_000, "nagle": "off", "cost": 0.005, "coverage": 1.0, "lost_events": 0
    });
    Ok(serde_json::from_value(line)?)
}
