//! A real client at the client's host, redis-rs with many tasks over one connection, and an agent that
//! looks after it alone.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use batchwise_core::tune::report::Decision;
use batchwise_testbed::host::Role;
use batchwise_testbed::lines::Printing;
use batchwise_testbed::redis::PORT;
use serde_json::Value;

use crate::Context;
use crate::redis::Redis;
use crate::stats::median;
use crate::tuner;

/// Between two reports of the client.
const INTERVAL: Duration = Duration::from_millis(100);
/// What starting and attaching an agent takes at most.
const START: Duration = Duration::from_secs(4);
const END: Duration = Duration::from_secs(20);

/// What the client does: a closed loop.
#[derive(Clone, Copy, Debug)]
pub struct RealClient {
    pub tasks: u32,
    pub value_size: u32,
    /// GETs, or else SETs.
    pub gets: bool,
    /// It asks for TCP_NODELAY.
    pub nodelay: bool,
}

/// What it told of some time.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Requests a second, in the mean.
    pub rps: f64,
    /// Median over its reports of their medians.
    pub p50_ns: f64,
}

impl RealClient {
    /// Starts it. It ends by itself when it was needed for `time` and forgotten.
    pub fn start(self, context: &Context, redis: &Redis, time: Duration) -> Result<Running> {
        let mut command = Command::new(&context.command);
        let arguments = format!(
            "load multiplexed --format json --threads 1 --warmup 0s --tasks {} --value-size {} --get-ratio {} \
             --nodelay {} --duration {}s --progress {}ms",
            self.tasks,
            self.value_size,
            u8::from(self.gets),
            if self.nodelay { "on" } else { "off" },
            (START + time + END).as_secs(),
            INTERVAL.as_millis(),
        );
        command.args(arguments.split(' '));
        command.args(["--addr", &redis.hosts.server_address(PORT).to_string()]);
        let host = &redis.hosts.client;
        Printing::start(host, "the client", command, Role::Workload).map(Running)
    }
}

/// A client that goes on. Dropping it ends it.
pub struct Running(Printing<Value>);

impl Running {
    /// Ends it.
    pub fn end(mut self) -> Result<Reports> {
        self.0.check().context("the client")?;
        self.0.terminate(END);
        Ok(Reports(self.0.take_lines()))
    }
}

/// All that a client told.
pub struct Reports(Vec<Value>);

impl Reports {
    /// Of the time from `from` to `to`, ns since the Unix epoch.
    pub fn between(&self, from: u64, to: u64) -> Result<Told> {
        let whole = from + INTERVAL.as_nanos() as u64..=to;
        let is_inside =
            |line: &&Value| line["ts_ns"].as_u64().is_some_and(|ts| whole.contains(&ts));
        let inside: Vec<&Value> = self.0.iter().filter(is_inside).collect();
        ensure!(
            inside.len() >= 5,
            "the client told of {} intervals",
            inside.len()
        );
        let number = |line: &Value, name: &str| line[name].as_f64().filter(|n| *n > 0.0);
        let rates = inside
            .iter()
            .map(|line| number(line, "achieved_rps").unwrap_or(0.0));
        let p50s = inside
            .iter()
            .map(|line| number(line, "p50_ns").unwrap_or(f64::MAX));
        Ok(Told {
            rps: rates.sum::<f64>() / inside.len() as f64,
            p50_ns: median(&p50s.collect::<Vec<_>>()).unwrap_or(f64::MAX),
        })
    }
}

/// Starts `batchwise tune` at the client's host, and waits until it is there.
pub fn agent(context: &Context, redis: &Redis, options: &[&str]) -> Result<Printing<Decision>> {
    tuner::start(context, &redis.hosts.client, PORT, options)
}

/// Ends an agent; gives what it decided.
pub fn end(agent: Printing<Decision>) -> Result<Vec<Decision>> {
    agent.finish(END)
}
