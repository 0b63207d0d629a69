//! Table, plots and report of the passive-modes experiment.

use std::fmt::Write as _;

use anyhow::Result;
use maud::{Markup, html};
use plotters::prelude::*;

use super::estimators::{KINDS, Kind};
use super::flow::Spread;
use super::{Point, Results, SPREADS, Score, scenarios};
use crate::output::Output;
use crate::plot::{
    BATCHWISE, GREY, GRID, NAGLE, axes, draw, legend_line, legend_text, legend_y, ticks,
};
use crate::report::{Page, Table, figure, percent};

/// How close to the truth counts as close.
const CLOSE: f64 = 0.15;
/// Smaller errors are drawn at the lower edge.
const LEAST: f64 = 0.001;
/// How much of the room of a group its bars or dots take.
const FILLED: f64 = 0.84;

/// Writes the table as Markdown, plots, and the report of so many simulated flows.
pub(super) fn write(
    output: &Output,
    results: &Results<'_>,
    flows: usize,
    reproduce: &str,
) -> Result<()> {
    let points = results.points;
    output.write("table.md", &markdown(points))?;
    let shares = close_shares(points)?;
    output.write("within-15.svg", &shares)?;
    let errors = errors(points)?;
    output.write("errors.svg", &errors)?;
    let page = Page {
        title: "Passive modes: estimators against simulated flows",
        lead: "What each way of turning a client's packets into a latency says about flows in \
               virtual time, of which the latency of every request is known. There is no network \
               and no kernel in it; batchwise's estimators are its own reference code.",
        machine: results.machine,
        facts: vec![(
            "Simulated flows",
            format!("{flows} of the grid's {}", scenarios().len()),
        )],
        complete: results.complete,
        reproduce,
    };
    let body = html! {
        h2 { "All flows but those of a window that is always full" }
        @if let Some(all) = of(points, "all").next() { (overview(&all.scores)) }
        h2 { "By how requests depend on each other" }
        (figure(&shares))
        h2 { "By how latency varies" }
        (figure(&errors))
        p {
            "Without " code { "Window" } ". σ is that of a lognormal distribution; lines join what \
             has an order. Epochs without an estimate have no error and are left out here, but \
             count above."
        }
        (how_to_read())
        (what_is_simulated())
        h2 { "The whole table" }
        p { "Rows other than those of " code { "shape" } " leave " code { "Window" } " out." }
        h3 { "Share of epochs within 15 % of the truth" }
        (whole(points, |s| format!("{:.0} %", s.within_15_percent * 100.0)))
        h3 { "Median of the absolute error" }
        (whole(points, |s| percent(s.error)))
        h3 { "Median of the error: which side it is on" }
        (whole(points, |s| signed(s.bias)))
        h3 { "Share of epochs with an estimate" }
        (whole(points, |s| format!("{:.0} %", s.known * 100.0)))
    };
    output.write("report.html", &page.html(&body))
}

fn of<'a>(points: &'a [Point], factor: &str) -> impl Iterator<Item = &'a Point> {
    points.iter().filter(move |p| p.factor == factor)
}

fn overview(scores: &[Score]) -> Markup {
    let mut table = Table::new([
        "estimator",
        "within 15 %",
        "median |error|",
        "median error",
        "with an estimate",
        "epochs",
    ]);
    for s in scores {
        table.row([
            s.estimator.clone(),
            percent(Some(s.within_15_percent)),
            percent(s.error),
            signed(s.bias),
            percent(Some(s.known)),
            s.epochs.to_string(),
        ]);
    }
    table.html()
}

fn how_to_read() -> Markup {
    html! {
        h2 { "How to read it" }
        ul {
            li { "All estimators see the same packets from client to server; responses are not \
                  seen. Each is held against the truth at the end of each of its epochs. The truth \
                  is the mean latency of the requests whose responses the epoch's gaps waited for, \
                  lost requests left out." }
            li { "An error is estimate / truth − 1: +100 % is twice the truth. (The experiments on \
                  real traffic report (truth − estimate) / truth, with the other sign.)" }
            li { "“Within 15 %” is a share of all epochs: one without an estimate is not within." }
            li { "A row holds all flows with that value of one factor, over the grid of all other \
                  factors. The grid has hard cases as often as easy ones and is no mix of real \
                  traffic: it compares estimators with each other and finds where they fail, and \
                  does not say how true they are on a network." }
            li { "An epoch ends when its estimator has counted enough gaps, or after 30 s. \
                  Estimators that count other gaps have other numbers of epochs." }
        }
        h3 { "Estimators" }
        (described(&[
            ("fixed", "Algorithm 1: a gap above this threshold begins a batch."),
            ("paper", "Algorithm 2 as written, with this width of a mode."),
            ("largest mode", "batchwise's modes of relative width; the largest with 5 % of the gaps \
                              is the pause, as in the paper."),
            ("modes, sizes", "batchwise on gaps and packet sizes alone: what UDP and encrypted \
                              transports leave."),
            ("modes, ACKs", "With TCP's acknowledgments on packets that carry payload."),
            ("modes, pure ACKs too", "With those on packets that carry none, as well."),
            ("in flight", "Requests in flight by acknowledgments, and gaps where a client sends \
                           bursts: batchwise's default for TCP."),
        ]))
    }
}

fn what_is_simulated() -> Markup {
    html! {
        h2 { "What is simulated" }
        p {
            "One TCP connection a flow, every combination of these factors. A client needs 4 µs to \
             send a packet, so that at 50 µs a burst of four is a quarter of the latency; a \
             response has no length, and nothing queues on the way. Before the client thinks, it \
             acknowledges half of the responses at once and the others after 40 ms, as delayed \
             ACKs are, unless it sends before."
        }
        (described(&[
            ("shape", "Single: one request in flight. Burst: one to four at once, the next ones \
                       follow the last response. Tree: pages, one request whose response triggers \
                       six more, at most four in flight. Upload: one in flight, ten full packets \
                       and a rest each. Multi: bursts of requests of one to three packets. Window: \
                       four in flight, each response triggers a request, nobody pauses."),
            ("latency", "Constant; LogNormal with this σ; Bimodal: one in five takes ten times as \
                         long; Tail: one in twenty takes twenty times as long; Drift: half to \
                         double and back, slowly; Step: three times as long from half-time on. All \
                         vary by 2 % besides."),
            ("scale", "The mean latency that these are relative to."),
            ("think", "None; Micros: 5 µs before each batch; Times: this many mean latencies before \
                       one batch in ten; Idle: 0.2 to 2 s before one in ten."),
            ("path", "Clean; Loss: the last request of a batch is lost one time in a hundred, half \
                      of these before the vantage point, and comes again after 200 ms (not in \
                      Window, nor to the objects of a Tree); Reorder: one packet in four is late so \
                      that the next may overtake it."),
            ("jitter", "Gaps inside bursts vary by this share."),
            ("gaps", "How many gaps that may be pauses an epoch has at least."),
        ]))
    }
}

fn described(rows: &[(&str, &str)]) -> Markup {
    html! {
        table class="facts" {
            @for (name, what) in rows { tr { td { (name) } td { (what) } } }
        }
    }
}

/// A row a point, a column an estimator.
fn whole(points: &[Point], cell: impl Fn(&Score) -> String) -> Markup {
    html! {
        div class="scroll" { table {
            tr { th { "factor" } @for kind in KINDS { th { (kind.name()) } } }
            @for p in points {
                tr {
                    td style="white-space: nowrap" { @if p.factor != "all" { (p.factor) ": " } (p.value) }
                    @for s in &p.scores { td { (cell(s)) } }
                }
            }
        } }
    }
}

fn signed(share: Option<f64>) -> String {
    share.map_or_else(|| "–".into(), |s| format!("{:+.1} %", s * 100.0))
}

fn color(kind: Kind) -> RGBColor {
    match kind {
        Kind::Fixed(_) => RGBColor(164, 118, 168),
        Kind::Paper(..50_000) => NAGLE,
        Kind::Paper(_) => RGBColor(226, 168, 76),
        Kind::Largest => RGBColor(150, 150, 150),
        Kind::Sizes => RGBColor(158, 196, 228),
        Kind::Acks => RGBColor(86, 145, 198),
        Kind::Pure => RGBColor(24, 78, 142),
        Kind::Flight => BATCHWISE,
    }
}

/// The left and right end of an estimator's room in a group; a group is 1 wide.
fn room(group: usize, kind: usize) -> (f64, f64) {
    let width = FILLED / KINDS.len() as f64;
    let left = group as f64 - FILLED / 2.0 + kind as f64 * width;
    (left, left + width)
}

/// Names are at whole positions of x.
fn name_at(names: &[String], x: f64) -> String {
    let whole = x.fract() == 0.0 && x >= 0.0;
    let name = names.get(x as usize).filter(|_| whole);
    name.cloned().unwrap_or_default()
}

/// A group a shape, a bar an estimator.
fn close_shares(points: &[Point]) -> Result<String> {
    let shapes: Vec<_> = of(points, "shape").collect();
    let names: Vec<_> = shapes.iter().map(|p| p.value.clone()).collect();
    let right = shapes.len().max(1) as f64 - 0.5;
    draw("Epochs within 15 % of the truth", |area, legend| {
        let mut chart = axes(area).build_cartesian_2d(-0.5..right, 0.0..1.0)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .y_desc("share of epochs within 15 %")
            .x_labels(shapes.len() + 1)
            .y_labels(11)
            .x_label_formatter(&|x| name_at(&names, *x))
            .y_label_formatter(&|y| format!("{:.0} %", y * 100.0))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .draw()?;
        for (group, point) in shapes.iter().enumerate() {
            for (index, (score, kind)) in point.scores.iter().zip(KINDS).enumerate() {
                let (from, to) = room(group, index);
                let corners = [(from, 0.0), (to, score.within_15_percent)];
                chart.draw_series([Rectangle::new(corners, color(kind).filled())])?;
            }
        }
        for (row, kind) in KINDS.into_iter().enumerate() {
            let y = legend_y(row);
            let corners = [(14, y - 7), (30, y + 7)];
            legend.draw(&Rectangle::new(corners, color(kind).filled()))?;
            legend_text(legend, row, &kind.name())?;
        }
        Ok(())
    })
}

/// A group a distribution, a dot an estimator; lines join distributions of growing width.
fn errors(points: &[Point]) -> Result<String> {
    let spreads: Vec<_> = of(points, "latency").collect();
    let names = SPREADS.map(|spread| match spread {
        Spread::LogNormal(sigma) => format!("σ = {sigma}"),
        other => format!("{other:?}"),
    });
    let in_order = |s: &&Spread| matches!(s, Spread::Constant | Spread::LogNormal(_));
    let ordered = SPREADS.iter().take_while(in_order).count();
    let right = spreads.len().max(1) as f64 - 0.5;
    let all = || spreads.iter().flat_map(|p| &p.scores);
    let known = || all().filter_map(|s| s.error).map(|e| e.max(LEAST));
    let (bottom, top) = (
        known().fold(CLOSE, f64::min) / 1.5,
        known().fold(1.0, f64::max) * 1.5,
    );
    draw("Median absolute error", |area, legend| {
        let mut chart = axes(area).build_cartesian_2d(
            -0.5..right,
            (bottom..top)
                .log_scale()
                .with_key_points(ticks(bottom, top)),
        )?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .x_desc("distribution of latency")
            .y_desc("median of |estimate / truth − 1|")
            .x_labels(spreads.len() + 1)
            .x_label_formatter(&|x| name_at(&names, *x))
            .y_label_formatter(&|y| format!("{} %", (y * 1000.0).round() / 10.0))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .draw()?;
        for group in 1..spreads.len() {
            let border = group as f64 - 0.5;
            let line = [(border, bottom), (border, top)];
            chart.draw_series(LineSeries::new(line, GRID.stroke_width(1)))?;
        }
        let close = [(-0.5, CLOSE), (right, CLOSE)];
        chart.draw_series(DashedLineSeries::new(close, 5, 5, GREY.stroke_width(1)))?;
        for (index, kind) in KINDS.into_iter().enumerate() {
            let dots: Vec<_> = spreads
                .iter()
                .enumerate()
                .map(|(group, point)| {
                    let (from, to) = room(group, index);
                    let error = point.scores.get(index).and_then(|s| s.error);
                    error.map(|e| (f64::midpoint(from, to), e.max(LEAST)))
                })
                .collect();
            let line = dots.iter().take(ordered).flatten().copied();
            chart.draw_series(LineSeries::new(line, color(kind).stroke_width(1)))?;
            let dots = dots.iter().flatten();
            chart.draw_series(dots.map(|&dot| Circle::new(dot, 4, color(kind).filled())))?;
            legend.draw(&Circle::new((22, legend_y(index)), 4, color(kind).filled()))?;
            legend_text(legend, index, &kind.name())?;
        }
        legend_line(legend, KINDS.len(), "15 %", GREY, true)
    })
}

fn in_percent(x: Option<f64>) -> String {
    x.map_or("none".into(), |x| format!("{:+.1}", x * 100.0))
}

/// A cell: signed median error, median absolute error, share within 15 %, all in percent.
fn markdown(points: &[Point]) -> String {
    let mut out = String::from("| factor | value |");
    for kind in KINDS {
        let _ = write!(out, " {} |", kind.name());
    }
    out.push_str("\n|---|---|");
    out.push_str(&"---|".repeat(KINDS.len()));
    for p in points {
        let _ = write!(out, "\n| {} | {} |", p.factor, p.value);
        for s in &p.scores {
            let error = s
                .error
                .map_or("none".into(), |e| format!("{:.1}", e * 100.0));
            let within = s.within_15_percent * 100.0;
            let _ = write!(out, " {} / {error} / {within:.0} |", in_percent(s.bias));
        }
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimators_have_colours_of_their_own() {
        for (index, kind) in KINDS.into_iter().enumerate() {
            let others = KINDS.into_iter().skip(index + 1);
            assert!(others.map(color).all(|other| other != color(kind)));
        }
    }

    #[test]
    fn an_estimator_that_never_knows_or_is_never_off_can_be_drawn() {
        let score = |error| Score {
            estimator: String::new(),
            epochs: 1,
            known: 0.0,
            bias: error,
            error,
            within_15_percent: 0.0,
        };
        let point = |error| Point {
            factor: "latency",
            value: String::new(),
            scores: KINDS.map(|_| score(error)).to_vec(),
        };
        for points in [vec![], vec![point(None), point(Some(0.0))]] {
            let svg = errors(&points).unwrap();
            assert!(svg.starts_with("<svg") && !svg.contains("NaN"));
            assert!(close_shares(&points).is_ok());
        }
    }
}
