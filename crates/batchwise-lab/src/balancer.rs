//! A running `batchwise balance` in a segment's balancer: its configuration, and the lines that it
//! prints.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_testbed::host::Place;
use batchwise_testbed::lines::Printing;
use batchwise_testbed::segment::{self, LINK, SERVERS, Segment, VIP};
use batchwise_testbed::stop::Stop;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How long it may take until all servers serve, and until it has ended.
const START_LIMIT: Duration = Duration::from_secs(15);
const END_LIMIT: Duration = Duration::from_secs(10);

/// What is balanced, and how.
#[derive(Clone, Debug)]
pub struct BalancerSpec<'a> {
    /// Names pins and socket: two at a time need two names.
    pub name: &'a str,
    /// `static`, `observe` or `latency`.
    pub policy: &'a str,
    /// The service's `choices`, if not what the policy takes.
    pub choices: Option<u8>,
    /// Between decisions.
    pub interval: Duration,
    /// `l2` or `ipip`.
    pub method: &'a str,
    /// The service's port.
    pub port: u16,
    /// What a health check asks for.
    pub health_path: &'a str,
}

impl BalancerSpec<'_> {
    /// The configuration file.
    pub fn toml(&self) -> String {
        let Self {
            name, method, port, ..
        } = self;
        let path = self.health_path;
        let choices = self.choices.map(|n| format!("choices = {n}\n"));
        let choices = choices.unwrap_or_default();
        let mut text = format!(
            r#"name = "{name}"
interfaces = ["{LINK}"]

[[service]]
name = "web"
address = "{VIP}"
port = {port}
protocol = "tcp"
method = "{method}"
affinity = "connection"
{choices}[service.health]
check = "http"
path = "{path}"
interval = "1s"
timeout = "900ms"
rise = 1
fall = 3
"#
        );
        for index in 0..SERVERS {
            let (address, _) = segment::server(index);
            let number = index + 1;
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "[[service.backend]]\nname = \"s{number}\"\naddress = \"{address}\"\nweight = 100\n"
            );
        }
        text
    }
}

/// A server in an interval, as the balancer prints it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackendMoment {
    /// End of the interval, ns since 1970.
    pub ts_ns: u64,
    /// Its name.
    pub backend: String,
    /// `serving`, `draining` or `down`.
    pub state: String,
    /// `up`, `down`, `unknown` or `unchecked`.
    pub health: String,
    /// Of the slots, 0 to 1.
    pub share: f64,
    /// Of responses.
    pub latency_ns: LatencyMoment,
    /// Why it has its weight.
    pub why: String,
}

/// The part of a latency that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyMoment {
    /// Mean; `None` when it is not known.
    pub mean: Option<f64>,
}

/// What it printed.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// Servers by interval.
    pub backends: Vec<BackendMoment>,
    /// The last counts of packets' fates.
    pub totals: Option<Value>,
}

impl Said {
    fn of(lines: Vec<Value>) -> Result<Self> {
        let mut said = Self::default();
        for line in lines {
            match line["kind"].as_str() {
                Some("backend") => said.backends.push(serde_json::from_value(line)?),
                Some("totals") => said.totals = Some(line),
                _ => {}
            }
        }
        Ok(said)
    }
}

/// Whether every server gets connections.
fn all_serve(lines: &[Value]) -> bool {
    let of_backends = lines.iter().rev().filter(|line| line["kind"] == "backend");
    let serve = of_backends
        .take(usize::from(SERVERS))
        .filter(|line| line["state"] == "serving" && line["health"] == "up");
    serve.count() == usize::from(SERVERS)
}

/// A running balancer. Dropping it ends it.
#[derive(Debug)]
pub struct Balancer {
    balancer: Printing<Value>,
    // Outlives the process: fields are dropped in order.
    _files: Files,
}

/// A directory that goes when it is dropped.
#[derive(Debug)]
struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!("{} stays behind: {error}", self.0.display());
        }
    }
}

impl Balancer {
    /// Starts it in the segment's balancer, and waits until every server gets connections.
    pub fn start(
        batchwise: &Path,
        segment: &Segment,
        spec: &BalancerSpec<'_>,
        stop: &Stop,
    ) -> Result<Self> {
        let host = &segment.balancer;
        let files = Files(std::env::temp_dir().join(format!("{}-run", host.namespace().name())));
        fs::create_dir_all(&files.0).with_context(|| format!("making {}", files.0.display()))?;
        let config = files.0.join("lb.toml");
        fs::write(&config, spec.toml()).with_context(|| format!("writing {}", config.display()))?;
        let mut command = Command::new(batchwise);
        command.args(["balance", "--format", "jsonl", "--remove-at-exit"]);
        command.arg("--config").arg(&config);
        command.args(["--policy", spec.policy]);
        command.args(["--interval", &format!("{}ms", spec.interval.as_millis())]);
        command.env("BATCHWISE_RUN_DIR", &files.0);
        let balancer = Printing::start(host, "the balancer", command, Place::Workload)?;
        let mut started = Self {
            balancer,
            _files: files,
        };
        let ready = stop.wait_until(START_LIMIT, || {
            started.balancer.process().check_alive()?;
            Ok(started.balancer.with_lines(all_serve).then_some(()))
        })?;
        match ready {
            Some(()) => Ok(started),
            None => bail!(
                "the balancer did not get all servers to serve within {START_LIMIT:?}{}",
                started.balancer.quote()
            ),
        }
    }

    /// Ends it in order, with everything that it put into the kernel; gives what it printed.
    pub fn finish(self) -> Result<Said> {
        Said::of(self.balancer.finish(END_LIMIT)?)
            .context("`batchwise balance` printed something unknown")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(health: &str) -> Vec<Value> {
        let line = |number| {
            let text = format!(
                r#"{{"kind":"backend","ts_ns":1,"service":"web","backend":"s{number}",
                    "state":"serving","health":"{health}","share":0.25,
                    "latency_ns":{{"mean":null,"p50":null}},"why":"static"}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        (1..=4).map(line).collect()
    }

    #[test]
    fn all_serve_once_the_last_lines_say_so_of_each() {
        let mut all = lines("unknown");
        assert!(!all_serve(&all));
        all.extend(lines("up"));
        all.push(serde_json::from_str(r#"{"kind":"totals","sent":1}"#).unwrap());
        all.push(serde_json::from_str(r#"{"kind":"event"}"#).unwrap());
        assert!(all_serve(&all));
        let said = Said::of(all).unwrap();
        assert_eq!(
            (said.backends.len(), said.totals.unwrap()["sent"].as_u64()),
            (8, Some(1))
        );
    }
}
