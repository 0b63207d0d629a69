//! Experiment `multiplexed`: a real client, redis-rs, with many tasks over one connection, as its
//! application asked for it, with the other setting by hand, and with `batchwise tune` at the client
//! alone. Connections are older or younger than the agent, whose learning is part of what is measured.

mod summary;

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_core::tune::report::{Decision, DecisionEvent};
use batchwise_testbed::process::now_ns;
use batchwise_testbed::topology::TwoHosts;
use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::engine::color::{BATCHWISE, NAGLE};
use crate::engine::{
    Experiment, Figure, NoMore, Ratio, Report, Results, Round, Run, Strip, Table, Turn,
};
use crate::real_client::{self, RealClient, Reports, Running};
use crate::redis::Redis;
use summary::{Compared, Summary};

pub struct Multiplexed;

/// What the client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Load {
    pub tasks: u32,
    pub value_size: u32,
    pub gets: bool,
    /// The server is 0.3 ms away.
    #[serde(default)]
    pub far: bool,
}

/// Who sees to Nagle's algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// The application: nobody else.
    Own,
    /// An agent that holds the other setting, as one would by hand.
    Other,
    /// `batchwise tune`.
    Tune,
}

impl Arm {
    const ALL: [Self; 3] = [Self::Own, Self::Other, Self::Tune];
}

/// A client, and what its application asked for: all arms in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    load: Load,
    /// The application asked for TCP_NODELAY.
    nodelay: bool,
    /// Its connection was there before the agent: one client and one connection for all arms. Younger
    /// than the agent, each arm has its own.
    older: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub round: u32,
    pub load: Load,
    pub nodelay: bool,
    pub older: bool,
    pub arm: Arm,
    /// Requests a second, in the mean of the whole time.
    pub rps: f64,
    /// Median over intervals of 100 ms of their medians.
    pub p50_ns: f64,
    /// What the agent decided.
    pub events: Vec<DecisionEvent>,
}

/// Of each arm, from when the agent is there.
const TIME: Duration = Duration::from_secs(4);
const WARM_UP: Duration = Duration::from_secs(1);

/// The delay of a link that is not plain.
const DELAY: Duration = Duration::from_micros(300);

const fn gets(tasks: u32, value_size: u32) -> Load {
    Load {
        tasks,
        value_size,
        gets: true,
        far: false,
    }
}

const fn far(load: Load) -> Load {
    Load { far: true, ..load }
}

const QUICK: &[Load] = &[gets(64, 64), far(gets(64, 64))];
const ALL: &[Load] = &[
    gets(64, 64),
    gets(1, 64),
    gets(8, 64),
    gets(256, 64),
    gets(64, 1024),
    gets(64, 4096),
    Load {
        gets: false,
        ..gets(64, 64)
    },
    Load {
        gets: false,
        ..gets(64, 4096)
    },
    far(gets(8, 64)),
    far(gets(64, 64)),
    far(gets(256, 64)),
];

/// Two servers, and two hosts for each.
pub struct Stage {
    near: Redis,
    far: Redis,
}

impl Setup {
    fn client(&self) -> RealClient {
        RealClient {
            tasks: self.load.tasks,
            value_size: self.load.value_size,
            gets: self.load.gets,
            nodelay: self.nodelay,
        }
    }

    /// What an agent is told.
    fn agent(&self, arm: Arm) -> Option<[&'static str; 2]> {
        match arm {
            Arm::Own => None,
            Arm::Other if self.nodelay => Some(["--hold", "on"]),
            Arm::Other => Some(["--hold", "off"]),
            Arm::Tune => Some(["--policy", "throughput"]),
        }
    }
}

impl Load {
    pub fn name(self) -> String {
        let what = if self.gets { "GET" } else { "SET" };
        let link = if self.far { ", 0.3 ms away" } else { "" };
        format!("{} tasks, {what} {} B{link}", self.tasks, self.value_size)
    }
}

impl Experiment for Multiplexed {
    type Stage = Stage;
    type Arm = Setup;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "multiplexed"
    }

    fn about(&self) -> &'static str {
        "a real client, redis-rs over one connection: both settings by hand, and tune"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Setup>>> {
        let loads = if quick { QUICK } else { ALL };
        let mut setups = Vec::new();
        for &load in loads {
            // younger ones are the easier case: once, of the first load
            let younger = [(true, false), (false, false)];
            let younger = younger.into_iter().filter(|_| !quick && load == ALL[0]);
            for (nodelay, older) in [(true, true), (false, true)].into_iter().chain(younger) {
                setups.push(Setup {
                    load,
                    nodelay,
                    older,
                });
            }
        }
        Ok(Round::shuffled(15, &setups))
    }

    fn part(&self, setup: &Setup) -> Option<String> {
        let age = if setup.older { "" } else { ", younger" };
        Some(setup.load.name() + age)
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        let (near, network) = Redis::start(context, "multiplexed")?;
        let hosts = TwoHosts::build_apart("multiplexed-far", DELAY)?;
        let far = Redis::start_on(context, hosts)?;
        Ok((Stage { near, far }, network))
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        stage: &mut Stage,
        turn: Turn<'_, Setup>,
    ) -> Result<Vec<Point>> {
        let (context, setup) = (run.context, turn.arm);
        let stage = match setup.load.far {
            true => &mut stage.far,
            false => &mut stage.near,
        };
        let whole = (WARM_UP + TIME) * Arm::ALL.len() as u32;
        let client = || setup.client().start(context, stage, whole);
        let mut order = Arm::ALL;
        order.shuffle(&mut rand::rng());
        let shared = setup.older.then(client).transpose()?;
        let mut done = Vec::new();
        for arm in order {
            // what the arm before has left behind is over
            context.stop.sleep(WARM_UP)?;
            let agent = setup.agent(arm);
            let agent = agent.map(|options| real_client::agent(context, stage, &options));
            let agent = agent.transpose()?;
            let own = (!setup.older).then(client).transpose()?;
            // the time of an agent begins when it is there: it has not decided anything yet
            let from = now_ns();
            context.stop.sleep(TIME)?;
            let to = now_ns();
            let events = agent.map_or_else(|| Ok(Vec::new()), real_client::end)?;
            let own = own.map(Running::end).transpose()?;
            done.push((arm, from..to, events, own));
        }
        let shared = shared.map(Running::end).transpose()?;
        stage.server.check_alive()?;
        let point =
            |(arm, time, events, own): (Arm, Range<u64>, Vec<Decision>, Option<Reports>)| {
                let reports = own.as_ref().or(shared.as_ref());
                let told = reports.context("no client was started")?;
                let told = told.between(time.start, time.end)?;
                Ok(Point {
                    round: turn.round,
                    load: setup.load,
                    nodelay: setup.nodelay,
                    older: setup.older,
                    arm,
                    rps: told.rps,
                    p50_ns: told.p50_ns,
                    events: events.into_iter().map(|decision| decision.event).collect(),
                })
            };
        done.into_iter().map(point).collect()
    }

    fn describe(&self, point: &Point) -> String {
        let asked = if point.nodelay {
            "TCP_NODELAY"
        } else {
            "Nagle"
        };
        let age = if point.older { "older" } else { "younger" };
        format!(
            "round {}, {}, asked for {asked}, {age}, {:?}: {:.0} requests/s, p50 {:.0} us",
            point.round + 1,
            point.load.name(),
            point.arm,
            point.rps,
            point.p50_ns / 1e3
        )
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, results: &Results<Point, NoMore>, summary: &Summary) -> Report {
        let mut report = Report::new(
            "Multiplexed: a real client, and the setting that it did not ask for",
            "redis-rs, tasks over one connection in a closed loop, tokio's multi-threaded runtime with \
             one thread; Redis; a plain link, and one on which requests take 0.3 ms. The agent runs at the client alone, and its learning is \
             part of what is measured.",
        )
        .heading("Throughput")
        .table(table(&summary.points, |c| [c.other_vs_own, c.tune_vs_own, c.tune_vs_better]))
        .heading("Median latency")
        .table(table(&summary.points, |c| {
            [c.p50_other_vs_own, c.p50_tune_vs_own, c.p50_tune_vs_better]
        }))
        .text(
            "Medians over rounds of paired ratios, with 95 % bootstrap intervals. The better setting is the one \
             whose median over rounds is better.",
        );
        for (number, compared) in summary.points.iter().enumerate() {
            let strip = |label, color, arm| {
                let pairs =
                    summary::pairs_of(&results.points, &compared.key(), arm, Arm::Own, |p| p.rps);
                Strip::new(label, color, &pairs)
            };
            report = report.figure(Figure::ratios(
                format!("throughput-{}.svg", number + 1),
                format!(
                    "{}: throughput over the application's own setting",
                    compared.name()
                ),
                "ratio",
                vec![
                    strip("the other by hand", NAGLE, Arm::Other),
                    strip("tune", BATCHWISE, Arm::Tune),
                ],
            ));
        }
        report
    }
}

fn table(points: &[Compared], ratios: fn(&Compared) -> [Option<Ratio>; 3]) -> Table {
    let text = |c: &Compared, which: usize| Ratio::text(ratios(c)[which].as_ref());
    Table::of(
        points,
        &[
            ("", &|c| c.name()),
            ("other by hand / own", &|c| text(c, 0)),
            ("tune / own", &|c| text(c, 1)),
            ("tune / better of both", &|c| text(c, 2)),
        ],
    )
}
