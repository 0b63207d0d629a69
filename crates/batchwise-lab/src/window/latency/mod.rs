//! Experiment `window-latency`, the paper's Figure 1 with real TCP: clients download and pause, over a link of
//! 100 Mbit/s that is the bottleneck; how old is what arrives, and does the link stay full? By what the server
//! writes by.

mod summary;

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use batchwise_testbed::host::Role;
use batchwise_testbed::lines::Printing;
use batchwise_testbed::topology::TwoHosts;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{DELAY, END, QUEUE, RATE, agent, last, narrow};
use crate::Context;
use crate::engine::color::{BATCHWISE, BLACK, Color, GREY, NAGLE, NODELAY, PARTS};
use crate::engine::ratio::ENOUGH_PAIRS;
use crate::engine::text::{duration, thousands};
use crate::engine::{
    Axis, Experiment, Figure, NoMore, Ratio, Report, Results, Round, Run, Table, Turn, Unit,
    Verdict,
};
use summary::{Compared, Summary};

pub struct WindowLatency;

const PORT: u16 = 7070;
/// The ten arms have more lines than there are colours of others.
const KIST_NO_SLACK: Color = Color(200, 160, 40);
/// Before what is measured: connections have left slow start.
const WARM_UP: u64 = 3;
/// After it, so that the server outlives its clients.
const GRACE: u64 = 2;

/// What the server writes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    Default,
    Lowat16k,
    Lowat1,
    Kist10,
    Kist2,
    /// The same without the window that its formula hands over beyond what there is room for.
    Kist2NoSlack,
    H2o,
    /// The default, behind `batchwise window --gate`.
    Gate,
    /// The library without its agent.
    Alone,
    /// `batchwise window`.
    Window,
}

impl Arm {
    pub const ALL: [Self; 10] = [
        Self::Default,
        Self::Lowat16k,
        Self::Lowat1,
        Self::Kist10,
        Self::Kist2,
        Self::Kist2NoSlack,
        Self::H2o,
        Self::Gate,
        Self::Alone,
        Self::Window,
    ];

    /// For `load downloads-server --policy`.
    fn policy(self) -> &'static str {
        match self {
            Self::Default | Self::Gate => "default",
            Self::Lowat16k => "lowat:16384",
            Self::Lowat1 => "lowat:1",
            Self::Kist10 => "kist:10ms",
            Self::Kist2 => "kist:2ms",
            Self::Kist2NoSlack => "kist:2ms:0",
            Self::H2o => "h2o",
            Self::Alone | Self::Window => "window",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Lowat16k => "TCP_NOTSENT_LOWAT 16 KiB",
            Self::Lowat1 => "TCP_NOTSENT_LOWAT 1",
            Self::Kist10 => "KIST, 10 ms",
            Self::Kist2 => "KIST, 2 ms",
            Self::Kist2NoSlack => "KIST, 2 ms, no slack",
            Self::H2o => "h2o",
            Self::Gate => "default, gated",
            Self::Alone => "library alone",
            Self::Window => "batchwise window",
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub round: u32,
    pub arm: Arm,
    /// What the clients got.
    pub bytes_per_s: f64,
    /// Median age of what arrives: since the server decided about it.
    pub age_ns: f64,
    /// A record that a client on a connection of its own asks for.
    pub ping_ns: f64,
    /// Bytes that wait in the server's kernel, a connection with a download.
    pub unsent_bytes: f64,
    /// TCP_INFO and the like, a megabyte that was sent.
    pub asked_per_mb: f64,
    /// Writes, a megabyte.
    pub writes_per_mb: f64,
    /// The server's CPU time, ns a megabyte.
    pub cpu_ns_per_mb: f64,
    /// Mean age by 100 ms, ns.
    pub age_series_ns: Vec<Option<f64>>,
    /// What 0 %, 1 %, … 100 % of the ages do not exceed, ns.
    #[serde(default)]
    pub age_percentiles_ns: Vec<f64>,
}

impl Experiment for WindowLatency {
    type Stage = TwoHosts;
    type Arm = Arm;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "window-latency"
    }

    fn about(&self) -> &'static str {
        "how old data is when it arrives, by what its server writes by (Figure 1 of paper 3)"
    }

    fn rounds(&self, _quick: bool) -> Result<Vec<Round<Arm>>> {
        Ok(Round::shuffled(ENOUGH_PAIRS as u32, &Arm::ALL))
    }

    fn part(&self, arm: &Arm) -> Option<String> {
        Some(arm.label().to_owned())
    }

    fn stage(&self, _context: &Context) -> Result<(TwoHosts, Value)> {
        narrow("window")
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        hosts: &mut TwoHosts,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let (context, arm) = (run.context, *turn.arm);
        let seconds: u64 = if context.quick { 4 } else { 20 };
        let socket = context.output.dir().join("window.sock");
        let gate = PORT.to_string();
        let start = |args: &[&str]| agent(context, &hosts.server, &socket, args).map(Some);
        let agent = match arm {
            Arm::Window => start(&[])?,
            Arm::Gate => start(&["--gate", &gate])?,
            _ => None,
        };
        let address = hosts.server_address(PORT).to_string();
        let mut command = Command::new(&context.command);
        let whole = WARM_UP + seconds + GRACE;
        command.args([
            "load",
            "downloads-server",
            "--format",
            "json",
            "--addr",
            &address,
        ]);
        command.args(["--policy", arm.policy(), "--duration", &format!("{whole}s")]);
        command.arg("--unsent");
        command.env("BATCHWISE_WINDOW_SOCKET", &socket);
        let server: Printing<Value> =
            Printing::start(&hosts.server, "the server", command, Role::Workload)?;
        context.stop.sleep(Duration::from_millis(300))?;
        let mut command = Command::new(&context.command);
        command.args(["load", "downloads", "--format", "json", "--addr", &address]);
        command.args([
            "--warmup",
            &format!("{WARM_UP}s"),
            "--duration",
            &format!("{seconds}s"),
        ]);
        let clients: Printing<Value> =
            Printing::start(&hosts.client, "the clients", command, Role::Workload)?;
        context.stop.sleep(Duration::from_secs(WARM_UP + seconds))?;
        let seen = last(clients, "the clients", context)?;
        let did = last(server, "the server", context)?;
        if let Some(agent) = agent {
            agent.finish(END)?;
        }
        let number = |of: &Value, name: &str| of[name].as_f64().unwrap_or(f64::NAN);
        let megabytes = number(&did, "bytes") / 1e6;
        let latency = |name: &str| number(&seen[name], "p50");
        Ok(vec![Point {
            round: turn.round,
            arm,
            bytes_per_s: number(&seen, "bytes_per_s"),
            age_ns: latency("age_ns"),
            ping_ns: latency("ping_ns"),
            unsent_bytes: number(&did, "unsent_bytes"),
            asked_per_mb: number(&did, "asked") / megabytes,
            writes_per_mb: number(&did, "writes") / megabytes,
            cpu_ns_per_mb: number(&did, "cpu_ns") / megabytes,
            age_series_ns: serde_json::from_value(seen["age_series_ns"].clone())?,
            age_percentiles_ns: serde_json::from_value(seen["age_percentiles_ns"].clone())?,
        }])
    }

    fn describe(&self, point: &Point) -> String {
        format!(
            "{}: age {}, {}B/s, {:.0} B waited",
            point.arm.label(),
            duration(point.age_ns),
            thousands(point.bytes_per_s),
            point.unsent_bytes
        )
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, results: &Results<Point, NoMore>, summary: &Summary) -> Report {
        let color = |arm| match arm {
            Arm::Default => GREY,
            Arm::Lowat16k => PARTS[0],
            Arm::Lowat1 => NODELAY,
            Arm::Kist10 => PARTS[2],
            Arm::Kist2 => NAGLE,
            Arm::Kist2NoSlack => KIST_NO_SLACK,
            Arm::H2o => PARTS[1],
            Arm::Gate => BLACK,
            Arm::Alone => PARTS[3],
            Arm::Window => BATCHWISE,
        };
        let axis = || Axis::new("mean age of what arrives", Unit::Duration).log();
        let mut figure = Figure::over_time(
            "age.svg",
            "How old data is when it arrives, first round",
            axis(),
        );
        let age = Axis::new("age of what arrives", Unit::Duration).log();
        let title = "How much of what arrives is how old, first round";
        let mut shares = Figure::distribution("shares.svg", title, age, "of what arrives");
        for point in results.points.iter().filter(|p| p.round == 0) {
            let of_age = (0..).map(|percent| f64::from(percent) / 100.0);
            let ages = point.age_percentiles_ns.iter().copied();
            shares = shares.line(
                point.arm.label(),
                color(point.arm),
                ages.zip(of_age).filter(|(age, _)| *age > 0.0).collect(),
            );
            let series = point.age_series_ns.iter().enumerate();
            let at = |(step, age): (usize, &Option<f64>)| Some((step as f64 / 10.0, (*age)?));
            figure = figure.line(
                point.arm.label(),
                color(point.arm),
                series.filter_map(at).collect(),
            );
        }
        Report::new(
            "Window space: how old data is when it arrives",
            format!(
                "25 clients download 10 MiB each, pause for 1 to 3 s, and download again, over a link of {RATE} that queues \
                 {QUEUE}; {} ms from the clients to the server; cubic. Each record of 1 KiB says when the server wrote it.",
                DELAY.as_millis()
            ),
        )
        .heading("Summary")
        .table(table(&summary.arms))
        .text(
            "Medians over rounds; ratios with 95 % bootstrap intervals. Age: since the server decided about the bytes. \
             Waiting: bytes in the server's kernel, a connection with a download, asked every 10 ms.",
        )
        .figure(figure)
        .figure(shares)
    }
}

fn table(arms: &[Compared]) -> Table {
    Table::of(
        arms,
        &[
            ("", &|c| c.arm.label().to_owned()),
            ("age, median", &|c| duration(c.age_ns)),
            ("/ default", &|c| Ratio::text(c.age_vs_default.as_ref())),
            ("waiting", &|c| format!("{:.0} B", c.unsent_bytes)),
            ("carried / default", &|c| {
                Ratio::text(c.carried_vs_default.as_ref())
            }),
            ("≥ 99 %", &|c| Verdict::name(c.carried_verdict).into()),
            ("ping", &|c| duration(c.ping_ns)),
            ("TCP_INFO a MB", &|c| format!("{:.1}", c.asked_per_mb)),
            ("writes a MB", &|c| format!("{:.0}", c.writes_per_mb)),
            ("CPU a MB", &|c| duration(c.cpu_ns_per_mb)),
        ],
    )
}
