//! Experiment `profile-patterns`: where the CPU time of sender and receiver goes, by traffic pattern, after
//! *Understanding Host Network Stack Overheads* (§3); what profiling costs; and whether `perf` sees the same.

mod compared;
mod pattern;
mod perf;
mod published;
mod summary;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use batchwise_testbed::bpf_stats::wait_attached;
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::lines::Printing;
use batchwise_testbed::topology::TwoHosts;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::engine::color::Color;
use crate::engine::figure::{Axis, Figure, Unit};
use crate::engine::slices::Slices;
use crate::engine::text::{percent, thousands};
use crate::engine::{Experiment, NoMore, Report, Results, Round, Run, Table, Turn};
use batchwise_core::profile::Component;
use batchwise_core::profile::report::Line;
use compared::{Compared, Shares};
use pattern::{Pattern, Streams};
use summary::Summary;

pub struct ProfilePatterns;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// Shares with this pattern.
    Pattern(Pattern),
    /// What is carried with and without a profiler.
    Overhead,
    /// The same samples by `perf record`.
    Perf,
}

impl Arm {
    fn label(self) -> String {
        match self {
            Self::Pattern(pattern) => pattern.label().to_owned(),
            Self::Overhead => "overhead".to_owned(),
            Self::Perf => "perf".to_owned(),
        }
    }
}

/// One end's CPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct End {
    /// Shares of the time in which it did something.
    pub shares: BTreeMap<Component, f64>,
    /// Share of the time.
    pub busy: f64,
    pub samples: u64,
    pub lost: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub round: u32,
    pub arm: Arm,
    /// Bytes that came to the receiver, headers included.
    pub bytes_per_s: f64,
    #[serde(default)]
    pub sender: Option<End>,
    #[serde(default)]
    pub receiver: Option<End>,
    /// Bytes in neighbouring slices with a profiler and without.
    #[serde(default)]
    pub slices: Vec<(f64, f64)>,
    /// The hottest functions: name, our share, that of `perf`.
    #[serde(default)]
    pub functions: Vec<(String, f64, f64)>,
}

impl Point {
    fn new(round: u32, arm: Arm) -> Self {
        Self {
            round,
            arm,
            bytes_per_s: f64::NAN,
            sender: None,
            receiver: None,
            slices: Vec::new(),
            functions: Vec::new(),
        }
    }
}

const PORT: u16 = 7075;
const WARM_UP: Duration = Duration::from_secs(1);
/// A command that is asked to end has done so by then.
const END: Duration = Duration::from_secs(10);
/// What a profiler takes to begin is in no slice. Packets are counted for a tenth of a second of each, which is more
/// than the 0.2 s of every 5 that they are counted otherwise.
const SLICES: Slices = Slices {
    settle: Duration::from_millis(100),
    length: Duration::from_millis(800),
};

impl Experiment for ProfilePatterns {
    type Stage = TwoHosts;
    type Arm = Arm;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "profile-patterns"
    }

    fn about(&self) -> &'static str {
        "where the CPU time of sender and receiver goes, by traffic pattern (paper 5)"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Arm>>> {
        let patterns = Pattern::ALL.map(Arm::Pattern);
        let arms: Vec<_> = patterns
            .into_iter()
            .chain([Arm::Overhead, Arm::Perf])
            .collect();
        Ok(Round::shuffled(if quick { 3 } else { 7 }, &arms))
    }

    fn part(&self, arm: &Arm) -> Option<String> {
        Some(arm.label())
    }

    fn stage(&self, _context: &Context) -> Result<(TwoHosts, Value)> {
        let hosts = TwoHosts::build("profile")?;
        // else what the server receives is worked off by the client's CPU
        hosts.poll_on_own_cpus()?;
        let settings = serde_json::to_value(hosts.settings()?)?;
        Ok((hosts, settings))
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        hosts: &mut TwoHosts,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let (context, arm) = (run.context, *turn.arm);
        let time = Duration::from_secs(if context.quick { 5 } else { 10 });
        let pattern = match arm {
            Arm::Pattern(pattern) => pattern,
            Arm::Overhead | Arm::Perf => Pattern::Single,
        };
        pattern.prepare(hosts)?;
        let mut point = Point::new(turn.round, arm);
        let traffic = Streams::start(context, hosts, pattern, PORT)?;
        context.stop.sleep(WARM_UP)?;
        let (begin, before) = (Instant::now(), pattern::received(&hosts.server)?);
        match arm {
            Arm::Pattern(_) => {
                let ends = [&hosts.client, &hosts.server];
                let profiles = ends.map(|host| profile(context, host, Some(host.cpu()), time));
                let [sender, receiver] = profiles;
                let (sender, receiver) = (sender?, receiver?);
                context.stop.sleep(time)?;
                point.sender = Some(end(sender, context)?);
                point.receiver = Some(end(receiver, context)?);
            }
            Arm::Overhead => {
                let blocks = if context.quick { 20 } else { 40 };
                point.slices = overhead(context, hosts, (turn.round * blocks, blocks))?;
            }
            Arm::Perf => {
                let theirs = perf::record(context, &hosts.server, time)?;
                context.stop.sleep(perf::BEFORE)?;
                let ours = profile(context, &hosts.server, None, time)?;
                context.stop.sleep(time)?;
                point.functions = perf::compare(&whole(ours, context)?, theirs, context)?;
            }
        }
        let bytes = pattern::received(&hosts.server)? - before;
        point.bytes_per_s = bytes as f64 / begin.elapsed().as_secs_f64();
        traffic.end();
        pattern.undo(hosts)?;
        Ok(vec![point])
    }

    fn describe(&self, point: &Point) -> String {
        let copy = |end: &Option<End>| {
            let share = end.as_ref().and_then(|e| e.shares.get(&Component::Copy));
            percent(share.copied())
        };
        format!(
            "{}: {}B/s, data copy {} of the sender, {} of the receiver",
            point.arm.label(),
            thousands(point.bytes_per_s),
            copy(&point.sender),
            copy(&point.receiver)
        )
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, _results: &Results<Point, NoMore>, summary: &Summary) -> Report {
        let ends: [(&str, Of); 2] = [("sender", |c| &c.sender), ("receiver", |c| &c.receiver)];
        let report = Report::new(
            "Where the CPU time of the network stack goes",
            "Two hosts on this machine, one CPU each, joined by a veth pair; a thread on the receiver's \
             CPU polls it (threaded NAPI; without GRO, RPS). A client writes, a server reads.",
        )
        .heading("Summary")
        .table(table(&summary.patterns))
        .text(
            "Medians over rounds. A share is of the time in which that CPU did something. The paper's hosts have \
             100 Gbit/s cards, and so drivers, DMA and hardware segmentation, that veth has not.",
        )
        .heading("Beside the paper")
        .table(Table::of(
            &summary.published,
            &[
                ("", &|b| b.what.clone()),
                ("published", &|b| format!("{:.3}", b.published)),
                ("here", &|b| {
                    let [middle, low, high] = b.ours;
                    format!("{middle:.3} ({low:.3} to {high:.3})")
                }),
            ],
        ))
        .heading("perf and batchwise profile, at once")
        .table(Table::of(
            &summary.functions,
            &[
                ("function", &|(name, ..)| name.clone()),
                ("batchwise", &|(_, ours, _)| percent(Some(*ours))),
                ("perf", &|(.., theirs)| percent(Some(*theirs))),
            ],
        ));
        ends.into_iter().fold(report, |report, (name, shares)| {
            report.figure(figure(name, &summary.patterns, shares))
        })
    }
}

/// `batchwise profile` of one CPU, or of all, for this time.
fn profile(
    context: &Context,
    host: &Host,
    cpu: Option<usize>,
    time: Duration,
) -> Result<Printing<Line>> {
    let mut command = Command::new(&context.command);
    let millis = format!("{}ms", time.as_millis());
    command.args(["profile", "--format", "jsonl", "--interval", &millis]);
    command.args(["--duration", &millis]);
    if let Some(cpu) = cpu {
        command.args(["--cpu", &cpu.to_string()]);
    }
    let name = "batchwise profile";
    let mut profile = Printing::start(host, name, command, Role::Observer)?;
    wait_attached(profile.process(), name, &context.stop)?;
    Ok(profile)
}

/// The one line of a profile that has ended.
fn whole(mut profile: Printing<Line>, context: &Context) -> Result<Line> {
    let status = profile.wait(&context.stop, END)?;
    ensure!(status.success(), "the profile failed{}", profile.quote());
    profile
        .take_lines()
        .pop()
        .context("the profile said nothing")
}

fn end(profile: Printing<Line>, context: &Context) -> Result<End> {
    let line = whole(profile, context)?;
    let shares = line.components.iter().map(|s| (s.component, s.share));
    Ok(End {
        shares: shares.collect(),
        busy: line.cpus_busy,
        samples: line.samples,
        lost: line.lost,
    })
}

/// What is carried in slices with a profiler and without.
fn overhead(context: &Context, hosts: &TwoHosts, blocks: (u32, u32)) -> Result<Vec<(f64, f64)>> {
    let mut profiler: Option<Printing<Line>> = None;
    let switch = |on: bool| {
        if let Some(mut running) = profiler.take() {
            running.terminate(END);
        }
        if on {
            profiler = Some(profile(
                context,
                &hosts.server,
                None,
                Duration::from_secs(60),
            )?);
        }
        Ok(())
    };
    let read = || pattern::received(&hosts.server);
    let slices = SLICES.run(&context.stop, blocks, &[true, false], switch, read);
    if let Some(mut running) = profiler {
        running.terminate(END);
    }
    let mut pairs: BTreeMap<u32, [f64; 2]> = BTreeMap::new();
    for slice in slices? {
        let bytes = (slice.after - slice.before) as f64;
        pairs.entry(slice.block).or_default()[usize::from(!slice.arm)] = bytes;
    }
    Ok(pairs.into_values().map(|[on, off]| (on, off)).collect())
}

fn table(patterns: &[Compared]) -> Table {
    let shares = |shares: &Shares| {
        let mut all: Vec<_> = shares
            .iter()
            .filter(|(_, [share, ..])| *share >= 0.01)
            .collect();
        all.sort_by(|a, b| b.1[0].total_cmp(&a.1[0]));
        let named = all
            .into_iter()
            .map(|(component, share)| format!("{} {}", component.label(), spread(*share, 100.0)));
        named.collect::<Vec<_>>().join(", ")
    };
    Table::of(
        patterns,
        &[
            ("", &|c| c.pattern.label().to_owned()),
            ("Gbit/s a core", &|c| spread(c.gbit_per_core, 1.0)),
            ("sender, %", &|c| shares(&c.sender)),
            ("receiver, %", &|c| shares(&c.receiver)),
            ("unclassified", &|c| percent(Some(c.unclassified))),
            ("spread", &|c| format!("{:.1} points", c.spread * 100.0)),
        ],
    )
}

/// The median, in brackets the lowest and the highest.
fn spread([middle, low, high]: [f64; 3], times: f64) -> String {
    let [middle, low, high] = [middle, low, high].map(|value| value * times);
    format!("{middle:.1} ({low:.1} to {high:.1})")
}

/// The shares of one end.
type Of = fn(&Compared) -> &Shares;

/// Shares as stacked bars, a bar a pattern, the first at the top.
fn figure(end: &str, patterns: &[Compared], shares: Of) -> Figure {
    let from_below = || patterns.iter().rev();
    let x = Axis::new(format!("share of the {end}'s CPU time"), Unit::Percent).between(0.0, 1.0);
    let y = Axis::names("", from_below().map(|c| c.pattern.label().to_owned()));
    let title = format!("Where the CPU time of the {end} goes");
    let mut figure = Figure::new(format!("{end}.svg"), title, x, y);
    let mut ends = vec![0.0; patterns.len()];
    for component in Component::ALL {
        let bar = |(position, (compared, end)): (usize, (&Compared, &mut f64))| {
            let share = shares(compared)
                .get(&component)
                .map_or(0.0, |share| share[0]);
            let (bottom, begin) = (position as f64 - 0.4, *end);
            *end += share;
            [begin, *end, bottom, bottom + 0.8]
        };
        let bars = from_below().zip(&mut ends).enumerate().map(bar).collect();
        let [red, green, blue] = component.colour();
        figure = figure.boxes(component.label(), Color(red, green, blue), bars);
    }
    figure
}
