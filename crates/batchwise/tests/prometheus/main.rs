//! The dashboards and rules of `packaging/`, with a real Prometheus that scrapes real agents: every
//! query of every panel answers, and alerts are raised. Needs root and Prometheus: `make test-metrics`.

mod balance;
mod panels;
mod server;

use std::collections::BTreeSet;
use std::path::PathBuf;

use batchwise_testbed::bpf_stats::wait_attached;
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::lines::Printing;
use batchwise_testbed::stage::generator::{LASTING, Load};
use batchwise_testbed::stage::{Stage, batchwise, eventually, scrape::METRICS};
use batchwise_testbed::stop::Stop;
use batchwise_testbed::topology::{CLIENT_IP, LINK};
use serde_json::Value;

use crate::panels::{assert_all_taken, until_all_answer};
use crate::server::Prometheus;

/// A file of `packaging/`.
fn packaged(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging")).join(name)
}

/// Starts an agent that serves metrics at a host.
fn agent(host: &Host, args: &str) -> Printing<Value> {
    let mut command = batchwise();
    command.args(args.split_whitespace());
    command.args(["--format", "jsonl", "--metrics", METRICS]);
    Printing::start(host, args, command, Role::Observer).expect("it starts")
}

/// The same of one that exchanges for the sockets of the host's applications; waits until its
/// programs are there, so that it sees connections begin.
fn agent_that_exchanges(host: &Host, args: &str) -> Printing<Value> {
    let cgroup = host.cgroup().display();
    let mut agent = agent(host, &format!("{args} --cgroup {cgroup}"));
    let attached = wait_attached(agent.process(), args, &Stop::default());
    attached.expect("its programs are attached");
    agent
}

/// Waits until just these alerts are raised.
fn until_alerts(prometheus: &Prometheus, wanted: &[&str]) {
    let raised = || -> BTreeSet<String> {
        let alerts = prometheus.query("ALERTS").expect("an answer");
        let name = |alert: &Value| alert["metric"]["alertname"].as_str().map(str::to_owned);
        alerts.iter().filter_map(name).collect()
    };
    let wanted: BTreeSet<_> = wanted.iter().map(|name| (*name).to_owned()).collect();
    eventually(
        &format!("the alerts {wanted:?}"),
        || (raised() == wanted).then_some(()),
        || format!("there are {:?}", raised()),
    );
}

/// Percentiles of the histogram are near those of the agent, of about the same time.
fn compare_percentiles(prometheus: &Prometheus) {
    let value = |query: &str| -> Option<f64> {
        let series = prometheus.query(query).expect("an answer");
        series.first()?["value"][1].as_str()?.parse().ok()
    };
    let both = || {
        Some([
            value("histogram_quantile(0.99, rate(batchwise_request_duration_seconds_bucket[1m]))")?,
            value(r#"avg_over_time(batchwise_latency_quantile_seconds{quantile="0.99"}[1m])"#)?,
        ])
    };
    let near = |[histogram, agent]: &[f64; 2]| (0.25..4.0).contains(&(histogram / agent));
    let [histogram, agent] = eventually(
        "percentiles of the histogram",
        || both().filter(near),
        || format!("there are {:?}", both()),
    );
    println!("p99 of a minute {histogram} s, of the agent's intervals {agent} s");
}

#[test]
fn watch() {
    let stage = Stage::build("pr-watch");
    let _redis = stage.redis();
    let (server, client) = (&stage.hosts.server, &stage.hosts.client);
    let _other_end = agent_that_exchanges(server, "watch --port 6379 --exchange");
    let agent = agent_that_exchanges(client, "watch --port 6379 --exchange");
    let _load = Load::start(client, stage.redis_address(), LASTING);
    // no request is as quick
    let prometheus = Prometheus::start(client, Some(1e-6));
    until_all_answer(&prometheus, "watch");
    compare_percentiles(&prometheus);
    until_alerts(&prometheus, &["BatchwiseLatencyOverSlo"]);
    drop(agent);
    // the latency of the last five minutes is still there
    until_alerts(
        &prometheus,
        &["BatchwiseAgentDown", "BatchwiseLatencyOverSlo"],
    );
}

#[test]
fn tune() {
    let stage = Stage::build("pr-tune");
    let _redis = stage.redis();
    let (server, client) = (&stage.hosts.server, &stage.hosts.client);
    // always dissatisfied, so that there is reason to try
    let options = "tune --port 6379 --policy slo:1us";
    let _other_end = agent_that_exchanges(server, options);
    let _agent = agent_that_exchanges(client, options);
    let _load = Load::start(client, stage.redis_address(), LASTING);
    let prometheus = Prometheus::start(client, None);
    until_all_answer(&prometheus, "tune");
}

#[test]
fn passive() {
    let stage = Stage::build("pr-passive");
    let _redis = stage.redis();
    let server = &stage.hosts.server;
    let _agent = agent(server, &format!("passive --iface {LINK} --port 6379"));
    let _load = Load::start(&stage.hosts.client, stage.redis_address(), LASTING);
    let prometheus = Prometheus::start(server, None);
    until_all_answer(&prometheus, "passive");
    until_alerts(&prometheus, &[]);
}

#[test]
fn decap() {
    let stage = Stage::build("pr-decap");
    let _redis = stage.redis();
    let server = &stage.hosts.server;
    let _agent = agent(server, &format!("decap --iface {LINK} --from {CLIENT_IP}"));
    let _load = Load::start(&stage.hosts.client, stage.redis_address(), LASTING);
    let prometheus = Prometheus::start(server, None);
    assert_all_taken(&prometheus);
    until_all_answer(&prometheus, "decap");
    until_alerts(&prometheus, &[]);
}
