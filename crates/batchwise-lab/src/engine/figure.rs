//! Figures as data: two axes, layers on them, a legend. What is beyond an axis, also infinitely far,
//! is drawn at its edge.

use super::color::{BLACK, Color, GREY, NAGLE, PARTS};
use super::ratio::Ratio;
use crate::stats::weighted_quantiles;

/// Latencies beyond this (ns), of arms that have collapsed, are drawn at the upper edge.
const LATENCY_CAP: f64 = 1e7;
/// From one edge of the figure to the other.
const EDGES: [f64; 2] = [f64::NEG_INFINITY, f64::INFINITY];

/// How opaque areas behind lines are.
const PALE: f64 = 0.15;

/// A figure, drawn into a file of the output's directory.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Name of the file, `*.svg`.
    pub file: String,
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    /// Drawn in this order.
    pub layers: Vec<Layer>,
    /// A line below the legend.
    pub note: Option<String>,
}

/// How numbers on an axis are written.
#[derive(Clone, Debug, PartialEq)]
pub enum Unit {
    /// As it is, with so many decimals.
    Number(usize),
    /// Nanoseconds, as `23 µs`.
    Duration,
    /// A second, as `250k`.
    Rate,
    /// A share, as `12 %`.
    Percent,
    /// Names at 0, 1, 2, …
    Names(Vec<String>),
}

#[derive(Clone, Debug)]
pub struct Axis {
    pub name: String,
    pub unit: Unit,
    pub log: bool,
    /// Where it begins and ends; from the data if not given.
    pub range: (Option<f64>, Option<f64>),
    /// Values that it reaches in any case.
    pub reaches: Vec<f64>,
    /// It ends here at the highest.
    pub cap: Option<f64>,
}

impl Axis {
    /// From 0, linear.
    pub fn new(name: impl Into<String>, unit: Unit) -> Self {
        Self {
            name: name.into(),
            unit,
            log: false,
            range: (Some(0.0), None),
            reaches: Vec::new(),
            cap: None,
        }
    }

    #[must_use]
    pub fn log(mut self) -> Self {
        self.log = true;
        self.tight()
    }

    /// Begins near the lowest value rather than at 0.
    #[must_use]
    pub fn tight(mut self) -> Self {
        self.range.0 = None;
        self
    }

    #[must_use]
    pub fn between(mut self, from: f64, to: f64) -> Self {
        self.range = (Some(from), Some(to));
        self
    }

    #[must_use]
    pub fn reaching(mut self, value: f64) -> Self {
        self.reaches.push(value);
        self
    }

    #[must_use]
    pub fn capped(mut self, at: f64) -> Self {
        self.cap = Some(at);
        self
    }

    /// Mean latency on a log scale.
    pub fn latency() -> Self {
        Self::new("mean latency", Unit::Duration).log()
    }

    pub fn seconds() -> Self {
        Self::new("seconds", Unit::Number(0)).reaching(1.0)
    }

    /// Names, next to each other.
    pub fn names(name: impl Into<String>, names: impl IntoIterator<Item = String>) -> Self {
        let names: Vec<_> = names.into_iter().collect();
        let last = names.len().max(1) as f64 - 0.5;
        Self::new(name, Unit::Names(names)).between(-0.5, last)
    }
}

/// What joins the points of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    Nothing,
    Solid,
    Dashed,
}

/// How points of a line are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    Nothing,
    Dot,
    Triangle,
}

/// Something drawn.
#[derive(Clone, Debug)]
pub enum Layer {
    Line(Line),
    Boxes(Boxes),
    /// Vertical bars with ends: x, low, high.
    Whiskers {
        color: Color,
        points: Vec<(f64, f64, f64)>,
    },
    /// Parts of x with names at the top.
    Spans(Vec<Span>),
}

/// Lines in pieces that nothing joins. Without a label they are not in the legend.
#[derive(Clone, Debug)]
pub struct Line {
    pub label: String,
    pub color: Color,
    pub stroke: Stroke,
    pub marker: Marker,
    pub pieces: Vec<Vec<(f64, f64)>>,
}

/// Filled rectangles: left, right, bottom, top. Without a label they are not in the legend.
#[derive(Clone, Debug)]
pub struct Boxes {
    pub label: String,
    pub color: Color,
    pub opacity: f64,
    pub boxes: Vec<[f64; 4]>,
}

/// A part of x with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub from: f64,
    pub to: f64,
    pub name: String,
}

/// A bar, split into parts from the bottom up.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Heights in the order of the part names.
    pub parts: Vec<f64>,
    /// A value to mark on the bar.
    pub measured: Option<f64>,
}

/// Bars next to each other above one label.
#[derive(Clone, Debug)]
pub struct Group {
    pub label: String,
    pub bars: Vec<Option<Bar>>,
}

/// Ratios of pairs, drawn next to each other.
#[derive(Clone, Debug)]
pub struct Strip {
    label: String,
    color: Color,
    pairs: Vec<(f64, f64)>,
}

impl Strip {
    pub fn new(label: impl Into<String>, color: Color, pairs: &[(f64, f64)]) -> Self {
        Self {
            label: label.into(),
            color,
            pairs: pairs.to_vec(),
        }
    }
}

impl Figure {
    /// With nothing on its axes.
    pub fn new(file: impl Into<String>, title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            file: file.into(),
            title: title.into(),
            x,
            y,
            layers: Vec::new(),
            note: None,
        }
    }

    /// Mean latency over offered load, for lines of measured and estimated values.
    pub fn latency_over_load(file: impl Into<String>, title: impl Into<String>) -> Self {
        let x = Axis::new("offered load, requests/s", Unit::Rate).reaching(1000.0);
        Self::new(file, title, x, Axis::latency().capped(LATENCY_CAP))
    }

    pub fn over_time(file: impl Into<String>, title: impl Into<String>, y: Axis) -> Self {
        Self::new(file, title, Axis::seconds(), y)
    }

    /// Which share of `of` has at most so much; for lines of [`shares`].
    pub fn distribution(
        file: impl Into<String>,
        title: impl Into<String>,
        x: Axis,
        of: &str,
    ) -> Self {
        let y = Axis::new(of, Unit::Percent).between(0.0, 1.0);
        Self::new(file, title, x, y)
    }

    /// Ratios of `what` by round, with their median and its interval.
    pub fn ratios(
        file: impl Into<String>,
        title: impl Into<String>,
        what: &str,
        strips: Vec<Strip>,
    ) -> Self {
        let rounds = strips.iter().map(|s| s.pairs.len()).max().unwrap_or(0);
        let x = Axis::new("round", Unit::Number(0)).between(0.5, rounds.max(1) as f64 + 0.5);
        let y = Axis::new(what, Unit::Number(2)).tight().reaching(0.95);
        let empty = Self::new(file, title, x, y.reaching(1.05)).level("", 1.0);
        strips.into_iter().fold(empty, |figure, strip| {
            let values = strip.pairs.iter().map(|(arm, base)| arm / base);
            let dots = (1..).map(f64::from).zip(values).collect();
            let figure = figure.dots("", strip.color, dots);
            let Some(ratio) = Ratio::of(&strip.pairs) else {
                return figure;
            };
            let label = format!("{}, median {}", strip.label, Ratio::text(Some(&ratio)));
            let across = EDGES.map(|x| (x, ratio.median)).to_vec();
            let interval = vec![[EDGES[0], EDGES[1], ratio.low, ratio.high]];
            figure
                .with_boxes("", strip.color, PALE, interval)
                .dashed(label, strip.color, across)
        })
    }

    /// Stacked bars in groups; `measured` names the mark on a bar.
    pub fn stacked_bars(
        file: impl Into<String>,
        title: impl Into<String>,
        (x, y): (&str, Axis),
        parts: &[&str],
        measured: &str,
        groups: &[Group],
    ) -> Self {
        let x = Axis::names(x, groups.iter().map(|g| g.label.clone()));
        let mut figure = Self::new(file, title, x, y);
        let mut boxes = vec![Vec::new(); parts.len()];
        let mut marks = Vec::new();
        for (position, group) in groups.iter().enumerate() {
            let width = 0.8 / group.bars.len().max(1) as f64;
            for (index, bar) in group.bars.iter().enumerate() {
                let Some(bar) = bar else { continue };
                let left = position as f64 - 0.4 + index as f64 * width;
                let mut base = 0.0;
                for (boxes, part) in boxes.iter_mut().zip(&bar.parts) {
                    let (from, to) = (left + 0.06 * width, left + 0.94 * width);
                    boxes.push([from, to, base, base + part]);
                    base += part;
                }
                marks.extend(bar.measured.map(|at| vec![(left, at), (left + width, at)]));
            }
        }
        for ((part, boxes), color) in parts.iter().zip(boxes).zip(PARTS.into_iter().cycle()) {
            figure = figure.boxes(*part, color, boxes);
        }
        if marks.is_empty() {
            return figure;
        }
        figure.pieces(measured, BLACK, marks)
    }

    #[must_use]
    pub fn layer(mut self, layer: Layer) -> Self {
        self.layers.push(layer);
        self
    }

    #[must_use]
    pub fn with_line(
        self,
        label: impl Into<String>,
        color: Color,
        (stroke, marker): (Stroke, Marker),
        pieces: Vec<Vec<(f64, f64)>>,
    ) -> Self {
        self.layer(Layer::Line(Line {
            label: label.into(),
            color,
            stroke,
            marker,
            pieces,
        }))
    }

    #[must_use]
    pub fn line(self, label: impl Into<String>, color: Color, points: Vec<(f64, f64)>) -> Self {
        self.pieces(label, color, vec![points])
    }

    #[must_use]
    pub fn pieces(
        self,
        label: impl Into<String>,
        color: Color,
        pieces: Vec<Vec<(f64, f64)>>,
    ) -> Self {
        self.with_line(label, color, (Stroke::Solid, Marker::Nothing), pieces)
    }

    #[must_use]
    pub fn dashed(self, label: impl Into<String>, color: Color, points: Vec<(f64, f64)>) -> Self {
        let style = (Stroke::Dashed, Marker::Nothing);
        self.with_line(label, color, style, vec![points])
    }

    /// Adds a line with dots.
    #[must_use]
    pub fn measured(self, label: impl Into<String>, color: Color, points: Vec<(f64, f64)>) -> Self {
        let style = (Stroke::Solid, Marker::Dot);
        self.with_line(label, color, style, vec![points])
    }

    /// Adds a dashed line with triangles.
    #[must_use]
    pub fn estimated(
        self,
        label: impl Into<String>,
        color: Color,
        points: Vec<(f64, f64)>,
    ) -> Self {
        let style = (Stroke::Dashed, Marker::Triangle);
        self.with_line(label, color, style, vec![points])
    }

    #[must_use]
    pub fn dots(self, label: impl Into<String>, color: Color, points: Vec<(f64, f64)>) -> Self {
        let style = (Stroke::Nothing, Marker::Dot);
        self.with_line(label, color, style, vec![points])
    }

    /// Adds moments, marked at the lower edge; nothing if there are none.
    #[must_use]
    pub fn events(self, label: impl Into<String>, color: Color, at: &[f64]) -> Self {
        if at.is_empty() {
            return self;
        }
        let points = at.iter().map(|&x| (x, EDGES[0])).collect();
        let style = (Stroke::Nothing, Marker::Triangle);
        self.with_line(label, color, style, vec![points])
    }

    /// Adds a horizontal line.
    #[must_use]
    pub fn level(self, label: impl Into<String>, at: f64) -> Self {
        self.dashed(label, GREY, EDGES.map(|x| (x, at)).to_vec())
    }

    /// Adds a vertical line.
    #[must_use]
    pub fn mark(self, label: impl Into<String>, at: f64, dashed: bool) -> Self {
        let points = EDGES.map(|y| (at, y)).to_vec();
        match dashed {
            true => self.dashed(label, GREY, points),
            false => self.line(label, GREY, points),
        }
    }

    fn with_boxes(
        self,
        label: impl Into<String>,
        color: Color,
        opacity: f64,
        boxes: Vec<[f64; 4]>,
    ) -> Self {
        self.layer(Layer::Boxes(Boxes {
            label: label.into(),
            color,
            opacity,
            boxes,
        }))
    }

    #[must_use]
    pub fn boxes(self, label: impl Into<String>, color: Color, boxes: Vec<[f64; 4]>) -> Self {
        self.with_boxes(label, color, 1.0, boxes)
    }

    /// Shades parts of x.
    #[must_use]
    pub fn shade(self, label: impl Into<String>, times: &[(f64, f64)]) -> Self {
        let [bottom, top] = EDGES;
        let boxes = times.iter().map(|&(from, to)| [from, to, bottom, top]);
        self.with_boxes(label, NAGLE, PALE, boxes.collect())
    }

    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.note = Some(text.into());
        self
    }
}

/// Points of a distribution of values with weights, half a percent each.
pub fn shares(samples: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut known = samples.to_vec();
    known.retain(|(value, _)| value.is_finite());
    let shares = (0..=200).map(|i| f64::from(i) / 200.0);
    let values = weighted_quantiles(&known, shares.clone());
    values.into_iter().zip(shares).collect()
}
