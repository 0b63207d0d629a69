//! The report's pictures, as SVG: a few charts of lines, steps and bars.

use std::fmt::Write as _;

use batchwise_core::passive::Epoch;
use maud::{Markup, PreEscaped, html};

use crate::frame::human;

/// Width of a picture, and of the part of it left of the legend, pixels.
const WIDTH: f64 = 940.0;
const CHART_WIDTH: f64 = 690.0;
/// Heights of a picture, and of that of one flow's modes.
const HEIGHT: f64 = 400.0;
const SMALL: f64 = 220.0;
/// Room for the numbers and names of the axes.
const LEFT: f64 = 82.0;
const BOTTOM: f64 = 54.0;
const MARGIN: f64 = 10.0;

pub const COLORS: [&str; 6] = [
    "#2060a8", "#c44e20", "#228048", "#9654a0", "#b08a14", "#46828c",
];
const BLACK: &str = "#1d1d1f";
const GREY: &str = "#6e6e6e";
const GRID: &str = "#e4e4e4";
/// Gaps inside bursts, and those that may be pauses.
const BURST: &str = "#96aabe";
const PAUSE: &str = "#c44e20";

#[derive(Debug)]
pub struct Curve {
    pub label: String,
    pub color: &'static str,
    /// Solid.
    pub line: Vec<(f64, f64)>,
    /// Dashed; may be empty.
    pub dashed: Vec<(f64, f64)>,
}

/// Latency in ns (log scale) over seconds.
pub fn over_time(curves: &[Curve]) -> Markup {
    let points = || curves.iter().flat_map(|c| c.line.iter().chain(&c.dashed));
    let right = points().map(|p| p.0).fold(1.0, f64::max) * 1.01;
    let chart = Chart {
        x: Axis::linear("seconds since the first packet", right, plain),
        y: Axis::times("latency", points().map(|p| p.1)),
        height: HEIGHT,
    };
    let marks = html! {
        @for curve in curves {
            (chart.line(&curve.line, curve.color, 2.0, false))
            (chart.line(&curve.dashed, curve.color, 1.0, true))
            // an interval alone has no line
            @if let [point] = curve.line[..] {
                circle cx=(px(chart.at(point).0)) cy=(px(chart.at(point).1)) r="3" fill=(curve.color) {}
            }
        }
    };
    chart.draw(marks, &legend(curves))
}

/// Share of requests over latency in ns (log scale).
pub fn distribution(curves: &[Curve]) -> Markup {
    let chart = Chart {
        x: Axis::times("latency", curves.iter().flat_map(|c| &c.line).map(|p| p.0)),
        y: Axis::linear("share of requests", 1.0, percent),
        height: HEIGHT,
    };
    let marks = html! {
        @for curve in curves {
            (chart.line(&steps(&curve.line, chart.x.to), curve.color, 2.0, false))
        }
    };
    chart.draw(marks, &legend(curves))
}

/// All of a value's weight lies at that value.
fn steps(line: &[(f64, f64)], right: f64) -> Vec<(f64, f64)> {
    let mut steps = Vec::new();
    let mut below = 0.0;
    for &(ns, share) in line {
        steps.extend([(ns, below), (ns, share)]);
        below = share;
    }
    steps.push((right, below));
    steps
}

/// Where the gaps of one epoch lie (log scale), and what was made of them.
pub fn modes(epoch: &Epoch) -> Markup {
    let modes = epoch.gaps.modes();
    let extents = modes.iter().flat_map(|m| [m.min_ns(), m.max_ns()]);
    let times: Vec<u64> = extents.chain(epoch.estimate.latency).collect();
    let all: u32 = modes.iter().map(|m| u32::from(m.count)).sum();
    let all = f64::from(all.max(1));
    let shares = modes.iter().map(|m| f64::from(m.count) / all);
    let top = shares.fold(0.01, f64::max) * 1.1;
    let chart = Chart {
        x: Axis::times(
            "gap between two packets",
            times.iter().map(|ns| (*ns).max(16) as f64),
        ),
        y: Axis::linear("share of gaps", top, percent),
        height: SMALL,
    };
    let mut bars = Vec::new();
    for mode in modes {
        let (from, to) = (mode.min_ns().max(16) as f64, mode.max_ns().max(17) as f64);
        let (marked, share) = (f64::from(mode.marked) / all, f64::from(mode.count) / all);
        bars.push(((from, 0.0), (to, marked), PAUSE));
        bars.push(((from, marked), (to, share), BURST));
    }
    let mut legend = vec![
        ("may end an answer".to_owned(), PAUSE, AREA),
        ("inside a burst".to_owned(), BURST, AREA),
    ];
    let latency = epoch.estimate.latency;
    let label = |ns| format!("latency {}", human::duration(ns));
    legend.extend(latency.map(|ns| (label(ns), BLACK, LINE)));
    let marks = html! {
        @for (low, high, color) in bars { (chart.bar(low, high, color)) }
        @if let Some(at) = latency.map(|ns| ns as f64) {
            (chart.line(&[(at, 0.0), (at, top)], BLACK, 2.0, false))
        }
    };
    chart.draw(marks, &legend)
}

/// One direction of a chart: what it is called, its bounds, and where it has numbers.
struct Axis {
    name: &'static str,
    from: f64,
    to: f64,
    log: bool,
    ticks: Vec<f64>,
    label: fn(f64) -> String,
}

impl Axis {
    /// From 0.
    fn linear(name: &'static str, to: f64, label: fn(f64) -> String) -> Self {
        let rough = to / 7.0;
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|m| m * power);
        let step = steps.into_iter().find(|s| *s >= rough).unwrap_or(rough);
        let ticks = (0..).map(|n| f64::from(n) * step);
        Self {
            name,
            from: 0.0,
            to,
            log: false,
            // a tick at the end is not lost to rounding
            ticks: ticks.take_while(|at| *at <= to * 1.000_001).collect(),
            label,
        }
    }

    /// Times in ns on a log scale, with room at both ends.
    fn times(name: &'static str, values: impl Iterator<Item = f64> + Clone) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(0.0, f64::max);
        let (from, to) = if low > high {
            (1e3, 1e9)
        } else {
            let from = low.max(1.0) / 1.5;
            (from, (high * 1.5).max(from * 10.0))
        };
        // 1, 2 and 5 times the powers of ten; over many decades only the powers
        let steps: &[f64] = if to / from > 1e4 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let decades = (from.log10().floor() as i32)..=(to.log10().ceil() as i32);
        let ticks = decades.flat_map(|d| steps.iter().map(move |m| m * 10f64.powi(d)));
        Self {
            name,
            from,
            to,
            log: true,
            ticks: ticks.filter(|at| (from..=to).contains(at)).collect(),
            label: |ns| human::duration(ns as u64),
        }
    }

    /// Where between its ends, 0 to 1.
    fn share(&self, value: f64) -> f64 {
        if self.log {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        }
    }
}

fn plain(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A line of the legend: what it says, in which colour, and how thick that is drawn.
type Entry = (String, &'static str, f64);

const LINE: f64 = 2.0;
const AREA: f64 = 12.0;

fn legend(curves: &[Curve]) -> Vec<Entry> {
    let entries = curves.iter().map(|c| (c.label.clone(), c.color, LINE));
    entries.collect()
}

struct Chart {
    x: Axis,
    y: Axis,
    height: f64,
}

impl Chart {
    fn right(&self) -> f64 {
        CHART_WIDTH - MARGIN
    }

    fn bottom(&self) -> f64 {
        self.height - BOTTOM
    }

    /// Pixels of a point.
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (
            LEFT + self.x.share(x) * (self.right() - LEFT),
            self.bottom() - self.y.share(y) * (self.bottom() - MARGIN),
        )
    }

    fn line(&self, points: &[(f64, f64)], color: &str, width: f64, dashed: bool) -> Markup {
        let mut path = String::new();
        for point in points {
            let (x, y) = self.at(*point);
            // writing to a String does not fail
            let _ = write!(path, "{x:.1},{y:.1} ");
        }
        html! {
            @if points.len() > 1 {
                polyline points=(path.trim_end()) fill="none" stroke=(color) stroke-width=(width)
                    stroke-linejoin="round" stroke-dasharray=[dashed.then_some("5 4")] {}
            }
        }
    }

    fn bar(&self, low: (f64, f64), high: (f64, f64), color: &str) -> Markup {
        let ((left, bottom), (right, top)) = (self.at(low), self.at(high));
        html! {
            @if bottom > top {
                rect x=(px(left)) y=(px(top)) width=(px((right - left).max(1.0)))
                    height=(px(bottom - top)) fill=(color) {}
            }
        }
    }

    fn draw(&self, marks: Markup, legend: &[Entry]) -> Markup {
        let (right, bottom) = (self.right(), self.bottom());
        let middle = (MARGIN + bottom) / 2.0;
        let frame = format!("M{LEFT} {MARGIN}V{bottom}H{right}");
        html! {
            svg xmlns="http://www.w3.org/2000/svg" width=(WIDTH) height=(self.height)
                viewBox=(format!("0 0 {WIDTH} {}", self.height))
                font-family="'Helvetica Neue', 'Liberation Sans', sans-serif" font-size="13" fill=(GREY) {
                @for tick in &self.y.ticks {
                    @let y = self.at((self.x.from, *tick)).1;
                    path d=(format!("M{LEFT} {y:.1}H{right}")) stroke=(GRID) {}
                    text x=(px(LEFT - 8.0)) y=(px(y + 4.5)) text-anchor="end" { ((self.y.label)(*tick)) }
                }
                @for tick in &self.x.ticks {
                    @let x = self.at((*tick, self.y.from)).0;
                    path d=(format!("M{x:.1} {MARGIN}V{bottom}")) stroke=(GRID) {}
                    text x=(px(x)) y=(px(bottom + 18.0)) text-anchor="middle" { ((self.x.label)(*tick)) }
                }
                path d=(frame) fill="none" stroke=(BLACK) {}
                text x=(px((LEFT + right) / 2.0)) y=(px(bottom + 42.0)) text-anchor="middle" { (self.x.name) }
                text transform=(format!("translate(14 {middle:.1}) rotate(-90)")) text-anchor="middle" {
                    (self.y.name)
                }
                (marks)
                @for ((label, color, thickness), row) in legend.iter().zip(0..) {
                    @let y = 24.0 + 24.0 * f64::from(row);
                    path d=(format!("M{} {y}h28", CHART_WIDTH + 8.0)) stroke=(color)
                        stroke-width=(thickness) {}
                    text x=(px(CHART_WIDTH + 44.0)) y=(px(y + 4.5)) { (label) }
                }
            }
        }
    }
}

/// A tenth of a pixel is enough.
fn px(value: f64) -> PreEscaped<String> {
    PreEscaped(format!("{value:.1}"))
}

#[cfg(test)]
mod tests {
    use super::super::super::samples;
    use super::*;

    #[test]
    fn pictures_of_nothing_and_of_one_point_can_be_drawn() {
        let one = Curve {
            label: "a".to_owned(),
            color: COLORS[0],
            line: vec![(1.0, 1e6)],
            dashed: Vec::new(),
        };
        for curves in [&[][..], &[one][..]] {
            for svg in [over_time(curves), distribution(curves)] {
                let svg = svg.into_string();
                assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"));
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn an_epochs_modes_are_drawn_with_its_latency() {
        let svg = modes(&samples::epoch()).into_string();
        assert!(svg.contains("latency 1.01 ms"), "{svg}");
    }
}
