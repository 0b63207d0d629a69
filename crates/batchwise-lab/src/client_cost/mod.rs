//! Experiment `client-cost`, the paper's Figure 2: the same 20,000 requests a second from a cheap
//! and from an expensive client, for which opposite settings are better.

mod search;
mod summary;

use std::time::Duration;

use anyhow::{Result, anyhow};
use batchwise_core::sense::report::Side;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::arm::{self, Arm};
use crate::engine::ratio::ENOUGH_PAIRS;
use crate::engine::text::{maybe_duration, percent, thousands};
use crate::engine::{
    Experiment, Figure, Judgement, Ratio, Report, Results, Round, Run, Strip, Table, Turn, Verdict,
};
use crate::redis::{Redis, steady};
use crate::tuner::nagle_share;
use batchwise_testbed::load::{LoadSpec, PhaseReport};
use search::{Grid, Setting, Trial, most_opposite};
use summary::{Summary, latencies, of};

/// Requests a second, as in the paper.
const RATE: u64 = 20_000;
/// The rate is given: what can be won is latency.
const POLICY: &str = "latency";
/// How long a setting is tried.
const TRIAL: Duration = Duration::from_millis(800);
/// Load before a trial or the window of a static arm.
const WARMUP: Duration = Duration::from_millis(300);
/// Load before the window with batchwise, whose agents know nothing yet.
const LEARNING: Duration = Duration::from_secs(1);
/// How long a point is measured.
const WINDOW: Duration = Duration::from_secs(2);

/// Counts as the latency where nothing was answered.
const UNANSWERED_NS: f64 = 1e10;

pub(crate) struct ClientCost;

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Client {
    /// Takes a response and is done.
    Cheap,
    /// Works on each response.
    Expensive,
}

impl Client {
    const BOTH: [Self; 2] = [Self::Cheap, Self::Expensive];

    fn name(self) -> &'static str {
        match self {
            Self::Cheap => "cheap",
            Self::Expensive => "expensive",
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    client: Client,
    arm: Arm,
    /// Points of one round are compared with each other.
    round: u32,
    saturated: bool,
    #[serde(flatten)]
    window: PhaseReport,
    /// With batchwise: for how much of the window Nagle's algorithm worked at the client.
    nagle_share: Option<f64>,
}

impl Point {
    /// Mean latency from the intended send time, ns; also of a collapse, which has a mean of its
    /// own unless nothing was answered.
    fn latency(&self) -> f64 {
        self.window.latency_ns.mean.min(UNANSWERED_NS)
    }
}

/// Fields beside the points.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct More {
    setting: Option<Setting>,
    trials: Vec<Trial>,
}

impl Experiment for ClientCost {
    type Stage = Redis;
    type Arm = (Client, Arm);
    type Point = Point;
    type More = More;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "client-cost"
    }

    fn about(&self) -> &'static str {
        "a cheap and an expensive client at one load: opposite answers (Figure 2)"
    }

    fn rounds(&self, _quick: bool) -> Result<Vec<Round<(Client, Arm)>>> {
        let arms = arm::chosen()?;
        let of = |client| arms.iter().map(move |&arm| (client, arm));
        let all: Vec<_> = Client::BOTH.into_iter().flat_map(of).collect();
        Ok(Round::shuffled(ENOUGH_PAIRS as u32, &all))
    }

    fn stage(&self, context: &Context) -> Result<(Redis, Value)> {
        let (redis, network) = Redis::start(context, "client-cost")?;
        // What a packet costs its receiver must be paid by the receiver: that is what batching saves.
        redis.hosts.receive_on_own_cpus()?;
        Ok((redis, network))
    }

    /// Looks for the setting.
    fn prepare(&self, run: &mut Run<'_, More>, redis: &mut Redis) -> Result<()> {
        if run.more.setting.is_some() {
            return Ok(());
        }
        run.more.trials.clear();
        let grid = Grid::new(run.context.quick);
        for (setting, arm) in grid.trials() {
            let load = load(redis, arm, setting, &[TRIAL]);
            let (window, _) = redis.last_phase(run.context, &load)?;
            let mean_ns = window.latency_ns.mean;
            let (name, mean) = (arm.name(), maybe_duration(Some(mean_ns)));
            run.note(&format!(
                "trying {} B, {:?} a response, {name}: {mean}",
                setting.value_size,
                setting.busy()
            ));
            run.more.trials.push(Trial {
                setting,
                arm,
                mean_ns,
                saturated: window.saturated(),
            });
        }
        redis.server.check_alive()?;
        run.more.setting = most_opposite(&grid, &run.more.trials);
        Ok(())
    }

    fn measure(
        &self,
        run: &mut Run<'_, More>,
        redis: &mut Redis,
        turn: Turn<'_, (Client, Arm)>,
    ) -> Result<Vec<Point>> {
        let setting = run.more.setting;
        let setting = setting
            .ok_or_else(|| anyhow!("no setting was tried with both clients and both arms"))?;
        let (client, arm) = *turn.arm;
        let setting = match client {
            Client::Cheap => setting.cheap(),
            Client::Expensive => setting,
        };
        let phases: &[_] = match arm {
            Arm::Batchwise => &[LEARNING, WINDOW],
            _ => &[WINDOW],
        };
        let load = load(redis, arm, setting, phases);
        let label = format!("{}-{}", client.name(), turn.round + 1);
        let agents = (arm, POLICY, label.as_str());
        let measured = redis.tuned(run.context, agents, || redis.last_phase(run.context, &load));
        let ((window, _), decisions) = measured?;
        redis.server.check_alive()?;
        let (from, to) = (window.from_ts_ns, window.to_ts_ns);
        Ok(vec![Point {
            client,
            arm,
            round: turn.round,
            saturated: window.saturated(),
            nagle_share: nagle_share(&decisions, Side::Client, from, to),
            window,
        }])
    }

    /// What cannot be carried overwhelms the generator, too; that is an answer here.
    fn judge(&self, point: &Point) -> Judgement {
        let (valid, why) = (point.window.valid, point.window.why_invalid.join(", "));
        Judgement::valid_if(point.saturated || valid, why)
    }

    fn describe(&self, point: &Point) -> String {
        let (client, arm) = (point.client.name(), point.arm.name());
        let latency = maybe_duration(Some(point.latency()));
        format!("{client} client, {arm}: {latency}")
    }

    fn summary(&self, results: &Results<Point, More>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, results: &Results<Point, More>, summary: &Summary) -> Report {
        let lead = format!(
            "{} requests/s on one connection, open loop, from a client that is done with a response \
             at once and from one that works on it. To the server both are the same.",
            thousands(RATE as f64)
        );
        let setting = results.more.setting.map_or_else(String::new, |setting| {
            format!(
                "SETs of {} B; the expensive client works {} µs on each response. Of the settings \
                 that were tried with the static arms, this one has the most opposite answers.",
                setting.value_size,
                setting.busy().as_micros()
            )
        });
        Report::new("Client cost: the same load, opposite answers", lead)
            .heading("Summary")
            .text(answer(summary))
            .text(setting)
            .table(clients(summary))
            .text(
                "Mean latency from the intended send time, medians over rounds. Ratios are medians \
                 of the rounds' ratios with a 95 % bootstrap interval. Agents run with --policy \
                 latency and start anew for each point. Packets are processed on the CPU of the \
                 host that receives them, as a network card's interrupts would have it.",
            )
            .figure(ratio_plot(&results.points))
    }
}

fn answer(summary: &Summary) -> String {
    let of = |what: &str, verdict: Verdict, [yes, no]: [&str; 2]| {
        let text = match verdict {
            Verdict::Met => yes,
            Verdict::Missed => no,
            Verdict::Undecided => "**undecided**: too few rounds, or too close",
        };
        format!("{what}: {text}.")
    };
    let right = ["with both clients", "not with both clients"];
    let flips = ["yes", "no, in no setting that was tried"];
    let flips = of(
        "The answer flips with the client",
        summary.flips_verdict,
        flips,
    );
    let chose = summary.chose_right_verdict;
    flips + " " + &of("Batchwise had the better arm", chose, right)
}

fn clients(summary: &Summary) -> Table {
    type Row<'a> = (&'a Client, &'a summary::ClientSummary);
    let mean = |row: &Row, arm| maybe_duration(row.1.mean_ns.get(&arm).copied());
    Table::of(
        &summary.per_client,
        &[
            ("client", &|row| row.0.name().into()),
            ("TCP_NODELAY", &|row| mean(row, Arm::Nodelay)),
            ("Nagle", &|row| mean(row, Arm::Nagle)),
            ("batchwise", &|row| mean(row, Arm::Batchwise)),
            ("Nagle / TCP_NODELAY", &|row| {
                Ratio::text(row.1.nagle_interval.as_ref())
            }),
            ("batchwise / better", &|row| {
                Ratio::text(row.1.batchwise_interval.as_ref())
            }),
            ("within 5 %", &|row| row.1.verdict.name().into()),
            ("batchwise had Nagle on", &|row| percent(row.1.nagle_share)),
        ],
    )
}

fn ratio_plot(points: &[Point]) -> Figure {
    let strip = |client: Client| {
        let pairs = latencies(&of(points, client), Arm::Nagle, Arm::Nodelay);
        // A collapse would leave no room for the rest.
        let cut = |&(nagle, nodelay): &(f64, f64)| ((nagle / nodelay).clamp(0.1, 10.0), 1.0);
        let color = match client {
            Client::Cheap => Arm::Nodelay.color(),
            Client::Expensive => Arm::Nagle.color(),
        };
        let pairs: Vec<_> = pairs.iter().map(cut).collect();
        Strip::new(format!("{} client", client.name()), color, &pairs)
    };
    let title = "Latency with Nagle over that with TCP_NODELAY (cut at 10)";
    let strips = Client::BOTH.map(strip).into();
    Figure::ratios("nagle-over-nodelay.svg", title, "latency ratio", strips)
}

fn load(redis: &Redis, arm: Arm, setting: Setting, phases: &[Duration]) -> LoadSpec {
    let phase = |&time| steady(time, RATE, setting.value_size);
    let phases = phases.iter().map(phase);
    LoadSpec {
        busy_per_response: setting.busy(),
        ..redis.load(arm, WARMUP, phases.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::summary::tests::point;
    use super::*;
    use crate::engine::draw;

    #[test]
    fn the_plot_has_both_clients_also_when_one_collapses() {
        let points = [
            point(Client::Cheap, Arm::Nodelay, 0, 60.0, None),
            point(Client::Cheap, Arm::Nagle, 0, 50.0, None),
            point(Client::Expensive, Arm::Nodelay, 0, 200.0, None),
            point(Client::Expensive, Arm::Nagle, 0, 90_000.0, None),
        ];
        let svg = draw::svg(&ratio_plot(&points)).unwrap();
        assert!(svg.contains("cheap client, median 0.833"));
        assert!(svg.contains("expensive client, median 10.000"));
        assert!(answer(&Summary::of(&points)).contains("flips with the client: **undecided**"));
    }
}
