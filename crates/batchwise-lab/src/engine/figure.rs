//! Figures as data: two axes, layers on them, a legend.

use super::color::{Color, PARTS};
use super::ratio::Ratio;

/// Latencies beyond this (ns), of arms that have collapsed, are drawn at the upper edge.
const LATENCY_CAP: f64 = 1e7;

/// A figure, drawn into a file of the output's directory.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Name of the file, `*.svg`.
    pub file: String,
    /// Above it.
    pub title: String,
    /// Left to right.
    pub x: Axis,
    /// Bottom to top.
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

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What is on it.
    pub name: String,
    /// How its numbers are written.
    pub unit: Unit,
    /// Whether it is logarithmic.
    pub log: bool,
    /// Where it begins and ends; from the data if not given.
    pub range: (Option<f64>, Option<f64>),
    /// Values that it reaches in any case.
    pub reaches: Vec<f64>,
    /// What is higher is drawn at the edge.
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

    /// Logarithmic.
    #[must_use]
    pub fn log(mut self) -> Self {
        self.log = true;
        self.range.0 = None;
        self
    }

    /// Begins near the lowest value rather than at 0.
    #[must_use]
    pub fn tight(mut self) -> Self {
        self.range.0 = None;
        self
    }

    /// Exactly from here to there; values beyond are drawn at the edges.
    #[must_use]
    pub fn between(mut self, from: f64, to: f64) -> Self {
        self.range = (Some(from), Some(to));
        self
    }

    /// Reaches this value in any case.
    #[must_use]
    pub fn reaching(mut self, value: f64) -> Self {
        self.reaches.push(value);
        self
    }

    /// Ends here at the highest.
    #[must_use]
    pub fn capped(mut self, at: f64) -> Self {
        self.cap = Some(at);
        self
    }

    /// Offered load.
    pub fn load() -> Self {
        Self::new("offered load, requests/s", Unit::Rate).reaching(1000.0)
    }

    /// Mean latency on a log scale.
    pub fn latency() -> Self {
        Self::new("mean latency", Unit::Duration).log()
    }

    /// Seconds.
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

/// How points of a line are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// Not at all.
    None,
    /// Measured.
    Dot,
    /// Estimated.
    Triangle,
}

/// Something drawn. A layer with an empty label is not in the legend.
#[derive(Clone, Debug)]
pub enum Layer {
    /// Lines in pieces that nothing joins; `joined` is false for markers alone.
    Line {
        /// In the legend.
        label: String,
        /// Its colour.
        color: Color,
        /// Whether it is dashed.
        dashed: bool,
        /// Whether there is a line at all.
        joined: bool,
        /// At its points.
        marker: Marker,
        /// Points.
        pieces: Vec<Vec<(f64, f64)>>,
    },
    /// An area between two heights: x, low, high.
    Band {
        /// Its colour, which is made pale.
        color: Color,
        /// Points.
        points: Vec<(f64, f64, f64)>,
    },
    /// Vertical bars with ends: x, low, high.
    Whiskers {
        /// Their colour.
        color: Color,
        /// Points.
        points: Vec<(f64, f64, f64)>,
    },
    /// Filled rectangles: left, right, bottom, top.
    Boxes {
        /// In the legend.
        label: String,
        /// Their colour.
        color: Color,
        /// Corners.
        boxes: Vec<[f64; 4]>,
    },
    /// A horizontal line, dashed.
    Level {
        /// In the legend.
        label: String,
        /// Where.
        at: f64,
    },
    /// A vertical line.
    Mark {
        /// In the legend.
        label: String,
        /// Where.
        at: f64,
        /// Whether it is dashed.
        dashed: bool,
    },
    /// Parts of x with names at the top.
    Spans(Vec<Span>),
    /// Shaded parts of x.
    Shade {
        /// In the legend.
        label: String,
        /// From and to.
        times: Vec<(f64, f64)>,
    },
    /// Moments marked at the lower edge.
    Events {
        /// In the legend.
        label: String,
        /// Their colour.
        color: Color,
        /// On x.
        at: Vec<f64>,
    },
}

/// A part of x with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Begin.
    pub from: f64,
    /// End.
    pub to: f64,
    /// Its name.
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
    /// What is below them.
    pub label: String,
    /// Left to right.
    pub bars: Vec<Option<Bar>>,
}

/// Ratios of pairs, drawn next to each other.
#[derive(Clone, Debug)]
pub struct Strip {
    /// In the legend.
    pub label: String,
    /// Its colour.
    pub color: Color,
    /// Value and what it is compared with.
    pub pairs: Vec<(f64, f64)>,
}

impl Strip {
    /// Of these pairs.
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

    /// Mean latency (log scale) over offered load, for lines of measured and estimated values.
    pub fn latency_over_load(file: impl Into<String>, title: impl Into<String>) -> Self {
        let y = Axis::latency().capped(LATENCY_CAP);
        Self::new(file, title, Axis::load(), y)
    }

    /// Something over seconds.
    pub fn over_time(file: impl Into<String>, title: impl Into<String>, y: Axis) -> Self {
        Self::new(file, title, Axis::seconds(), y)
    }

    /// Ratios of `what` by round, with their median and its interval.
    pub fn ratios(
        file: impl Into<String>,
        title: impl Into<String>,
        what: &str,
        strips: Vec<Strip>,
    ) -> Self {
        let rounds = strips.iter().map(|s| s.pairs.len()).max().unwrap_or(0);
        let rounds = rounds.max(1) as f64;
        let x = Axis::new("round", Unit::Number(0)).between(0.5, rounds + 0.5);
        let y = Axis::new(what, Unit::Number(2)).tight().reaching(0.95);
        let mut figure = Self::new(file, title, x, y.reaching(1.05)).level("", 1.0);
        for Strip {
            label,
            color,
            pairs,
        } in strips
        {
            let ratio = Ratio::of(&pairs);
            let values = pairs.iter().map(|(arm, base)| arm / base);
            let dots = (1..).map(f64::from).zip(values).collect();
            figure = figure.dots("", color, dots);
            if let Some(ratio) = ratio {
                let across = |y: f64| vec![(0.5, y), (rounds + 0.5, y)];
                let band = vec![
                    (0.5, ratio.low, ratio.high),
                    (rounds + 0.5, ratio.low, ratio.high),
                ];
                let label = format!("{label}, median {}", Ratio::text(Some(&ratio)));
                figure = figure
                    .layer(Layer::Band {
                        color,
                        points: band,
                    })
                    .dashed(label, color, across(ratio.median));
            }
        }
        figure
    }

    /// Which share of `of` has at most so much: values and how often each counts.
    pub fn distribution(
        file: impl Into<String>,
        title: impl Into<String>,
        x: Axis,
        of: &str,
    ) -> Self {
        let y = Axis::new(of, Unit::Percent).between(0.0, 1.0);
        Self::new(file, title, x, y)
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
        for (index, (part, boxes)) in parts.iter().zip(boxes).enumerate() {
            figure = figure.layer(Layer::Boxes {
                label: (*part).into(),
                color: PARTS[index % PARTS.len()],
                boxes,
            });
        }
        if marks.is_empty() {
            return figure;
        }
        figure.pieces(measured, super::color::BLACK, marks)
    }

    /// Adds a layer.
    #[must_use]
    pub fn layer(mut self, layer: Layer) -> Self {
        self.layers.push(layer);
        self
    }

    fn with_line(
        self,
        label: impl Into<String>,
        color: Color,
        (dashed, joined, marker): (bool, bool, Marker),
        pieces: Vec<Vec<(f64, f64)>>,
    ) -> Self {
        self.layer(Layer::Line {
            label: label.into(),
            color,
            dashed,
            joined,
            marker,
            pieces,
        })
    }

    /// Adds a line.
    #[must_use]
    pub fn line(self, label: impl Into<String>, color: Color, points: Vec<(f64, f64)>) -> Self {
        self.with_line(label, color, (false, true, Marker::None), vec![points])
    }

    /// Adds a dashed line.
    #[must_use]
    pub fn dashed(self, label: impl Into<String>, color: Color, points: Vec<(f64, f64)>) -> Self {
        self.with_line(label, color, (true, true, Marker::None), vec![points])
    }

    /// Adds a line in pieces.
    #[must_use]
    pub fn pieces(
        self,
        label: impl Into<String>,
        color: Color,
        pieces: Vec<Vec<(f64, f64)>>,
    ) -> Self {
        self.with_line(label, color, (false, true, Marker::None), pieces)
    }

    /// Adds a line with dots: measured.
    #[must_use]
    pub fn measured(self, label: impl Into<String>, color: Color, points: Vec<(f64, f64)>) -> Self {
        self.with_line(label, color, (false, true, Marker::Dot), vec![points])
    }

    /// Adds a dashed line with triangles: estimated.
    #[must_use]
    pub fn estimated(
        self,
        label: impl Into<String>,
        color: Color,
        points: Vec<(f64, f64)>,
    ) -> Self {
        self.with_line(label, color, (true, true, Marker::Triangle), vec![points])
    }

    /// Adds dots without a line.
    #[must_use]
    pub fn dots(self, label: impl Into<String>, color: Color, points: Vec<(f64, f64)>) -> Self {
        self.with_line(label, color, (false, false, Marker::Dot), vec![points])
    }

    /// Adds the distribution of values, each of which counts as often as its weight says.
    #[must_use]
    pub fn shares(
        self,
        label: impl Into<String>,
        color: Color,
        dashed: bool,
        samples: &[(f64, f64)],
    ) -> Self {
        let steps = (dashed, true, Marker::None);
        self.with_line(label, color, steps, vec![shares(samples)])
    }

    /// Adds a horizontal line.
    #[must_use]
    pub fn level(self, label: impl Into<String>, at: f64) -> Self {
        self.layer(Layer::Level {
            label: label.into(),
            at,
        })
    }

    /// Adds a vertical line.
    #[must_use]
    pub fn mark(self, label: impl Into<String>, at: f64, dashed: bool) -> Self {
        self.layer(Layer::Mark {
            label: label.into(),
            at,
            dashed,
        })
    }

    /// Adds a line below the legend.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.note = Some(text.into());
        self
    }
}

/// Points of a distribution of values with weights, half a percent each.
pub fn shares(samples: &[(f64, f64)]) -> Vec<(f64, f64)> {
    const POINTS: u32 = 200;
    let mut sorted = samples.to_vec();
    sorted.retain(|(value, weight)| value.is_finite() && *weight > 0.0);
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: f64 = sorted.iter().map(|(_, weight)| weight).sum();
    let (mut below, mut at) = (0.0, 0);
    let mut point = |share: f64| {
        while let Some((value, weight)) = sorted.get(at) {
            if below + weight >= share * all {
                return Some((*value, share));
            }
            below += weight;
            at += 1;
        }
        sorted.last().map(|last| (last.0, share))
    };
    (0..=POINTS)
        .filter_map(|i| point(f64::from(i) / f64::from(POINTS)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_climbs_by_weight() {
        let points = shares(&[(30.0, 1.0), (10.0, 3.0)]);
        assert_eq!(points[0], (10.0, 0.0));
        let at = |share: f64| points.iter().find(|p| p.1 >= share).unwrap().0;
        assert_eq!((at(0.5), at(0.75), at(0.76)), (10.0, 10.0, 30.0));
    }
}
