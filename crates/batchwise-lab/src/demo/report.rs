//! The demo's report: one sentence and one picture, then estimates beside truth.

use batchwise_core::sense::report::{Nagle, Side};
use batchwise_testbed::load::LoadReport;
use batchwise_testbed::window::PARTS;

use super::Climbs;
use super::bins::Bin;
use super::moment::{Moment, whole};
use super::plan::{FOOT, PASSES, SLICE, TOP, VALUE_SIZE};
use super::summary::{EndSummary, Summary};
use crate::arm::Arm;
use crate::decisions::join;
use crate::engine::color::{BLACK, Color, GREY, NAGLE, NODELAY};
use crate::engine::figure::{Bar, Group, Layer, Marker, Span, Stroke};
use crate::engine::report::Part;
use crate::engine::text::{duration, maybe_duration, percent, thousands};
use crate::engine::{Axis, Figure, Report, Results, Table, Unit};

/// A larger share of the time without its CPU shows in the generator's latencies.
const CPU_WAIT: f64 = 0.05;
/// Axes of latency over time end here, ns.
const HIGHEST: f64 = 1e8;

pub fn report(results: &Results<Moment, Climbs>, summary: &Summary) -> Report {
    let points = &results.points;
    let (headline, others) = summary.sentences.split_first().expect("it says something");
    let report = Report::new(
        "Demo: what batching does, and how batchwise knows",
        headline,
    );
    let warn = |report: Report, note| report.part(Part::Warning(note));
    let notes = notes(&results.more).into_iter();
    let mut report = notes.fold(report, warn);
    if summary.bins.iter().any(|bin| !bin.latency_ns.is_empty()) {
        report = report.figure(arms(&summary.bins));
    }
    let report = report
        .text(format!(
            "Redis over a veth pair, SETs of {VALUE_SIZE} B values on one connection, open loop. The \
             load climbs from {} to {}/s, {PASSES} times in each arm. Shown are medians of the mean \
             latency of {} ms each, with their 95 % intervals. Time in which the machine stood still, or \
             other work took its CPUs, is cut in all arms by the same rule; a load at which too little \
             is left is not shown. The client asks for TCP_NODELAY; in the third arm, `batchwise tune` \
             chooses. Its first climb includes learning.",
            thousands(FOOT as f64),
            thousands(TOP as f64),
            SLICE.as_millis()
        ))
        .heading("What was seen")
        .part(Part::List(others.to_vec()));
    let doubts = results.more.climbs.iter().flat_map(|climb| {
        let why = climb.report.why_invalid.iter();
        why.map(|why| format!("{}: {why}", climb.arm.label()))
    });
    let doubts: Vec<_> = doubts.collect();
    report
        .heading("Estimate beside truth")
        .text(
            "While TCP_NODELAY and Nagle's algorithm are measured, `batchwise watch` runs at both ends \
             and looks at TCP queues only; the load generator measures every request.",
        )
        .table(errors(summary))
        .text(
            "Errors are of the latency since the actual send, over the passages in which at least 98 % of \
             the offered load was answered and a request took at most 5 ms since it was due. Nothing \
             is cut for them: both see the same stalls. The 99th percentile of a passage is the median of \
             those of its slices, or of the agent's intervals in it.",
        )
        .figure(latency(points))
        .figure(tails(points))
        .figure(stages(points, Side::Client))
        .figure(stages(points, Side::Server))
        .part(Part::Details(
            "Every load, with what was cut".into(),
            vec![Part::Table(every_load(points, &summary.bins))],
        ))
        .part(Part::Details(
            "What the load generator says of whole climbs; beyond the limit it must have doubts".into(),
            vec![Part::List(doubts)],
        ))
}

/// What to know about the machine.
pub fn notes(climbs: &Climbs) -> Vec<String> {
    let one_cpu = climbs.one_cpu.then(|| {
        "This machine has one CPU: server and load generator share it, so that latencies are high and \
         the load that can be carried is low."
            .to_owned()
    });
    let waits = climbs.climbs.iter().map(|climb| {
        let LoadReport {
            measured_from_ts_ns: from,
            measured_to_ts_ns: to,
            cpu_wait_ns,
            ..
        } = climb.report;
        (cpu_wait_ns.unwrap_or(0), to.saturating_sub(from))
    });
    let (waited, measured) = waits.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    let share = (waited as f64 / measured.max(1) as f64).min(1.0);
    let other_work = (share > CPU_WAIT).then(|| {
        format!(
            "Other work kept the load generator waiting for its CPU for {:.0} % of the time: on an \
             idle machine latencies are lower and more load can be carried.",
            share * 100.0
        )
    });
    one_cpu.or(other_work).into_iter().collect()
}

/// Mean latency over load, an arm a line.
fn arms(bins: &[Bin]) -> Figure {
    let title = "What a request takes, from when it was due";
    let figure = Figure::latency_over_load("arms.svg", title)
        .note("At the upper edge: more load than could be carried.");
    Arm::ALL.into_iter().fold(figure, |figure, arm| {
        let known = bins.iter();
        let known = known.filter_map(|bin| Some((bin.offered_rps, *bin.latency_ns.get(&arm)?)));
        let known: Vec<_> = known.collect();
        let ends = known.iter().map(|(rps, r)| (*rps, r.low, r.high));
        figure
            .layer(Layer::Whiskers {
                color: arm.color(),
                points: ends.collect(),
            })
            .measured(
                arm.label(),
                arm.color(),
                known.iter().map(|(rps, r)| (*rps, r.median)).collect(),
            )
    })
}

type Shown = (&'static str, Color, Stroke, fn(&Moment) -> Option<f64>);

/// Measured and estimated mean latency over time.
fn latency(points: &[Moment]) -> Figure {
    let title = "Mean latency, measured and estimated, with Nagle off, on, and tuned";
    let shown: [Shown; 4] = [
        ("measured, since due", GREY, Stroke::Solid, |m| {
            m.truth.mean_from_intended_ns
        }),
        ("measured, since sent", BLACK, Stroke::Solid, |m| {
            m.truth.mean_from_send_ns
        }),
        ("estimated, client's end", NODELAY, Stroke::Dashed, |m| {
            whole(m.client.as_ref())
        }),
        ("estimated, server's end", NAGLE, Stroke::Dashed, |m| {
            whole(m.server.as_ref())
        }),
    ];
    let figure = Figure::over_time("latency.svg", title, Axis::latency().capped(HIGHEST));
    beside_truth(figure, points, shown)
}

/// The same of the 99th percentile.
fn tails(points: &[Moment]) -> Figure {
    let title = "99th percentile, measured and estimated: medians of slices of time";
    let shown: [Shown; 4] = [
        ("measured, since due", GREY, Stroke::Solid, |m| {
            m.truth.p99_ns
        }),
        ("measured, since sent", BLACK, Stroke::Solid, |m| {
            m.truth.p99_from_send_ns
        }),
        ("estimated, client's end", NODELAY, Stroke::Dashed, |m| {
            m.p99_ns.get(&Side::Client).copied()
        }),
        ("estimated, server's end", NAGLE, Stroke::Dashed, |m| {
            m.p99_ns.get(&Side::Server).copied()
        }),
    ];
    let y = Axis::new("99th percentile", Unit::Duration).log();
    let figure = Figure::over_time("p99.svg", title, y.capped(HIGHEST));
    beside_truth(figure, points, shown)
}

fn beside_truth(figure: Figure, points: &[Moment], shown: [Shown; 4]) -> Figure {
    let pieces = |value: fn(&Moment) -> Option<f64>| {
        let piece = |climb: &[&Moment]| {
            let known = climb.iter().filter_map(|m| Some((m.at_s, value(m)?)));
            known.collect()
        };
        climbs(points).iter().map(|climb| piece(climb)).collect()
    };
    let spans = climbs(points).into_iter().map(|climb| Span {
        from: begin(climb[0]),
        to: climb[climb.len() - 1].at_s,
        name: match climb[0].arm {
            Arm::Nodelay => "off".into(),
            Arm::Nagle => "on".into(),
            Arm::Batchwise => "tuned".into(),
        },
    });
    let on = points.iter().filter(|m| m.nagle == Some(Nagle::On));
    let mut on: Vec<_> = on.map(|m| (begin(m), m.at_s)).collect();
    on.sort_by(|a, b| a.0.total_cmp(&b.0));
    let figure = figure
        .shade("Nagle at the client", &join(on.into_iter()))
        .layer(Layer::Spans(spans.collect()));
    let one_more = |figure: Figure, (label, color, stroke, value): Shown| {
        figure.with_line(label, color, (stroke, Marker::Nothing), pieces(value))
    };
    shown.into_iter().fold(figure, one_more)
}

/// Passages of one climb after another, by time.
fn climbs(points: &[Moment]) -> Vec<Vec<&Moment>> {
    let mut sorted: Vec<_> = points.iter().collect();
    sorted.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let same = |a: &&Moment, b: &&Moment| (a.arm, a.pass) == (b.arm, b.pass);
    sorted.chunk_by(same).map(<[_]>::to_vec).collect()
}

fn begin(moment: &Moment) -> f64 {
    moment.at_s - moment.truth.interval_ns as f64 / 1e9
}

/// Where the time goes by one end's estimate, in the first climb of each static arm, as far as it
/// carried the load.
fn stages(points: &[Moment], side: Side) -> Figure {
    let first = points.iter().filter(|m| m.pass == 0 && !m.saturated);
    let first: Vec<_> = first.collect();
    let mut loads: Vec<_> = first.iter().map(|m| m.offered_rps).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let group = |rps: f64| {
        let bar = |arm: Arm| {
            let found = first
                .iter()
                .find(|m| m.arm == arm && m.offered_rps == rps)?;
            let parts = found.end(side)?.parts();
            Some(Bar {
                parts: parts.map(|part| part.unwrap_or(0.0)).to_vec(),
                measured: found.truth.mean_from_send_ns,
            })
        };
        Group {
            label: thousands(rps.round()),
            bars: Arm::STATIC.map(bar).to_vec(),
        }
    };
    let groups: Vec<_> = loads.into_iter().map(group).collect();
    let end = end_name(side);
    let x = "offered load, requests/s: left TCP_NODELAY, right Nagle";
    Figure::stacked_bars(
        format!("stages-{end}.svg"),
        format!("Where the time goes, estimated at the {end}'s end"),
        (x, Axis::new("mean latency", Unit::Duration)),
        &PARTS,
        "measured, since sent",
        &groups,
    )
}

fn end_name(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

fn errors(summary: &Summary) -> Table {
    let row = |(side, end): (&Side, &EndSummary)| {
        vec![
            format!("the {}'s end", end_name(*side)),
            percent(end.median_abs_rel_error),
            percent(end.p90_abs_rel_error),
            percent(end.p99_median_abs_rel_error),
            end.moments.to_string(),
        ]
    };
    let head = [
        "estimated at",
        "mean: median error",
        "mean: p90 error",
        "p99: median error",
        "passages",
    ];
    Table::new(head).with(summary.per_end.iter().map(row))
}

/// By load and arm: what counts, and the raw mean beside it.
fn every_load(points: &[Moment], bins: &[Bin]) -> Table {
    let row = |(bin, arm): (&Bin, Arm)| {
        let those = points.iter();
        let those: Vec<_> = those
            .filter(|m| m.arm == arm && m.offered_rps == bin.offered_rps)
            .collect();
        let mean = |value: &dyn Fn(&Moment) -> Option<f64>| -> Option<f64> {
            let known: Vec<f64> = those.iter().filter_map(|m| value(m)).collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
        };
        let found = bin.latency_ns.get(&arm);
        vec![
            thousands(bin.offered_rps.round()),
            arm.label().into(),
            found.map_or_else(
                || "too little is left".into(),
                |r| {
                    let [median, low, high] = [r.median, r.low, r.high].map(duration);
                    format!("{median} ({low} – {high})")
                },
            ),
            found.map_or_else(String::new, |r| r.pairs.to_string()),
            maybe_duration(mean(&|m| m.truth.mean_from_intended_ns)),
            percent(mean(&|m| Some(m.cut()))),
        ]
    };
    let each = bins.iter().flat_map(|bin| Arm::ALL.map(|arm| (bin, arm)));
    Table::new(["load", "arm", "median (95 %)", "slices", "raw mean", "cut"]).with(each.map(row))
}
