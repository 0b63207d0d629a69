//! Experiment `headroom`: what `tune` says that a client would carry with each setting, said at a modest
//! load and at the limit, held against what it does carry.

mod summary;

use std::time::{Duration, Instant};

use anyhow::Result;
use batchwise_core::tune::Arm;
use batchwise_core::tune::report::{Decision, DecisionEvent, Known};
use batchwise_testbed::process::now_ns;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::engine::color::{NAGLE, NODELAY};
use crate::engine::ratio::ENOUGH_PAIRS;
use crate::engine::text::{percent, thousands};
use crate::engine::{
    Experiment, Figure, Judgement, NoMore, Ratio, Report, Results, Round, Run, Strip, Table, Turn,
    Verdict,
};
use crate::real_client::{self, RealClient};
use crate::redis::Redis;
use summary::{Predicted, Summary};

pub struct Headroom;

const SIZES: [u32; 5] = [16, 64, 256, 1024, 4096];
/// Sizes of a quick run.
const QUICK: [u32; 2] = [64, 1024];
/// So few that the client waits for the server, …
const FEW: u32 = 4;
/// … and so many that it never does.
const MANY: u32 = 128;

/// Before anything is measured.
const WARM_UP: Duration = Duration::from_millis(700);
/// What a client carries is measured for so long.
const TIME: Duration = Duration::from_millis(1_500);
/// The first test ends within this time, or there is none.
const FIRST_TEST: Duration = Duration::from_secs(6);
const POLL: Duration = Duration::from_millis(20);

/// What a turn is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// What `tune` says while so many tasks run.
    Predicted(u32),
    /// What is carried with a setting.
    Carried(Arm),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    round: u32,
    value_size: u32,
    /// Requests a second that the client made, …
    rps: f64,
    /// … with this setting, many tasks, …
    carried: Option<Arm>,
    /// … or with so many and TCP_NODELAY; then what tune said that it would carry. Empty: it did not test.
    tasks: u32,
    predicted: Vec<(Arm, f64)>,
}

impl Experiment for Headroom {
    type Stage = Redis;
    type Arm = (u32, What);
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "headroom"
    }

    fn about(&self) -> &'static str {
        "the load that tune says both settings would carry, and the one that they do"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<(u32, What)>>> {
        let sizes = if quick { &QUICK[..] } else { &SIZES };
        let whats = [
            What::Predicted(FEW),
            What::Predicted(MANY),
            What::Carried(Arm::On),
            What::Carried(Arm::Off),
        ];
        let all: Vec<_> = sizes
            .iter()
            .flat_map(|&size| whats.map(|what| (size, what)))
            .collect();
        Ok(Round::shuffled(ENOUGH_PAIRS as u32, &all))
    }

    fn part(&self, (size, _): &(u32, What)) -> Option<String> {
        Some(format!("{size} B"))
    }

    fn stage(&self, context: &Context) -> Result<(Redis, Value)> {
        Redis::start(context, "headroom")
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        redis: &mut Redis,
        turn: Turn<'_, (u32, What)>,
    ) -> Result<Vec<Point>> {
        let (context, (value_size, what)) = (run.context, *turn.arm);
        let client = |tasks, nodelay| RealClient {
            tasks,
            value_size,
            gets: true,
            nodelay,
        };
        let (carried, tasks, (rps, predicted)) = match what {
            What::Carried(arm) => {
                let client = client(MANY, arm == Arm::Off).start(context, redis, TIME)?;
                context.stop.sleep(WARM_UP)?;
                let from = now_ns();
                context.stop.sleep(TIME)?;
                let to = now_ns();
                let told = client.end()?.between(from, to)?;
                (Some(arm), MANY, (told.rps, Vec::new()))
            }
            What::Predicted(tasks) => (None, tasks, predict(context, redis, client(tasks, true))?),
        };
        redis.server.check_alive()?;
        Ok(vec![Point {
            round: turn.round,
            value_size,
            rps,
            carried,
            tasks,
            predicted,
        }])
    }

    fn judge(&self, point: &Point) -> Judgement {
        let is_there = point.carried.is_some() || !point.predicted.is_empty();
        Judgement::valid_if(is_there, "tune made no test")
    }

    fn describe(&self, point: &Point) -> String {
        let said = |(arm, rps): &(Arm, f64)| format!(", {} {}", name(*arm), thousands(*rps));
        format!(
            "{} B, {} tasks, {}: {} requests/s{}",
            point.value_size,
            point.tasks,
            point.carried.map_or("tune", name),
            thousands(point.rps),
            point.predicted.iter().map(said).collect::<String>()
        )
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, results: &Results<Point, NoMore>, summary: &Summary) -> Report {
        let mut report = Report::new(
            "Headroom: what each setting would carry",
            format!(
                "redis-rs, GETs over one connection, on one CPU. With {FEW} tasks it waits for the server much of \
                 the time, with {MANY} never. After its first test tune says how many requests a second the client's \
                 CPU would carry with each setting. Measured: what it does carry with {MANY} tasks."
            ),
        )
        .heading("Summary")
        .table(table(&summary.points))
        .text(format!(
            "Medians over rounds, with 95 % bootstrap intervals. Median error at the modest load: {}; at the limit: {}.",
            percent(summary.median_error),
            percent(summary.median_error_at_limit)
        ));
        for of in summary.sizes() {
            let strip = |label, color, arm| {
                let pairs = summary::pairs_of(&results.points, (of, FEW, arm));
                Strip::new(label, color, &pairs)
            };
            report = report.figure(Figure::ratios(
                format!("headroom-{of}.svg"),
                format!("{of} B: predicted at a modest load over carried"),
                "ratio",
                vec![
                    strip("TCP_NODELAY", NODELAY, Arm::Off),
                    strip("Nagle", NAGLE, Arm::On),
                ],
            ));
        }
        report
    }
}

/// The client's rate before tune's first test, and what this said that each setting would carry,
/// requests a second.
fn predict(context: &Context, redis: &Redis, client: RealClient) -> Result<(f64, Vec<(Arm, f64)>)> {
    let client = client.start(context, redis, FIRST_TEST)?;
    context.stop.sleep(WARM_UP)?;
    let from = now_ns();
    // so that there is a rate before the test
    context.stop.sleep(WARM_UP)?;
    let agent = real_client::agent(context, redis, &["--policy", "throughput"])?;
    let end = Instant::now() + FIRST_TEST;
    let mut decisions: Vec<Decision> = Vec::new();
    let is_found = |d: &Decision| d.event.ends_test();
    while !decisions.iter().any(is_found) && Instant::now() < end {
        context.stop.sleep(POLL)?;
        decisions.extend(agent.take_lines());
    }
    let began = decisions.iter().find(|d| d.event == DecisionEvent::Probe);
    let to = began.map_or_else(now_ns, |d| d.ts_ns);
    decisions.extend(real_client::end(agent)?);
    let rps = client.end()?.between(from, to)?.rps;
    let probe = decisions.iter().find(|d| d.event == DecisionEvent::Probe);
    let found = decisions.iter().find(|d| is_found(d));
    let (Some(probe), Some(found)) = (probe, found) else {
        return Ok((rps, Vec::new()));
    };
    // what a message is to tune (a send call) and to the client (a request) may differ: bytes do not
    let load = probe.load_per_s * probe.message_bytes;
    let said = |arm, known: &Option<Known>| {
        let capacity = known.as_ref()?.capacity_per_s? * found.message_bytes;
        (load > 0.0).then_some((arm, rps * capacity / load))
    };
    let arms = [
        said(Arm::On, &found.arms.on),
        said(Arm::Off, &found.arms.off),
    ];
    Ok((rps, arms.into_iter().flatten().collect()))
}

fn name(arm: Arm) -> &'static str {
    match arm {
        Arm::On => "Nagle",
        Arm::Off => "TCP_NODELAY",
    }
}

fn table(points: &[Predicted]) -> Table {
    let rate = |of: Option<f64>| of.map_or_else(String::new, thousands);
    Table::of(
        points,
        &[
            ("", &|p| {
                format!("{} B, {} tasks, {}", p.value_size, p.tasks, name(p.arm))
            }),
            ("load at the test", &|p| rate(p.load_rps)),
            ("predicted", &|p| rate(p.predicted_rps)),
            ("carried", &|p| rate(p.carried_rps)),
            ("predicted / carried", &|p| Ratio::text(p.ratio.as_ref())),
            ("within 15 %", &|p| Verdict::name(p.verdict).into()),
        ],
    )
}
