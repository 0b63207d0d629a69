//! Charts for pages, as SVG: lines, steps and bars.

use std::fmt::Write as _;

use maud::{Markup, PreEscaped, html};

use super::human;

/// Width of a picture, and of the part of it left of the legend, pixels.
const WIDTH: f64 = 940.0;
const CHART_WIDTH: f64 = 690.0;
/// Heights of a picture, and of a low one.
pub const HEIGHT: f64 = 400.0;
pub const LOW: f64 = 220.0;
/// Room for the numbers and names of the axes.
const LEFT: f64 = 82.0;
const BOTTOM: f64 = 54.0;
const MARGIN: f64 = 10.0;

pub const COLORS: [&str; 6] = [
    "#2060a8", "#c44e20", "#228048", "#9654a0", "#b08a14", "#46828c",
];
pub const BLACK: &str = "#1d1d1f";
const GREY: &str = "#6e6e6e";
const GRID: &str = "#e4e4e4";

/// A line of values.
#[derive(Debug)]
pub struct Curve {
    pub label: String,
    pub color: &'static str,
    /// Solid.
    pub line: Vec<(f64, f64)>,
    /// Dashed; may be empty.
    pub dashed: Vec<(f64, f64)>,
}

/// One direction of a chart: what it is called, its bounds, and where it has numbers.
pub struct Axis {
    name: &'static str,
    from: f64,
    pub to: f64,
    log: bool,
    ticks: Vec<f64>,
    label: fn(f64) -> String,
}

impl Axis {
    /// From 0.
    pub fn linear(name: &'static str, to: f64, label: fn(f64) -> String) -> Self {
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
    pub fn times(name: &'static str, values: impl Iterator<Item = f64> + Clone) -> Self {
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

pub fn plain(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A line of the legend: what it says, in which colour, and how thick that is drawn.
pub type Entry = (String, &'static str, f64);

pub const LINE: f64 = 2.0;
pub const AREA: f64 = 12.0;

pub fn legend(curves: &[Curve]) -> Vec<Entry> {
    let entries = curves.iter().map(|c| (c.label.clone(), c.color, LINE));
    entries.collect()
}

pub struct Chart {
    pub x: Axis,
    pub y: Axis,
    pub height: f64,
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

    pub fn line(&self, points: &[(f64, f64)], color: &str, width: f64, dashed: bool) -> Markup {
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

    pub fn bar(&self, low: (f64, f64), high: (f64, f64), color: &str) -> Markup {
        let ((left, bottom), (right, top)) = (self.at(low), self.at(high));
        html! {
            @if bottom > top {
                rect x=(px(left)) y=(px(top)) width=(px((right - left).max(1.0)))
                    height=(px(bottom - top)) fill=(color) {}
            }
        }
    }

    /// Each as a line.
    pub fn curves(&self, curves: &[Curve]) -> Markup {
        let marks = html! {
            @for curve in curves {
                (self.line(&curve.line, curve.color, 2.0, false))
                (self.line(&curve.dashed, curve.color, 1.0, true))
                // one point alone is no line
                @if let [point] = curve.line[..] {
                    circle cx=(px(self.at(point).0)) cy=(px(self.at(point).1)) r="3" fill=(curve.color) {}
                }
            }
        };
        self.draw(marks, &legend(curves))
    }

    pub fn draw(&self, marks: Markup, legend: &[Entry]) -> Markup {
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
