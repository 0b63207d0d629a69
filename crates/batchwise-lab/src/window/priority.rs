//! Experiment `window-priority`: an HTTP/2 server on hyper sends a download without an end, and small responses on
//! the same connection. How long until the first byte of one, by what the server's stream is wrapped in?

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use batchwise_testbed::host::Role;
use batchwise_testbed::lines::Printing;
use batchwise_testbed::topology::{LINK, TwoHosts};
use batchwise_testbed::wire::WireSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{END, QUEUE, agent, last};
use crate::Context;
use crate::engine::color::{BATCHWISE, GREY, NODELAY};
use crate::engine::ratio::ENOUGH_PAIRS;
use crate::engine::text::{duration, thousands};
use crate::engine::{
    Axis, Experiment, Figure, NoMore, Ratio, Report, Results, Round, Run, Table, Turn, Unit,
    Verdict, pairs,
};
use crate::stats::median;

pub struct WindowPriority;

const PORT: u16 = 7073;
/// Before what is measured: connections have left slow start.
const WARM_UP: u64 = 2;
/// The first byte must come so many times sooner on the slowest link, …
const SOONER: f64 = 5.0;
/// … and this share of the download be carried.
const FULL: f64 = 0.98;

/// A link: Mbit/s, and ms from the client to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Link {
    pub mbit: u32,
    pub delay_ms: u32,
}

const QUICK: [Link; 3] = [link(10, 20), link(100, 20), link(1000, 5)];
const FULL_RUN: [Link; 9] = [
    link(10, 5),
    link(10, 20),
    link(10, 100),
    link(100, 5),
    link(100, 20),
    link(100, 100),
    link(1000, 5),
    link(1000, 20),
    link(1000, 100),
];
/// The link that the bars are about.
const JUDGED: Link = link(10, 20);

const fn link(mbit: u32, delay_ms: u32) -> Link {
    Link { mbit, delay_ms }
}

impl Link {
    fn label(self) -> String {
        format!("{} Mbit/s, {} ms", self.mbit, self.delay_ms)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wrap {
    None,
    Lowat,
    Window,
}

impl Wrap {
    const ALL: [Self; 3] = [Self::None, Self::Lowat, Self::Window];

    /// For `load priority-server --wrap`.
    fn option(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lowat => "lowat",
            Self::Window => "window",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::None => "default",
            Self::Lowat => "TCP_NOTSENT_LOWAT 16 KiB",
            Self::Window => "batchwise window",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Arm {
    #[serde(flatten)]
    pub link: Link,
    pub wrap: Wrap,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub round: u32,
    #[serde(flatten)]
    pub arm: Arm,
    /// From an urgent request to the head of its response, median and 99th percentile.
    pub first_byte_ns: f64,
    pub first_byte_p99_ns: f64,
    /// Of the download.
    pub bytes_per_s: f64,
}

/// A way on a link. Medians over rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    #[serde(flatten)]
    pub arm: Arm,
    pub first_byte_ns: f64,
    pub first_byte_p99_ns: f64,
    /// The default's over this, with its 95 % interval.
    pub sooner: Option<Ratio>,
    pub bytes_per_s: f64,
    /// Over the default's, with its 95 % interval.
    pub carried: Option<Ratio>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// First byte with the default over that with `batchwise window`, at 10 Mbit/s and 20 ms, …
    pub first_byte_ratio: Option<f64>,
    pub first_byte_ratio_interval: Option<Ratio>,
    /// … and whether that is at least 5.
    pub first_byte_verdict: Verdict,
    /// The download's rate there, over the default's, …
    pub bulk: Option<f64>,
    pub bulk_interval: Option<Ratio>,
    /// … and whether that is at least 98 %.
    pub bulk_verdict: Verdict,
    pub arms: Vec<Compared>,
}

impl Experiment for WindowPriority {
    type Stage = TwoHosts;
    type Arm = Arm;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "window-priority"
    }

    fn about(&self) -> &'static str {
        "an urgent response beside a download on one HTTP/2 connection: how long until its first byte?"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Arm>>> {
        let links = if quick { &QUICK[..] } else { &FULL_RUN };
        let arms = links
            .iter()
            .flat_map(|&link| Wrap::ALL.map(|wrap| Arm { link, wrap }));
        let arms: Vec<_> = arms.collect();
        Ok(Round::shuffled(ENOUGH_PAIRS as u32, &arms))
    }

    fn part(&self, arm: &Arm) -> Option<String> {
        Some(arm.link.label())
    }

    fn stage(&self, _context: &Context) -> Result<(TwoHosts, Value)> {
        let hosts = TwoHosts::build_apart("wprio", Duration::ZERO)?;
        let network = serde_json::to_value(hosts.settings()?)?;
        Ok((hosts, network))
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        hosts: &mut TwoHosts,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let (context, arm) = (run.context, *turn.arm);
        let seconds: u64 = if context.quick { 3 } else { 6 };
        let Link { mbit, delay_ms } = arm.link;
        hosts.server.namespace().tc(&format!(
            "qdisc replace dev {LINK} root tbf rate {mbit}mbit burst 64kb limit {QUEUE}"
        ))?;
        let delay = Duration::from_millis(delay_ms.into());
        hosts.set_wire(&WireSpec::delaying(delay, Duration::ZERO));
        let socket = context.output.dir().join("window.sock");
        let agent = match arm.wrap {
            Wrap::Window => Some(agent(context, &hosts.server, &socket, &[])?),
            _ => None,
        };
        let address = hosts.server_address(PORT).to_string();
        let mut command = Command::new(&context.command);
        command.args(["load", "priority-server", "--addr", &address]);
        command.args(["--wrap", arm.wrap.option()]);
        let whole = format!("{}s", WARM_UP + seconds + END.as_secs());
        command.args(["--duration", &whole]);
        command.env("BATCHWISE_WINDOW_SOCKET", &socket);
        let server = Printing::start_text(&hosts.server, "the server", command, Role::Workload)?;
        context.stop.sleep(Duration::from_millis(300))?;
        let mut command = Command::new(&context.command);
        command.args(["load", "priority", "--format", "json", "--addr", &address]);
        command.args(["--warmup", &format!("{WARM_UP}s")]);
        command.args(["--duration", &format!("{seconds}s")]);
        let client: Printing<Value> =
            Printing::start(&hosts.client, "the client", command, Role::Workload)?;
        context.stop.sleep(Duration::from_secs(WARM_UP + seconds))?;
        let seen = last(client, "the client", context)?;
        drop(server);
        if let Some(agent) = agent {
            agent.finish(END)?;
        }
        let number = |of: &Value| of.as_f64().unwrap_or(f64::NAN);
        Ok(vec![Point {
            round: turn.round,
            arm,
            first_byte_ns: number(&seen["first_byte_ns"]["p50"]),
            first_byte_p99_ns: number(&seen["first_byte_ns"]["p99"]),
            bytes_per_s: number(&seen["bytes_per_s"]),
        }])
    }

    fn describe(&self, point: &Point) -> String {
        format!(
            "{}, {}: first byte after {}, {}B/s",
            point.arm.link.label(),
            point.arm.wrap.label(),
            duration(point.first_byte_ns),
            thousands(point.bytes_per_s),
        )
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, _results: &Results<Point, NoMore>, summary: &Summary) -> Report {
        let table = Table::of(
            &summary.arms,
            &[
                ("link", &|c| c.arm.link.label()),
                ("", &|c| c.arm.wrap.label().to_owned()),
                ("first byte", &|c| duration(c.first_byte_ns)),
                ("p99", &|c| duration(c.first_byte_p99_ns)),
                ("times sooner", &|c| Ratio::text(c.sooner.as_ref())),
                ("download", &|c| format!("{}B/s", thousands(c.bytes_per_s))),
                ("/ default", &|c| Ratio::text(c.carried.as_ref())),
            ],
        );
        Report::new(
            "Window space: an urgent response beside a download",
            format!(
                "One HTTP/2 connection (hyper), a download without an end, and each 100 ms a request for 200 bytes. The link \
                 is the server's own, and queues {QUEUE}; cubic."
            ),
        )
        .heading("Summary")
        .table(table)
        .text("Medians over rounds; ratios with 95 % bootstrap intervals, against the default on the same link.")
        .figure(figure(&summary.arms))
    }
}

/// Each way's first byte by link.
fn figure(arms: &[Compared]) -> Figure {
    let mut links: Vec<Link> = arms.iter().map(|c| c.arm.link).collect();
    links.dedup();
    let x = Axis::names("", links.iter().map(|link| link.label()));
    let y = Axis::new("to the first byte, median", Unit::Duration).log();
    let empty = Figure::new("first-byte.svg", "How long an urgent response takes", x, y);
    let ways = Wrap::ALL.into_iter().zip([GREY, NODELAY, BATCHWISE]);
    ways.fold(empty, |figure, (wrap, color)| {
        let at = |c: &Compared| {
            let position = links.iter().position(|link| *link == c.arm.link)?;
            Some((position as f64, c.first_byte_ns))
        };
        let of_way = arms.iter().filter(|c| c.arm.wrap == wrap);
        figure.measured(wrap.label(), color, of_way.filter_map(at).collect())
    })
}

impl Summary {
    fn of(points: &[Point]) -> Self {
        let mut arms: Vec<Arm> = points.iter().map(|p| p.arm).collect();
        arms.sort_unstable();
        arms.dedup();
        let arms: Vec<_> = arms
            .into_iter()
            .map(|arm| Compared::of(points, arm))
            .collect();
        let judged = arms
            .iter()
            .find(|c| c.arm.link == JUDGED && c.arm.wrap == Wrap::Window);
        let (sooner, bulk) = (
            judged.and_then(|c| c.sooner),
            judged.and_then(|c| c.carried),
        );
        Self {
            first_byte_ratio: sooner.map(|r| r.median),
            first_byte_verdict: Verdict::at_least(sooner.as_ref(), SOONER),
            first_byte_ratio_interval: sooner,
            bulk: bulk.map(|r| r.median),
            bulk_verdict: Verdict::at_least(bulk.as_ref(), FULL),
            bulk_interval: bulk,
            arms,
        }
    }
}

impl Compared {
    fn of(points: &[Point], arm: Arm) -> Self {
        let middle = |of: fn(&Point) -> f64| {
            let of_arm = points.iter().filter(|p| p.arm == arm);
            median(&of_arm.map(of).collect::<Vec<_>>()).unwrap_or(f64::NAN)
        };
        let default = Arm {
            wrap: Wrap::None,
            ..arm
        };
        let compare =
            |arm, base, of: fn(&Point) -> f64| pairs(points, |p| (p.round, p.arm), arm, base, of);
        Self {
            arm,
            first_byte_ns: middle(|p| p.first_byte_ns),
            first_byte_p99_ns: middle(|p| p.first_byte_p99_ns),
            sooner: Ratio::of(&compare(default, arm, |p| p.first_byte_ns)),
            bytes_per_s: middle(|p| p.bytes_per_s),
            carried: Ratio::of(&compare(arm, default, |p| p.bytes_per_s)),
        }
    }
}
