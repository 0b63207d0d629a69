//! A Redis server at one host and its client at another: the stage of the experiments about Nagle's
//! algorithm, the loads that they put on it, and the agents that run meanwhile.

use std::time::Duration;

use anyhow::{Result, anyhow};
use batchwise_core::tune::report::Decision;
use batchwise_testbed::load::{LoadPhase, LoadReport, LoadSpec, PhaseReport, saturated};
use batchwise_testbed::redis::{PORT, RedisServer};
use batchwise_testbed::topology::TwoHosts;
use serde_json::Value;

use crate::Context;
use crate::arm::Arm;
use crate::engine::{Judgement, two_hosts};
use crate::tuner::Tuners;

/// The server and both hosts.
pub struct Redis {
    /// The server.
    pub server: RedisServer,
    /// Last: the server lives in one of them.
    pub hosts: TwoHosts,
}

impl Redis {
    /// Builds the hosts and starts the server; gives the settings of the network, too.
    pub fn start(context: &Context, tag: &str) -> Result<(Self, Value)> {
        let (hosts, network) = two_hosts(tag)?;
        Ok((Self::start_on(context, hosts)?, network))
    }

    /// The same on hosts that there are.
    pub fn start_on(context: &Context, hosts: TwoHosts) -> Result<Self> {
        let server = RedisServer::start(&hosts.server, &context.stop)?;
        Ok(Self { server, hosts })
    }

    /// An open loop of SETs from a client that asks for what the arm says.
    pub fn load(&self, arm: Arm, warmup: Duration, phases: Vec<LoadPhase>) -> LoadSpec {
        LoadSpec {
            address: self.hosts.server_address(PORT),
            phases,
            warmup,
            get_ratio: 0.0,
            nodelay: arm.nodelay(),
            busy_per_response: Duration::ZERO,
            sleeping: false,
        }
    }

    /// Runs a load to its end.
    pub fn run(&self, context: &Context, load: &LoadSpec) -> Result<LoadReport> {
        load.run(&context.command, &self.hosts.client, &context.stop)
    }

    /// Runs a load to its end; gives its last phase, and the one before if there was one.
    pub fn last_phase(
        &self,
        context: &Context,
        load: &LoadSpec,
    ) -> Result<(PhaseReport, Option<PhaseReport>)> {
        let mut phases = self.run(context, load)?.phases;
        let last = phases.pop();
        let last = last.ok_or_else(|| anyhow!("the load reported no phase"))?;
        Ok((last, phases.pop()))
    }

    /// Does `what`, in the arm with agents while those run that know nothing yet: what they learn is
    /// part of what is measured. Gives also what they decided.
    pub fn tuned<T>(
        &self,
        context: &Context,
        (arm, policy, label): (Arm, &str, &str),
        what: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Vec<Decision>)> {
        if arm != Arm::Batchwise {
            return Ok((what()?, Vec::new()));
        }
        let tuners = Tuners::start(context, &self.hosts, policy, label)?;
        let found = what()?;
        Ok((found, tuners.finish()?))
    }
}

/// A phase at one rate.
pub fn steady(duration: Duration, rate: u64, value_size: u32) -> LoadPhase {
    LoadPhase {
        duration,
        rate,
        climb_to: None,
        value_size,
    }
}

/// Whether a load was more than could be carried.
pub fn is_saturated(report: &LoadReport) -> bool {
    let mean = report.latency_ns.mean;
    saturated(report.offered_rps, report.achieved_rps, mean, report.errors)
}

/// A generator that is overwhelmed does not trust itself: that is the collapse of a ladder.
pub fn judge(saturated: bool, valid: bool, why_invalid: &[String]) -> Judgement {
    match saturated {
        true => Judgement::Saturated,
        false => Judgement::valid_if(valid, why_invalid.join(", ")),
    }
}
