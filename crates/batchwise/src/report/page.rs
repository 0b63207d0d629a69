//! The page: what was wrong first, then each service with its pictures.

use std::time::{Duration, UNIX_EPOCH};

use maud::{Markup, html};

use super::recording::{Key, Recording, Service};
use crate::frame::chart::{AREA, Axis, COLORS, Chart, Curve, HEIGHT, LOW};
use crate::frame::human;
use crate::frame::page::document;
use crate::watch::parts::LABELS;

/// Services with pictures.
const MOST: usize = 24;
/// Those of a stage's bars.
const STAGES: [&str; 4] = ["#2060a8", "#d8a520", "#9654a0", "#228048"];

pub fn page(recording: &Recording) -> String {
    let (from, to) = recording.span.unwrap_or_default();
    let mut services: Vec<_> = recording.services.iter().collect();
    let trouble = |s: &Service| s.whole.worst().map_or(0.0, |(_, share)| share);
    services.sort_by(|(_, a), (_, b)| {
        let trouble = trouble(b).total_cmp(&trouble(a));
        trouble.then(b.whole.requests.total_cmp(&a.whole.requests))
    });
    let title = "What batchwise saw";
    let body = html! {
        h1 { (title) }
        p class="lead" {
            (services.len()) " services, from " (date(from)) " for "
            (human::duration(to.saturating_sub(from))) "."
        }
        @if recording.others > 0 {
            p class="warn" { (recording.others) " lines of the recording are none of `watch`'s." }
        }
        (overview(&services))
        @for (number, (key, service)) in services.iter().take(MOST).enumerate() {
            h2 id=(format!("s{number}")) { (name(key, service)) }
            (pictures(service, from, to))
        }
        @if services.len() > MOST {
            p class="note" { "The other " (services.len() - MOST) " are in the table alone." }
        }
    };
    document(title, &body)
}

fn name((service, netns, side): &Key, of: &Service) -> String {
    let owner = of.owner.as_deref().unwrap_or("?");
    format!("{owner}, {} of {service} in {netns}", human::word(side))
}

fn overview(services: &[(&Key, &Service)]) -> Markup {
    let time = |ns: Option<f64>| human::maybe_duration(ns.map(|ns| ns as u64));
    html! {
        div class="scroll" { table {
            tr {
                @for head in ["service", "side", "requests", "mean", "p50", "p90", "p99", "what was wrong, for how much of the time"] {
                    th { (head) }
                }
            }
            @for (number, ((at, _, side), service)) in services.iter().enumerate() {
                @let whole = &service.whole;
                tr {
                    td {
                        @let owner = service.owner.as_deref().unwrap_or("?");
                        @if number < MOST { a href=(format!("#s{number}")) { (owner) " " (at) } }
                        @else { (owner) " " (at) }
                    }
                    td { (human::word(side)) }
                    td { (human::rate(whole.requests)) }
                    td { (time(whole.total.get())) }
                    @for percentile in &whole.percentiles { td { (time(percentile.get())) } }
                    td {
                        @match whole.worst() {
                            Some((id, share)) => { (id) ", " (human::percent(share)) }
                            None => "–"
                        }
                    }
                }
            }
        } }
    }
}

fn pictures(service: &Service, from: u64, to: u64) -> Markup {
    let right = to.saturating_sub(from).max(1) as f64 / 1e9;
    let time = || Axis::linear("seconds since the beginning", right, human_number);
    let of = |value: fn(&super::recording::Time) -> Option<f64>| -> Vec<(f64, f64)> {
        let known = service.course.recorded(from);
        known
            .filter_map(|(a, b, t)| Some(((a + b) / 2.0, value(t)?)))
            .collect()
    };
    let curve = |label: &str, color, line| Curve {
        label: label.to_owned(),
        color,
        line,
        dashed: Vec::new(),
    };
    let latency = [
        curve("mean", COLORS[0], of(|t| t.total.get())),
        curve("p50", COLORS[2], of(|t| t.percentiles[0].get())),
        curve("p90", COLORS[4], of(|t| t.percentiles[1].get())),
        curve("p99", COLORS[1], of(|t| t.percentiles[2].get())),
    ];
    let rate = of(|t| Some(t.requests * 1e9 / t.recorded.max(1) as f64));
    let top = |values: &[(f64, f64)]| values.iter().map(|p| p.1).fold(1e-9, f64::max) * 1.1;
    html! {
        @if latency.iter().all(|curve| curve.line.is_empty()) {
            p class="note" { "No latency was known." }
        } @else {
            h3 { "Latency" }
            (Chart {
                x: time(),
                y: Axis::times("latency", latency.iter().flat_map(|c| &c.line).map(|p| p.1)),
                height: HEIGHT,
            }.curves(&latency))
            h3 { "Where the time goes" }
            (stages(service, from, time()))
        }
        h3 { "Requests a second" }
        @let curves = [curve("requests/s", COLORS[0], rate.clone())];
        (Chart { x: time(), y: Axis::linear("requests/s", top(&rate), human_number), height: LOW }.curves(&curves))
        @if !service.whole.advice.is_empty() {
            h3 { "What was wrong" }
            (wrong(service, from, time()))
        }
    }
}

fn date(ns: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_nanos(ns)).to_string()
}

fn human_number(value: f64) -> String {
    human::rate(value)
}

/// The parts on top of each other.
fn stages(service: &Service, from: u64, x: Axis) -> Markup {
    let mut bars = Vec::new();
    let mut top = 1.0f64;
    for (a, b, time) in service.course.recorded(from) {
        let mut below = 0.0;
        for (part, color) in time.parts.iter().zip(STAGES) {
            let ns = part.get().unwrap_or(0.0);
            bars.push(((a, below), (b, below + ns), color));
            below += ns;
        }
        top = top.max(below);
    }
    let y = Axis::linear("mean", top * 1.1, |ns| human::duration(ns as u64));
    let chart = Chart {
        x,
        y,
        height: HEIGHT,
    };
    let marks = html! { @for (low, high, color) in bars { (chart.bar(low, high, color)) } };
    let entries = LABELS
        .iter()
        .zip(STAGES)
        .map(|(label, color)| ((*label).to_owned(), color, AREA));
    chart.draw(marks, &entries.collect::<Vec<_>>())
}

/// A line for each thing that was wrong, where it was.
fn wrong(service: &Service, from: u64, x: Axis) -> Markup {
    let ids: Vec<_> = service.whole.advice.keys().zip(COLORS).collect();
    let y = Axis::linear("", ids.len() as f64, |_| String::new());
    let chart = Chart { x, y, height: LOW };
    let marks = html! {
        @for (a, b, time) in service.course.recorded(from) {
            @for (row, (id, color)) in ids.iter().enumerate() {
                @if time.advice.contains_key(*id) {
                    (chart.bar((a, row as f64 + 0.2), (b, row as f64 + 0.8), color))
                }
            }
        }
    };
    let entries: Vec<_> = ids
        .iter()
        .map(|(id, color)| ((*id).clone(), *color, AREA))
        .collect();
    chart.draw(marks, &entries)
}
