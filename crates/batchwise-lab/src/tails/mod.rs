//! Experiment `tails`: are the percentiles true that `watch` makes of requests matched with their
//! responses, at a client alone and at a server alone, with its default budget and without one?

mod agents;
mod figures;
mod plan;
mod summary;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

use std::collections::BTreeMap;

use anyhow::Result;
use batchwise_core::sense::report::{Line, Side};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::arm::Arm as Setting;
use crate::engine::text::{maybe_duration, percent};
use crate::engine::{Experiment, Judgement, NoMore, Report, Results, Round, Run, Turn};
use crate::ladder::{OnLadder, Rung, Workload};
use crate::passive::capture::Capture;
use crate::redis::{Redis, judge, steady};
use crate::stats::quantile;
use agents::Agents;
use batchwise_testbed::load::{LoadSpec, PhaseReport};
use batchwise_testbed::redis::PORT;
use batchwise_testbed::topology::LINK;
use plan::{LEAD, MEASURED, WARMUP};
use summary::{Against, Share, Summary};

pub(crate) struct Tails;

const SIDES: [Side; 2] = [Side::Client, Side::Server];

/// What watching may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Budget {
    /// The command's own: requests are counted in windows.
    Default,
    /// Every request is counted.
    Off,
}

impl Budget {
    pub(crate) const ALL: [Self; 2] = [Self::Default, Self::Off];

    pub(crate) fn cost(self) -> Option<&'static str> {
        match self {
            Self::Default => None,
            Self::Off => Some("off"),
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Default => "default budget",
            Self::Off => "--cost off",
        }
    }
}

/// What one end's watcher said, and what is true at that end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct End {
    /// ns; what `watch` printed.
    estimated: Percentiles,
    /// How many requests that is of.
    matched: u64,
    confidence: f64,
    cost: f64,
    /// ns that a server's percentiles hold for the network, which it does not see.
    beside_ns: u64,
    /// At the server: from arrival to response, as a capture at its link shows it.
    captured: Option<Percentiles>,
    /// How long after the measured time began, and how long after it ended, ns.
    late_ns: [i64; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Percentiles {
    p50: Option<f64>,
    p99: Option<f64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    workload: String,
    budget: Budget,
    step_rps: u64,
    repeat: u32,
    attempt: u32,
    load: PhaseReport,
    saturated: bool,
    /// Empty where a watcher had no line.
    ends: BTreeMap<Side, End>,
}

/// A step of a ladder.
#[derive(Clone, Debug)]
pub(crate) struct Arm {
    workload: Workload,
    budget: Budget,
    step: u64,
    repeat: u32,
}

pub(crate) struct Stage {
    agents: Agents,
    redis: Redis,
}

impl Experiment for Tails {
    type Stage = Stage;
    type Arm = Arm;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "tails"
    }

    fn about(&self) -> &'static str {
        "measured against estimated percentiles, at a client alone and at a server alone"
    }

    /// A round is a workload's ladder: both budgets of a step next to each other, in an order that
    /// alternates.
    fn rounds(&self, quick: bool) -> Result<Vec<Round<Arm>>> {
        let mut rounds = Vec::new();
        for repeat in 0..plan::repeats(quick) {
            for workload in plan::workloads() {
                let steps = (repeat..).zip(workload.steps(quick));
                rounds.push(Round::in_order(steps.flat_map(|(number, &step)| {
                    let mut budgets = Budget::ALL;
                    budgets.rotate_left(number as usize % 2);
                    budgets.map(|budget| Arm {
                        workload,
                        budget,
                        step,
                        repeat,
                    })
                })));
            }
        }
        Ok(rounds)
    }

    fn ladder(&self, arm: &Arm) -> Option<String> {
        Some(arm.budget.label().into())
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        let (redis, network) = Redis::start(context, "tails")?;
        let agents = Agents::start(context, &redis.hosts)?;
        Ok((Stage { agents, redis }, network))
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        stage: &mut Stage,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let context = run.context;
        let Stage { agents, redis } = stage;
        let Arm {
            workload,
            budget,
            step,
            repeat,
        } = *turn.arm;
        let phases = [LEAD, MEASURED].map(|time| steady(time, step, workload.value_size));
        let load = LoadSpec {
            get_ratio: workload.get_ratio,
            ..redis.load(Setting::Nodelay, WARMUP, phases.to_vec())
        };
        let (server, client) = (&redis.hosts.server, &redis.hosts.client);
        let mut capture = Capture::start(server, LINK, &wire::filter(PORT), &context.stop)?;
        // reports only at the ends of the phases: that of the first is the moment to begin
        let mut running = load.start(&context.command, client, Some(load.length()))?;
        context.stop.wait_until(load.length(), || {
            let is_over = running.has_ended()? || !running.new_intervals()?.is_empty();
            Ok(is_over.then_some(()))
        })?;
        agents.begin(budget)?;
        let mut report = running.finish(&context.stop)?;
        let lines = agents.end(budget, &context.stop)?;
        redis.server.check_alive()?;
        context.stop.sleep(wire::FLUSH)?;
        let packets = wire::read(capture.end())?;
        let load = report.phases.pop();
        let load = load.ok_or_else(|| anyhow::anyhow!("the load reported no phase"))?;
        let answered = wire::answered(&packets, &wire::Sizes::of(workload.value_size));
        if answered.is_none() {
            run.note("the capture misses packets: nothing is known of the server's own part");
        }
        let ends = lines.iter().map(|(side, line)| {
            let captured = answered.as_ref().filter(|_| *side == Side::Server);
            (*side, End::of(line, &load, captured))
        });
        Ok(vec![Point {
            workload: workload.name.into(),
            budget,
            step_rps: step,
            repeat,
            attempt: turn.attempt,
            saturated: load.saturated(),
            ends: ends.collect(),
            load,
        }])
    }

    fn judge(&self, point: &Point) -> Judgement {
        judge(point.saturated, point.load.valid, &point.load.why_invalid)
    }

    fn describe(&self, point: &Point) -> String {
        let both = |share: Share, against: Against| {
            let pair = summary::pair(point, against, share);
            let [estimate, truth] = [pair.map(|p| p.0), pair.map(|p| p.1)].map(maybe_duration);
            format!("{estimate} / {truth}")
        };
        let of = |against: Against| {
            let [p50, p99] = Share::BOTH.map(|share| both(share, against));
            format!("{} p50 {p50}, p99 {p99}", against.label())
        };
        let all = Against::ALL.map(of).join("; ");
        let counted = point.ends.get(&Side::Client).map(|end| point.counted(end));
        format!(
            "{} {}/s, {}, {} counted, estimated / true: {all}{}",
            point.workload,
            point.step_rps,
            point.budget.label(),
            percent(counted),
            if point.saturated { ", saturated" } else { "" },
        )
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points, &results.invalid)
    }

    fn report(&self, results: &Results<Point, NoMore>, summary: &Summary) -> Report {
        figures::report(&results.points, summary)
    }
}

impl Point {
    /// Which share of the requests an end's percentiles are of.
    fn counted(&self, end: &End) -> f64 {
        end.matched as f64 / self.load.requests.max(1) as f64
    }
}

impl End {
    /// What a line says of a load; `answered` are the requests that a capture saw.
    fn of(line: &Line, load: &PhaseReport, answered: Option<&Vec<wire::Answered>>) -> Self {
        let begin = line.ts_ns.saturating_sub(line.interval_ns);
        let (network, unread) = (line.latency_ns.network, line.stages_ns.unread_local);
        let beside = network
            .zip(unread)
            .map(|(all, unread)| all.saturating_sub(unread));
        let inside = |answered: &Vec<wire::Answered>| {
            let measured = load.from_ts_ns..=load.to_ts_ns;
            let own = answered.iter().filter(|a| measured.contains(&a.at_ns));
            let own: Vec<_> = own.map(|a| a.latency_ns as f64).collect();
            let [p50, p99] = Share::BOTH.map(|share| quantile(&own, share.share()));
            Percentiles { p50, p99 }
        };
        Self {
            estimated: Percentiles {
                p50: line.tails_ns.p50.map(|ns| ns as f64),
                p99: line.tails_ns.p99.map(|ns| ns as f64),
            },
            matched: line.matched,
            confidence: line.confidence,
            cost: line.cost,
            beside_ns: beside.filter(|_| line.side == Side::Server).unwrap_or(0),
            captured: answered.map(inside),
            late_ns: [
                begin.cast_signed() - load.from_ts_ns.cast_signed(),
                line.ts_ns.cast_signed() - load.to_ts_ns.cast_signed(),
            ],
        }
    }
}

impl OnLadder for Point {
    fn rung(&self) -> Rung<'_> {
        Rung {
            workload: &self.workload,
            step_rps: self.step_rps,
            repeat: self.repeat,
            attempt: self.attempt,
            saturated: self.saturated,
        }
    }
}
