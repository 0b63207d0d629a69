//! The open-loop load: how `batchwise load redis` is called and what it answers.

pub mod logged;
pub mod samples;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use serde::{Deserialize, Deserializer, Serialize};

use crate::host::{Host, Role};
use crate::lines::Printing;
use crate::stop::Stop;

/// Time beyond its duration after which a load is taken to hang.
const GRACE: Duration = Duration::from_secs(30);

/// A part of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LoadPhase {
    /// How long it is measured.
    pub duration: Duration,
    /// Requests a second.
    pub rate: u64,
    /// Climb evenly to this many requests a second instead of staying at `rate`.
    pub climb_to: Option<u64>,
    /// Bytes of a value.
    pub value_size: u32,
}

/// One load to put on a Redis server.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// The server.
    pub address: SocketAddr,
    /// One after another, on the same connection.
    pub phases: Vec<LoadPhase>,
    /// How long to send before measuring, at the rate of the first phase.
    pub warmup: Duration,
    /// Share of requests that are GETs.
    pub get_ratio: f64,
    /// TCP_NODELAY of the client's socket.
    pub nodelay: bool,
    /// The client's own work on each response.
    pub busy_per_response: Duration,
    /// The client sleeps while it has nothing to do.
    pub sleeping: bool,
}

impl LoadSpec {
    fn command(&self, batchwise: &Path, progress: Option<Duration>) -> Command {
        let phase = |phase: &LoadPhase| {
            let climb = phase
                .climb_to
                .map_or_else(String::new, |to| format!("..{to}"));
            let (ms, rate, size) = (phase.duration.as_millis(), phase.rate, phase.value_size);
            format!("{ms}ms:{rate}{climb}@{size}")
        };
        let schedule: Vec<_> = self.phases.iter().map(phase).collect();
        let mut command = Command::new(batchwise);
        command.args(["load", "redis", "--format", "json"]);
        command.arg("--addr").arg(self.address.to_string());
        command.arg("--schedule").arg(schedule.join(","));
        if let Some(every) = progress {
            command.args(["--progress", &format!("{}ms", every.as_millis())]);
        }
        command.args(["--warmup", &format!("{}ms", self.warmup.as_millis())]);
        command.args(["--get-ratio", &self.get_ratio.to_string()]);
        let busy = format!("{}ns", self.busy_per_response.as_nanos());
        command.args(["--busy-per-response", &busy]);
        command.args(["--nodelay", if self.nodelay { "on" } else { "off" }]);
        command.args(self.sleeping.then_some("--sleeping"));
        command
    }

    /// From its first request to its last.
    pub fn length(&self) -> Duration {
        let phases = self.phases.iter().map(|phase| phase.duration);
        self.warmup + phases.sum::<Duration>()
    }

    /// Runs the load in `client`, to its end.
    pub fn run(&self, batchwise: &Path, client: &Host, stop: &Stop) -> Result<LoadReport> {
        self.start(batchwise, client, None)?.finish(stop)
    }

    /// The same, with what it reported every so often.
    pub fn run_with_intervals(
        &self,
        batchwise: &Path,
        client: &Host,
        every: Duration,
        stop: &Stop,
    ) -> Result<(LoadReport, Vec<LoadInterval>)> {
        let mut load = self.start(batchwise, client, Some(every))?;
        let report = load.wait(stop)?;
        Ok((report, load.new_intervals()?))
    }

    /// Starts the load in `client`; with `progress`, it also reports every so often.
    pub fn start(
        &self,
        batchwise: &Path,
        client: &Host,
        progress: Option<Duration>,
    ) -> Result<RunningLoad> {
        let command = self.command(batchwise, progress);
        Ok(RunningLoad {
            load: Printing::start_text(client, "the load", command, Role::Workload)?,
            read: 0,
            limit: self.length() + GRACE,
        })
    }
}

/// A load that is under way. Dropping it ends it.
#[derive(Debug)]
pub struct RunningLoad {
    load: Printing<String>,
    read: usize,
    limit: Duration,
}

impl RunningLoad {
    /// The intervals that it reported since the last call.
    pub fn new_intervals(&mut self) -> Result<Vec<LoadInterval>> {
        let (new, read) = self
            .load
            .with_lines(|lines| (lines[self.read..].join("\n"), lines.len()));
        self.read = read;
        LoadInterval::all_in(&new)
    }

    /// Whether its process has ended.
    pub fn has_ended(&mut self) -> Result<bool> {
        self.load.process().has_ended()
    }

    /// Waits for its end.
    pub fn finish(mut self, stop: &Stop) -> Result<LoadReport> {
        self.wait(stop)
    }

    fn wait(&mut self, stop: &Stop) -> Result<LoadReport> {
        let status = self.load.wait(stop, self.limit)?;
        let report = LoadReport::from_output(&self.load.text());
        let quote = self.load.quote();
        report.map_err(|error| anyhow!("the load failed ({status}): {error:#}{quote}"))
    }
}

/// What the generator measured in one interval of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadInterval {
    /// End of the interval, ns since the Unix epoch.
    pub ts_ns: u64,
    /// Its length.
    pub interval_ns: u64,
    /// In which phase it began, from 0.
    #[serde(default)]
    pub phase: usize,
    /// Requests that were due, a second.
    pub offered_rps: f64,
    /// Responses, a second.
    pub achieved_rps: f64,
    /// Mean latency from the time a request was due, ns; `None` without responses.
    #[serde(rename = "mean_ns")]
    pub mean_from_intended_ns: Option<f64>,
    /// Mean latency from the actual send, ns.
    pub mean_from_send_ns: Option<f64>,
    /// Median from the time a request was due, ns.
    pub p50_ns: Option<f64>,
    /// 99th percentile from the time a request was due, ns.
    pub p99_ns: Option<f64>,
    /// 99th percentile from the actual send, ns.
    #[serde(default)]
    pub p99_from_send_ns: Option<f64>,
}

impl LoadInterval {
    /// The intervals among a stream of JSON objects.
    fn all_in(output: &str) -> Result<Vec<Self>> {
        let mut intervals = Vec::new();
        for value in serde_json::Deserializer::from_str(output).into_iter::<serde_json::Value>() {
            let value = value.context("what the load printed is not JSON")?;
            if value.get("type").is_some_and(|kind| kind == "interval") {
                let interval = serde_json::from_value(value);
                intervals.push(interval.context("an interval of the load is not complete")?);
            }
        }
        Ok(intervals)
    }
}

/// Whether a load was beyond what the system can carry: less than 98 % of it was answered, the mean
/// latency from the intended time exceeded 5 ms, or requests failed.
pub fn saturated(offered_rps: f64, achieved_rps: f64, mean_ns: f64, errors: u64) -> bool {
    achieved_rps < 0.98 * offered_rps || mean_ns > 5e6 || errors > 0
}

/// Latencies, ns; infinite if nothing was answered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Mean.
    #[serde(deserialize_with = "or_infinite")]
    pub mean: f64,
    /// Median.
    #[serde(deserialize_with = "or_infinite")]
    pub p50: f64,
    /// 90th percentile.
    #[serde(deserialize_with = "or_infinite")]
    pub p90: f64,
    /// 99th percentile.
    #[serde(deserialize_with = "or_infinite")]
    pub p99: f64,
    /// 99.9th percentile.
    #[serde(deserialize_with = "or_infinite")]
    pub p999: f64,
    /// Largest.
    #[serde(deserialize_with = "or_infinite")]
    pub max: f64,
}

fn or_infinite<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
}

/// What the load reports of one phase: of the requests that were due in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// Requests a second that were to be sent.
    pub offered_rps: f64,
    /// Requests a second of these that were answered before the end of the phase.
    pub achieved_rps: f64,
    /// Requests in the phase.
    pub requests: u64,
    /// Requests that failed or stayed unanswered.
    pub errors: u64,
    /// From the time a request was due.
    pub latency_ns: LatencySummary,
    /// From the time it was sent.
    pub latency_from_send_ns: LatencySummary,
    /// Whether the generator trusts these numbers.
    pub valid: bool,
    /// Why not.
    pub why_invalid: Vec<String>,
    /// Whether the one reason is that requests were sent late.
    #[serde(default)]
    pub only_late: bool,
    /// Begin of the phase, ns since the Unix epoch.
    pub from_ts_ns: u64,
    /// End of the phase, ns since the Unix epoch.
    pub to_ts_ns: u64,
}

impl PhaseReport {
    /// See [`saturated`].
    pub fn saturated(&self) -> bool {
        saturated(
            self.offered_rps,
            self.achieved_rps,
            self.latency_ns.mean,
            self.errors,
        )
    }
}

/// The last object that `batchwise load` prints, as far as the lab uses it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Requests a second that were to be sent.
    pub offered_rps: f64,
    /// Requests a second that were answered.
    pub achieved_rps: f64,
    /// Requests in the measured window.
    pub requests: u64,
    /// Requests that failed or stayed unanswered.
    pub errors: u64,
    /// From the time a request was due.
    pub latency_ns: LatencySummary,
    /// From the time it was sent.
    pub latency_from_send_ns: LatencySummary,
    /// Whether the generator trusts its own numbers.
    pub valid: bool,
    /// Why not.
    #[serde(default)]
    pub why_invalid: Vec<String>,
    /// Whether the one reason is that requests were sent late.
    #[serde(default)]
    pub only_late: bool,
    /// How late the cost of sending makes them, mean, ns.
    #[serde(default)]
    pub expected_lateness_ns: Option<f64>,
    /// Time that the generator was ready to run and did not get its CPU, ns.
    #[serde(default)]
    pub cpu_wait_ns: Option<u64>,
    /// Connections that carried the load.
    #[serde(default, skip_serializing)]
    pub connections: u64,
    /// Different keys; each was set once before the load.
    #[serde(default, skip_serializing)]
    pub keys: u64,
    /// Whether a response triggered the next request.
    #[serde(default, skip_serializing)]
    pub closed: bool,
    /// How long was sent before measuring, ns.
    #[serde(default, skip_serializing)]
    pub warmup_ns: u64,
    /// Begin of the measured window, ns since the Unix epoch.
    pub measured_from_ts_ns: u64,
    /// End of the measured window, ns since the Unix epoch.
    pub measured_to_ts_ns: u64,
    /// The phases that had begun.
    #[serde(default)]
    pub phases: Vec<PhaseReport>,
}

impl LoadReport {
    /// Finds the report in what the command printed: the last value of a stream of JSON objects.
    pub fn from_output(output: &str) -> Result<Self> {
        let mut last = None;
        for value in serde_json::Deserializer::from_str(output).into_iter::<serde_json::Value>() {
            last = Some(value.context("what it printed is not JSON")?);
        }
        let last = last.ok_or_else(|| anyhow!("it printed no report"))?;
        serde_json::from_value(last).context("its last object is not a complete report")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = concat!(
        r#"{"type":"interval","ts_ns":1763756400500000000,"interval_ns":500000000,"#,
        r#""offered_rps":5000.0,"achieved_rps":4998.0,"mean_ns":23100,"p50_ns":22000,"#,
        r#""p99_ns":41000,"mean_from_send_ns":22900}"#,
        "\n",
        r#"{"offered_rps":5000.0,"achieved_rps":4999.5,"requests":10000,"errors":0,"#,
        r#""latency_ns":{"mean":23100,"p50":22000,"p90":30000,"p99":41000,"p999":60000,"#,
        r#""max":91000},"from":"intended","latency_from_send_ns":{"mean":22900.5,"p50":21900,"#,
        r#""p90":29900,"p99":40900,"p999":59000,"max":90000},"valid":true,"why_invalid":[],"#,
        r#""measured_from_ts_ns":1763756400000000000,"measured_to_ts_ns":1763756402000000000,"#,
        r#""nodelay":true}"#,
    );

    #[test]
    fn the_report_is_the_last_object_after_the_intervals() {
        let report = LoadReport::from_output(RECORDED).unwrap();
        assert_eq!(report.requests, 10_000);
        assert_eq!(report.latency_from_send_ns.mean, 22_900.5);
        assert!(report.valid);
    }

    #[test]
    fn intervals_are_told_from_the_report() {
        let intervals = LoadInterval::all_in(RECORDED).unwrap();
        assert_eq!(intervals.len(), 1);
        assert_eq!(intervals[0].mean_from_intended_ns, Some(23_100.0));
    }

    #[test]
    fn a_load_is_saturated_by_shortfall_by_latency_or_by_errors() {
        assert!(!saturated(1000.0, 980.0, 5e6, 0));
        assert!(saturated(1000.0, 979.0, 1e4, 0));
        assert!(saturated(1000.0, 1000.0, 5.1e6, 0));
        assert!(saturated(1000.0, 1000.0, 1e4, 1));
    }

    #[test]
    fn a_load_is_called_phase_by_phase() {
        let phase = LoadPhase {
            duration: Duration::from_millis(1500),
            rate: 350_000,
            climb_to: None,
            value_size: 64,
        };
        let spec = LoadSpec {
            address: SocketAddr::from(([10, 77, 0, 1], 6379)),
            phases: vec![
                phase,
                LoadPhase {
                    climb_to: Some(400_000),
                    value_size: 4096,
                    ..phase
                },
            ],
            warmup: Duration::from_millis(500),
            get_ratio: 0.05,
            nodelay: false,
            busy_per_response: Duration::from_micros(30),
            sleeping: true,
        };
        let command = spec.command(Path::new("batchwise"), None);
        let words: Vec<_> = command.get_args().filter_map(|a| a.to_str()).collect();
        assert!(words.contains(&"1500ms:350000@64,1500ms:350000..400000@4096"));
        for word in ["30000ns", "500ms", "--sleeping"] {
            assert!(words.contains(&word), "{word}");
        }
        assert_eq!(spec.length(), Duration::from_millis(3500));
    }

    #[test]
    fn what_nobody_answered_took_forever() {
        let summary = r#"{"mean":null,"p50":null,"p90":null,"p99":null,"p999":null,"max":null}"#;
        let summary: LatencySummary = serde_json::from_str(summary).unwrap();
        assert_eq!(summary.mean, f64::INFINITY);
    }

    #[test]
    fn a_report_may_span_lines() {
        let pretty = RECORDED.replace(",\"", ",\n\"");
        assert!(LoadReport::from_output(&pretty).is_ok());
    }

    #[test]
    fn output_that_ends_with_an_interval_is_an_error() {
        let only_interval = RECORDED.lines().next().unwrap();
        let error = LoadReport::from_output(only_interval).unwrap_err();
        assert!(error.to_string().contains("not a complete report"));
        assert!(LoadReport::from_output("").is_err());
    }
}
