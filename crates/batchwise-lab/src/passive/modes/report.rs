//! The report of the passive-modes experiment, and its table as Markdown.

use super::estimators::KINDS;
use super::flow::Spread;
use super::{Point, SPREADS, Score, scenarios};
use crate::engine::color::Color;
use crate::engine::figure::Unit;
use crate::engine::report::Part;
use crate::engine::text::percent;
use crate::engine::{Axis, Figure, Report, Table};

/// How close to the truth counts as close.
const CLOSE: f64 = 0.15;
/// Smaller errors are drawn at the lower edge.
const LEAST: f64 = 0.001;
/// How much of the room of a group its bars or dots take.
const FILLED: f64 = 0.84;

/// An item a line.
const HOW_TO_READ: &str = "\
All estimators see the same packets from client to server; responses are not seen. Each is held \
against the truth at the end of each of its epochs. The truth is the mean latency of the requests \
whose responses the epoch's gaps waited for, lost requests left out.
An error is estimate / truth − 1: +100 % is twice the truth. (The experiments on real traffic report \
(truth − estimate) / truth, with the other sign.)
“Within 15 %” is a share of all epochs: one without an estimate is not within.
A row holds all flows with that value of one factor, over the grid of all other factors. The grid has \
hard cases as often as easy ones and is no mix of real traffic: it compares estimators with each other \
and finds where they fail, and does not say how true they are on a network.
An epoch ends when its estimator has counted enough gaps, or after 30 s. Estimators that count other \
gaps have other numbers of epochs.";

const ESTIMATORS: &str = "\
**fixed**: Algorithm 1: a gap above this threshold begins a batch.
**paper**: Algorithm 2 as written, with this width of a mode.
**largest mode**: batchwise's modes of relative width; the largest with 5 % of the gaps is the pause, \
as in the paper.
**modes, sizes**: batchwise on gaps and packet sizes alone: what UDP and encrypted transports leave.
**modes, ACKs**: With TCP's acknowledgments on packets that carry payload.
**modes, pure ACKs too**: With those on packets that carry none, as well.
**in flight**: Requests in flight by acknowledgments, and gaps where a client sends bursts: \
batchwise's default for TCP.";

const SIMULATED: &str = "\
One TCP connection a flow, every combination of these factors. A client needs 4 µs to send a packet, \
so that at 50 µs a burst of four is a quarter of the latency; a response has no length, and nothing \
queues on the way. Before the client thinks, it acknowledges half of the responses at once and the \
others after 40 ms, as delayed ACKs are, unless it sends before.";

const FACTORS: &str = "\
**shape**: Single: one request in flight. Burst: one to four at once, the next ones follow the last \
response. Tree: pages, one request whose response triggers six more, at most four in flight. Upload: \
one in flight, ten full packets and a rest each. Multi: bursts of requests of one to three packets. \
Window: four in flight, each response triggers a request, nobody pauses.
**latency**: Constant; LogNormal with this σ; Bimodal: one in five takes ten times as long; Tail: one \
in twenty takes twenty times as long; Drift: half to double and back, slowly; Step: three times as long \
from half-time on. All vary by 2 % besides.
**scale**: The mean latency that these are relative to.
**think**: None; Micros: 5 µs before each batch; Times: this many mean latencies before one batch in \
ten; Idle: 0.2 to 2 s before one in ten.
**path**: Clean; Loss: the last request of a batch is lost one time in a hundred, half of these before \
the vantage point, and comes again after 200 ms (not in Window, nor to the objects of a Tree); Reorder: \
one packet in four is late so that the next may overtake it.
**jitter**: Gaps inside bursts vary by this share.
**gaps**: How many gaps that may be pauses an epoch has at least.";

/// Of so many simulated flows.
pub(super) fn of(points: &[Point], flows: usize) -> Report {
    let close = |s: &Score| format!("{:.0} %", s.within_15_percent * 100.0);
    let known = |s: &Score| format!("{:.0} %", s.known * 100.0);
    let overall = rows(points, "all").next();
    let whole = |title: &str, cell: &dyn Fn(&Score) -> String| {
        [
            Part::Subheading(title.into()),
            Part::Table(whole(points, cell)),
        ]
    };
    Report::new(
        "Passive modes: estimators against simulated flows",
        "What each way of turning a client's packets into a latency says about flows in virtual time, \
         of which the latency of every request is known. There is no network and no kernel in it; \
         batchwise's estimators are its own reference code.",
    )
    .text(format!(
        "Simulated flows: {flows} of the grid's {}.",
        scenarios().len()
    ))
    .heading("All flows but those of a window that is always full")
    .table(overview(overall.map_or(&[], |all| &all.scores)))
    .heading("By how requests depend on each other")
    .figure(close_shares(points))
    .heading("By how latency varies")
    .figure(errors(points))
    .text(
        "Without `Window`. σ is that of a lognormal distribution; lines join what has an order. Epochs \
         without an estimate have no error and are left out here, but count above.",
    )
    .heading("How to read it")
    .part(list(HOW_TO_READ))
    .subheading("Estimators")
    .part(list(ESTIMATORS))
    .heading("What is simulated")
    .text(SIMULATED)
    .part(list(FACTORS))
    .heading("The whole table")
    .text("Rows other than those of `shape` leave `Window` out.")
    .parts(whole("Share of epochs within 15 % of the truth", &close))
    .parts(whole("Median of the absolute error", &|s| percent(s.error)))
    .parts(whole("Median of the error: which side it is on", &|s| signed(s.bias)))
    .parts(whole("Share of epochs with an estimate", &known))
    .file("table.md", markdown(points))
}

fn rows<'a>(points: &'a [Point], factor: &str) -> impl Iterator<Item = &'a Point> {
    points.iter().filter(move |p| p.factor == factor)
}

fn list(text: &str) -> Part {
    Part::List(text.lines().map(str::to_owned).collect())
}

fn overview(scores: &[Score]) -> Table {
    Table::of(
        scores,
        &[
            ("estimator", &|s| s.estimator.clone()),
            ("within 15 %", &|s| percent(Some(s.within_15_percent))),
            ("median |error|", &|s| percent(s.error)),
            ("median error", &|s| signed(s.bias)),
            ("with an estimate", &|s| percent(Some(s.known))),
            ("epochs", &|s| s.epochs.to_string()),
        ],
    )
}

/// A row a point, a column an estimator.
fn whole(points: &[Point], cell: &dyn Fn(&Score) -> String) -> Table {
    let row = |p: &Point| {
        let name = match p.factor.as_str() {
            "all" => p.value.clone(),
            factor => format!("{factor}: {}", p.value),
        };
        let cells = p.scores.iter().map(cell);
        [name].into_iter().chain(cells).collect()
    };
    let header = ["factor"].into_iter().chain(KINDS.map(|kind| kind.1));
    Table::new(header).with(points.iter().map(row))
}

/// A cell: signed median error, median absolute error, share within 15 %, all in percent.
fn markdown(points: &[Point]) -> String {
    let in_percent = |x: Option<f64>| x.map_or("none".into(), |x| format!("{:+.1}", x * 100.0));
    let cell = |s: &Score| {
        let error = s
            .error
            .map_or("none".into(), |e| format!("{:.1}", e * 100.0));
        let within = s.within_15_percent * 100.0;
        format!("{} / {error} / {within:.0}", in_percent(s.bias))
    };
    let row = |p: &Point| {
        let name = [p.factor.clone(), p.value.clone()];
        name.into_iter().chain(p.scores.iter().map(cell)).collect()
    };
    let header = ["factor", "value"].into_iter();
    let header = header.chain(KINDS.map(|kind| kind.1));
    Table::new(header).with(points.iter().map(row)).markdown()
}

fn signed(share: Option<f64>) -> String {
    share.map_or_else(|| "–".into(), |s| format!("{:+.1} %", s * 100.0))
}

/// The left and right end of an estimator's room in a group; a group is 1 wide.
fn room(group: usize, kind: usize) -> (f64, f64) {
    let width = FILLED / KINDS.len() as f64;
    let left = group as f64 - FILLED / 2.0 + kind as f64 * width;
    (left, left + width)
}

/// A group a shape, a bar an estimator.
fn close_shares(points: &[Point]) -> Figure {
    let shapes: Vec<_> = rows(points, "shape").collect();
    let x = Axis::names("", shapes.iter().map(|p| p.value.clone()));
    let y = Axis::new("share of epochs within 15 %", Unit::Percent).between(0.0, 1.0);
    let title = "Epochs within 15 % of the truth";
    let bars = |figure: Figure, (index, (_, name, color)): (usize, (_, &str, Color))| {
        let bar = |(group, point): (usize, &&Point)| {
            let (from, to) = room(group, index);
            Some([from, to, 0.0, point.scores.get(index)?.within_15_percent])
        };
        let boxes = shapes.iter().enumerate().filter_map(bar).collect();
        figure.boxes(name, color, boxes)
    };
    let kinds = KINDS.into_iter().enumerate();
    kinds.fold(Figure::new("within-15.svg", title, x, y), bars)
}

/// A group a distribution, a dot an estimator; lines join distributions of growing width.
fn errors(points: &[Point]) -> Figure {
    let spreads: Vec<_> = rows(points, "latency").collect();
    let names = SPREADS.map(|spread| match spread {
        Spread::LogNormal(sigma) => format!("σ = {sigma}"),
        other => format!("{other:?}"),
    });
    let in_order = |s: &&Spread| matches!(s, Spread::Constant | Spread::LogNormal(_));
    let ordered = SPREADS.iter().take_while(in_order).count();
    let x = Axis::names("distribution of latency", names);
    let y = Axis::new("median of |estimate / truth − 1|", Unit::Percent).log();
    let empty = Figure::new("errors.svg", "Median absolute error", x, y.reaching(1.0));
    let each = |figure: Figure, (index, (_, name, color)): (usize, (_, &str, Color))| {
        let dot = |(group, point): (usize, &&Point)| {
            let (from, to) = room(group, index);
            let error = point.scores.get(index)?.error;
            Some((f64::midpoint(from, to), error?.max(LEAST)))
        };
        let dots = |groups: usize| -> Vec<_> {
            let groups = spreads.iter().enumerate().take(groups);
            groups.filter_map(dot).collect()
        };
        let figure = figure.line("", color, dots(ordered));
        figure.dots(name, color, dots(spreads.len()))
    };
    let all = KINDS.into_iter().enumerate().fold(empty, each);
    all.level("15 %", CLOSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimators_have_colours_of_their_own() {
        for (index, (.., color)) in KINDS.into_iter().enumerate() {
            let mut others = KINDS.into_iter().skip(index + 1);
            assert!(others.all(|(.., other)| other != color));
        }
    }
}
