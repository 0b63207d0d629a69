//! The page of a soak.

use super::Look;
use super::agents::Kind;
use super::summary::{Summary, times};
use super::trend::Trend;
use crate::engine::color::{BATCHWISE, BLACK, Color, GREY, NAGLE, NODELAY, PARTS};
use crate::engine::text::name;
use crate::engine::{Axis, Figure, Report, Table, Unit};

const COLORS: [Color; 9] = [
    NAGLE, NODELAY, BATCHWISE, GREY, BLACK, PARTS[0], PARTS[1], PARTS[2], PARTS[3],
];
const MIB: f64 = 1_048_576.0;

pub fn report(looks: &[Look], summary: &Summary) -> Report {
    let grows = match summary.growing.is_empty() {
        true => "Nothing grows".to_owned(),
        false => format!("**These grow**: {}", summary.growing.join(", ")),
    };
    let young = summary.agents.iter().filter(|(_, has)| has.rss.is_none());
    let young: Vec<_> = young.map(|(kind, _)| name(kind)).collect();
    let unknown = match young.is_empty() {
        true => String::new(),
        false => format!(
            " No life of these was long enough to tell: {}.",
            young.join(", ")
        ),
    };
    let faults = summary
        .faults
        .iter()
        .map(|(what, times)| format!("{what}: {times}"));
    Report::new(
        "Soak: all agents at once, for long",
        "All agents at once, while connections come and go, 1,000 a second but for moments of 0 to 2,000, and agents \
         are ended, killed, stopped for a moment and reloaded at random.",
    )
    .heading("Summary")
    .text(format!(
        "{:.2} hours, {} connections, {} requests: {} broke, {} wrong replies; {} agents died that must not have, {} \
         other things went wrong. {grows}.{unknown}",
        summary.hours,
        summary.connections,
        summary.requests,
        summary.broken_connections,
        summary.wrong_replies,
        summary.agents_died,
        summary.wrong,
    ))
    .figure(memory(looks))
    .heading("Change an hour")
    .table(table(summary))
    .text(
        "The mean, and the change an hour with its 95 % interval: the slope that all lives of an agent have in common, \
         by least squares, and a bootstrap of the remainders in blocks of a minute. The first half an hour of a life is \
         left out (of a short soak, two fifths of it). With so many rows one interval in twenty is above or below zero by chance.",
    )
    .heading("What was done")
    .text(faults.collect::<Vec<_>>().join("; "))
}

fn memory(looks: &[Look]) -> Figure {
    let x = Axis::new("minutes", Unit::Number(0)).reaching(1.0);
    let y = Axis::new("memory of an agent and its guard, MiB", Unit::Number(0));
    let times = times(looks);
    let figure = Figure::new("memory.svg", "Memory of agents over time", x, y);
    Kind::ALL
        .into_iter()
        .zip(COLORS)
        .fold(figure, |figure, (kind, color)| {
            let point = |(look, at_s): (&Look, &f64)| {
                Some((at_s / 60.0, look.agents.get(&kind)?.rss as f64 / MIB))
            };
            let points = looks.iter().zip(&times).filter_map(point).collect();
            figure.line(name(kind), color, points)
        })
}

fn table(summary: &Summary) -> Table {
    let number = |trend: Option<Trend>, unit: f64| {
        trend.map_or_else(String::new, |t| {
            let [mean, slope, low, high] = [t.mean, t.per_hour, t.low, t.high].map(|v| v / unit);
            format!("{mean:.1}, {slope:+.2} ({low:+.2} to {high:+.2})")
        })
    };
    let agents = summary.agents.iter().map(|(kind, has)| {
        vec![
            name(kind),
            has.lives.to_string(),
            number(has.rss, MIB),
            number(has.descriptors, 1.0),
            number(has.maps, 1.0),
            number(has.programs, 1.0),
            number(has.lost_events, 1.0),
        ]
    });
    let machine = &summary.machine;
    let whole = vec![
        "the machine".to_owned(),
        String::new(),
        String::new(),
        number(machine.pins, 1.0),
        number(machine.maps, 1.0),
        number(machine.programs, 1.0),
        String::new(),
    ];
    let header = [
        "",
        "lives",
        "memory, MiB",
        "descriptors (the machine: pins)",
        "maps",
        "programs",
        "lost events",
    ];
    Table::new(header).with(agents.chain([whole]))
}
