//! A real Prometheus that scrapes the fleet, with the packaged rules.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::metrics;
use batchwise_testbed::process::{self, Process};
use batchwise_testbed::stop::Stop;
use serde_json::{Value, json};
use tempfile::TempDir;

const ADDRESS: &str = "127.0.0.1:9090";
pub const INTERVAL: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(60);
const RULES: &str = include_str!("../../../../packaging/prometheus/batchwise.fleet.yml");

pub struct Prometheus<'a> {
    host: &'a Host,
    process: Process,
    _dir: TempDir,
}

impl<'a> Prometheus<'a> {
    /// Scrapes these; keeps classic histograms beside native ones, or native ones alone.
    pub fn start(host: &'a Host, targets: &[&str], classic: bool, stop: &Stop) -> Result<Self> {
        let dir = TempDir::with_prefix("bw-fleet-").context("making a directory")?;
        let interval = format!("{}s", INTERVAL.as_secs());
        fs::write(dir.path().join("fleet.yml"), RULES)?;
        // YAML may be JSON
        let configuration = json!({
            "global": {"scrape_interval": interval, "scrape_timeout": "10s", "evaluation_interval": interval},
            "rule_files": ["fleet.yml"],
            "scrape_configs": [
                {"job_name": "batchwise", "scrape_native_histograms": true, "always_scrape_classic_histograms": classic,
                    "static_configs": [{"targets": targets}]},
                {"job_name": "prometheus", "static_configs": [{"targets": [ADDRESS]}]}
            ]
        });
        let file = dir.path().join("prometheus.yml");
        fs::write(&file, configuration.to_string())?;
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!(
            "--storage.tsdb.path={}",
            dir.path().join("data").display()
        ));
        command.arg(format!("--web.listen-address={ADDRESS}"));
        command.arg("--log.level=warn");
        let process = host.spawn("prometheus", command, Role::Workload)?;
        let mut server = Self {
            host,
            process,
            _dir: dir,
        };
        let begin = Instant::now();
        while server.value("vector(1)").is_err() {
            server.process.check_alive().context(
                "this needs Prometheus 3.8 or newer as `prometheus` (`go install github.com/prometheus/prometheus/cmd/prometheus@latest`)",
            )?;
            anyhow::ensure!(
                begin.elapsed() < PATIENCE,
                "Prometheus does not answer: {}",
                server.process.quote()
            );
            stop.sleep(Duration::from_millis(100))?;
        }
        Ok(server)
    }

    /// The series that a query gives, as a dashboard's panel asks for it over so long, and how long that took.
    pub fn range(&self, query: &str, over: Duration) -> Result<(Vec<Value>, Duration)> {
        let now = process::now_ns() / 1_000_000_000;
        let path = format!(
            "query_range?query={}&start={}&end={now}&step={}",
            metrics::encoded(query),
            now - over.as_secs(),
            INTERVAL.as_secs()
        );
        let begin = Instant::now();
        let found = metrics::ask(self.host, ADDRESS.parse()?, &path, PATIENCE)?;
        Ok((found, begin.elapsed()))
    }

    /// The series that a query gives now.
    pub fn query(&self, query: &str) -> Result<Vec<Value>> {
        let path = format!("query?query={}", metrics::encoded(query));
        metrics::ask(self.host, ADDRESS.parse()?, &path, PATIENCE)
    }

    /// The number that a query gives now; 0: nothing.
    pub fn value(&self, query: &str) -> Result<f64> {
        let found = self.query(query)?;
        let number = found.first().and_then(|series| series["value"][1].as_str());
        Ok(number.map_or(Ok(0.0), str::parse)?)
    }

    /// Bytes of memory.
    pub fn memory(&self) -> Result<u64> {
        process::memory(self.process.pid(), "VmHWM")
    }

    /// CPU time so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        process::cpu_time(self.process.pid())
    }
}
