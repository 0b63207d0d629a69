//! A Prometheus with the packaged rules, which scrapes the agent at its host.

use std::fs;
use std::process::Command;

use anyhow::Result;
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::metrics;
use batchwise_testbed::process::Process;
use batchwise_testbed::stage::{PATIENCE, eventually, scrape::METRICS};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::packaged;

/// In the host's own namespace.
const ADDRESS: &str = "127.0.0.1:9090";

pub struct Prometheus<'a> {
    host: &'a Host,
    // killed before its files go
    process: Process,
    _folder: TempDir,
}

impl<'a> Prometheus<'a> {
    /// Starts it at a host, with the packaged objectives or with this one, in seconds, for all
    /// services; waits until it answers.
    pub fn start(host: &'a Host, objective: Option<f64>) -> Self {
        let folder = TempDir::new().expect("a folder");
        let mut objectives = packaged("prometheus/batchwise.slo.yml");
        if let Some(seconds) = objective {
            objectives = folder.path().join("slo.yml");
            let rule = json!({
                "record": "batchwise:slo_latency_seconds", "expr": format!("vector({seconds})")
            });
            let groups = json!({"groups": [{"name": "slo", "rules": [rule]}]});
            fs::write(&objectives, groups.to_string()).expect("a file");
        }
        // YAML may be JSON
        let configuration = json!({
            "global": {
                "scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"
            },
            "rule_files": [packaged("prometheus/batchwise.rules.yml"), objectives],
            "scrape_configs": [
                {"job_name": "batchwise", "static_configs": [{"targets": [METRICS]}]}
            ]
        });
        let file = folder.path().join("prometheus.yml");
        fs::write(&file, configuration.to_string()).expect("a file");
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        let data = folder.path().join("data");
        command.arg(format!("--storage.tsdb.path={}", data.display()));
        command.arg(format!("--web.listen-address={ADDRESS}"));
        command.arg("--log.level=warn");
        let process = host.spawn("prometheus", command, Role::Observer);
        let process = process.expect("Prometheus, which `make test-metrics` installs");
        let server = Self {
            host,
            process,
            _folder: folder,
        };
        eventually(
            "Prometheus to answer",
            || server.query("vector(1)").ok(),
            || server.process.quote(),
        );
        server
    }

    /// The series that a query gives now.
    pub fn query(&self, query: &str) -> Result<Vec<Value>> {
        let path = format!("query?query={}", metrics::encoded(query));
        metrics::ask(self.host, ADDRESS.parse()?, &path, PATIENCE)
    }
}
