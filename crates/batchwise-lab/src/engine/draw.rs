//! Draws a [`Figure`] as SVG text. Logarithmic axes are drawn by drawing logarithms, so that one
//! kind of chart is enough.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::Color as _;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::color::{Color, GREY, NAGLE};
use super::figure::{Axis, Figure, Layer, Marker, Unit};
use super::text::{duration, thousands};

/// Width and height, pixels.
const SIZE: (u32, u32) = (940, 460);
/// Width of the part left of the legend.
const CHART_WIDTH: u32 = 670;
const GRID: Color = Color(228, 228, 228);
/// Letters of a legend's line.
const LEGEND_LETTERS: usize = 32;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Coord, Coord>>;
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// As SVG text.
pub(crate) fn svg(figure: &Figure) -> Result<String> {
    let mut svg = String::new();
    let drawn = (|| -> Drawn {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let root = root.titled(&figure.title, ("sans-serif", 19))?;
        let (area, legend) = root.split_horizontally(CHART_WIDTH);
        let (x, y) = (Scale::of(figure, true), Scale::of(figure, false));
        draw_chart(figure, &x, &y, &area)?;
        draw_legend(figure, &legend)?;
        root.present()?;
        Ok(())
    })();
    drawn.map_err(|error| anyhow!("drawing {:?}: {error}", figure.title))?;
    Ok(svg)
}

/// An axis with its ends known. Positions are logarithms where it is logarithmic.
struct Scale<'a> {
    axis: &'a Axis,
    /// Ends, as positions.
    ends: (f64, f64),
    /// Where numbers stand, as positions.
    ticks: Vec<f64>,
}

impl<'a> Scale<'a> {
    fn of(figure: &'a Figure, is_x: bool) -> Self {
        let axis = if is_x { &figure.x } else { &figure.y };
        let usable = |v: &f64| v.is_finite() && (!axis.log || *v > 0.0);
        let mut low = f64::INFINITY;
        let mut high = f64::NEG_INFINITY;
        let cap = axis.cap.unwrap_or(f64::INFINITY);
        let data = figure.layers.iter().flat_map(|layer| extent(layer, is_x));
        for value in data.chain(axis.reaches.iter().copied()).filter(usable) {
            low = low.min(value.min(cap));
            high = high.max(value.min(cap));
        }
        if low > high {
            (low, high) = if axis.log { (1e3, 1e5) } else { (0.0, 1.0) };
        }
        let (low, high) = if axis.log {
            let low = axis.range.0.unwrap_or(low / 1.5);
            // At least a decade, unless that is above the cap.
            let top = (high * 1.5).max((low * 10.0).min(cap)).min(cap * 1.05);
            (low, axis.range.1.unwrap_or(top.max(low * 2.0)))
        } else {
            let room = (high - low).max(high.abs() * 0.01).max(1e-9) * 0.06;
            let low = axis.range.0.unwrap_or(low - room);
            (low, axis.range.1.unwrap_or((high + room).max(low + 1e-9)))
        };
        let ticks = match (&axis.unit, axis.log) {
            (Unit::Names(names), _) => (0..names.len()).map(|i| i as f64).collect(),
            (_, true) => log_ticks(low, high).into_iter().map(f64::log10).collect(),
            (_, false) => linear_ticks(low, high, if is_x { 9 } else { 10 }),
        };
        let mut scale = Self {
            axis,
            ends: (0.0, 1.0),
            ticks,
        };
        scale.ends = (scale.raw(low), scale.raw(high));
        scale
    }

    fn raw(&self, value: f64) -> f64 {
        match self.axis.log {
            true => value.max(f64::MIN_POSITIVE).log10(),
            false => value,
        }
    }

    /// Position of a value, at an edge if it is beyond.
    fn at(&self, value: f64) -> f64 {
        self.raw(value).clamp(self.ends.0, self.ends.1)
    }

    fn is_within(&self, value: f64) -> bool {
        (self.ends.0..=self.ends.1).contains(&self.raw(value))
    }

    fn label(&self, position: f64) -> String {
        let value = match self.axis.log {
            true => 10f64.powf(position),
            false => position,
        };
        match &self.axis.unit {
            Unit::Number(decimals) => format!("{value:.decimals$}"),
            Unit::Duration => duration(value),
            Unit::Rate => thousands(value),
            Unit::Percent if value.abs() < 0.00995 && value != 0.0 => {
                format!("{:.1} %", value * 100.0)
            }
            Unit::Percent => format!("{:.0} %", value * 100.0),
            Unit::Names(names) => names
                .get(value.round() as usize)
                .cloned()
                .unwrap_or_default(),
        }
    }

    fn coord(&self) -> Coord {
        Coord {
            ends: self.ends,
            ticks: self.ticks.clone(),
        }
    }
}

/// An axis of positions with numbers where we want them.
struct Coord {
    ends: (f64, f64),
    ticks: Vec<f64>,
}

impl Ranged for Coord {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.ends.0) / (self.ends.1 - self.ends.0);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.ends.0..self.ends.1
    }
}

impl ValueFormatter<f64> for Coord {}

/// 1, 2 and 5 times the powers of ten within a range.
fn log_ticks(bottom: f64, top: f64) -> Vec<f64> {
    let decades = (bottom.log10().floor() as i32)..=(top.log10().ceil() as i32);
    let all = decades.flat_map(|d| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(d)));
    all.filter(|y| (bottom..=top).contains(y)).collect()
}

/// About so many round numbers within a range.
fn linear_ticks(bottom: f64, top: f64, about: usize) -> Vec<f64> {
    let rough = (top - bottom) / about as f64;
    let decade = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|m| m * decade);
    let step = steps.into_iter().find(|s| *s >= rough).unwrap_or(rough);
    let (first, last) = ((bottom / step).ceil() as i64, (top / step).floor() as i64);
    (first..=last).map(|i| i as f64 * step).collect()
}

/// All values of a layer on an axis.
fn extent(layer: &Layer, is_x: bool) -> Vec<f64> {
    match layer {
        Layer::Line { pieces, .. } => {
            let points = pieces.iter().flatten();
            points.map(|p| if is_x { p.0 } else { p.1 }).collect()
        }
        Layer::Band { points, .. } | Layer::Whiskers { points, .. } => {
            let each = |p: &(f64, f64, f64)| if is_x { vec![p.0] } else { vec![p.1, p.2] };
            points.iter().flat_map(each).collect()
        }
        Layer::Boxes { boxes, .. } => {
            let each = |b: &[f64; 4]| if is_x { [b[0], b[1]] } else { [b[2], b[3]] };
            boxes.iter().flat_map(each).collect()
        }
        Layer::Level { at, .. } if !is_x => vec![*at],
        Layer::Mark { at, .. } if is_x => vec![*at],
        Layer::Spans(spans) if is_x => spans.iter().map(|span| span.to).collect(),
        _ => Vec::new(),
    }
}

fn draw_chart(figure: &Figure, x: &Scale<'_>, y: &Scale<'_>, area: &Area<'_>) -> Drawn {
    let mut builder = ChartBuilder::on(area);
    let names = matches!(figure.y.unit, Unit::Names(_));
    let mut chart = builder
        .margin(8)
        .margin_top(4)
        .x_label_area_size(46)
        .y_label_area_size(if names { 150 } else { 74 })
        .build_cartesian_2d(x.coord(), y.coord())?;
    let mut mesh = chart.configure_mesh();
    if matches!(figure.x.unit, Unit::Names(_)) {
        mesh.disable_x_mesh();
    }
    mesh.light_line_style(WHITE.mix(0.0))
        .bold_line_style(GRID)
        .x_desc(&figure.x.name)
        .y_desc(&figure.y.name)
        .x_labels(x.ticks.len().max(1))
        .y_labels(y.ticks.len().max(1))
        .x_label_formatter(&|at| x.label(*at))
        .y_label_formatter(&|at| y.label(*at))
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 15))
        .draw()?;
    for layer in &figure.layers {
        draw_layer(layer, x, y, &mut chart)?;
    }
    Ok(())
}

fn draw_layer(layer: &Layer, x: &Scale<'_>, y: &Scale<'_>, chart: &mut Chart<'_, '_>) -> Drawn {
    let at = |&(a, b): &(f64, f64)| (x.at(a), y.at(b));
    match layer {
        Layer::Line {
            color,
            dashed,
            joined,
            marker,
            pieces,
            ..
        } => {
            let style = color.stroke_width(2);
            for piece in pieces {
                let known = piece.iter().filter(|p| p.0.is_finite() && !p.1.is_nan());
                let points: Vec<_> = known.map(at).collect();
                match (joined, dashed) {
                    (false, _) => {}
                    (true, true) => {
                        let points = points.iter().copied();
                        chart.draw_series(DashedLineSeries::new(points, 7, 4, style))?;
                    }
                    (true, false) => {
                        chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
                    }
                }
                match marker {
                    Marker::None => {}
                    Marker::Dot => {
                        // So that hundreds of them can still be told apart.
                        let size = if points.len() > 60 { 2 } else { 4 };
                        let dots = points.iter().map(|&p| Circle::new(p, size, color.filled()));
                        chart.draw_series(dots)?;
                    }
                    Marker::Triangle => {
                        let marks = points.iter();
                        let marks = marks.map(|&p| TriangleMarker::new(p, 5, color.filled()));
                        chart.draw_series(marks)?;
                    }
                }
            }
        }
        Layer::Band { color, points } => {
            let upper = points.iter().map(|p| at(&(p.0, p.2)));
            let lower = points.iter().rev().map(|p| at(&(p.0, p.1)));
            let corners: Vec<_> = upper.chain(lower).collect();
            chart.draw_series([Polygon::new(corners, color.mix(0.15).filled())])?;
        }
        Layer::Whiskers { color, points } => {
            let half = (x.ends.1 - x.ends.0) * 0.007;
            for &(center, low, high) in points {
                let (center, low, high) = (x.at(center), y.at(low), y.at(high));
                let across = |end: f64| vec![(center - half, end), (center + half, end)];
                let lines = [
                    across(low),
                    across(high),
                    vec![(center, low), (center, high)],
                ];
                let lines = lines.map(|line| PathElement::new(line, color.stroke_width(2)));
                chart.draw_series(lines)?;
            }
        }
        Layer::Boxes { color, boxes, .. } => {
            let each = |b: &[f64; 4]| {
                let corners = [at(&(b[0], b[2])), at(&(b[1], b[3]))];
                Rectangle::new(corners, color.filled())
            };
            chart.draw_series(boxes.iter().map(each))?;
        }
        Layer::Level { at, .. } if y.is_within(*at) => {
            let line = [(x.ends.0, y.at(*at)), (x.ends.1, y.at(*at))];
            chart.draw_series(DashedLineSeries::new(line, 5, 5, GREY.stroke_width(2)))?;
        }
        Layer::Mark { at, dashed, .. } if x.is_within(*at) => {
            vertical(*at, *dashed, 2, x, y, chart)?;
        }
        Layer::Level { .. } | Layer::Mark { .. } => {}
        Layer::Spans(spans) => {
            for span in spans {
                vertical(span.from, true, 1, x, y, chart)?;
                let top = y.ends.1 - (y.ends.1 - y.ends.0) * 0.02;
                let middle = f64::midpoint(x.at(span.from), x.at(span.to));
                let style = ("sans-serif", 14).into_font().color(&GREY);
                let style = style.pos(Pos::new(HPos::Center, VPos::Top));
                chart.draw_series([Text::new(span.name.clone(), (middle, top), style)])?;
            }
        }
        Layer::Shade { times, .. } => {
            let each = |&(from, to): &(f64, f64)| {
                let corners = [(x.at(from), y.ends.0), (x.at(to), y.ends.1)];
                Rectangle::new(corners, NAGLE.mix(0.12).filled())
            };
            chart.draw_series(times.iter().map(each))?;
        }
        Layer::Events { color, at, .. } => {
            let each =
                |&moment: &f64| TriangleMarker::new((x.at(moment), y.ends.0), 6, color.filled());
            chart.draw_series(at.iter().map(each))?;
        }
    }
    Ok(())
}

fn vertical(
    at: f64,
    dashed: bool,
    width: u32,
    x: &Scale<'_>,
    y: &Scale<'_>,
    chart: &mut Chart<'_, '_>,
) -> Drawn {
    let line = [(x.at(at), y.ends.0), (x.at(at), y.ends.1)];
    let style = GREY.stroke_width(width);
    match dashed {
        true => chart.draw_series(DashedLineSeries::new(line, 4, 4, style))?,
        false => chart.draw_series(LineSeries::new(line, style))?,
    };
    Ok(())
}

fn draw_legend(figure: &Figure, legend: &Area<'_>) -> Drawn {
    let mut y = 30;
    let text = |y: &mut i32, label: &str, left: i32, size: u32| -> Drawn {
        for line in textwrap::wrap(label, LEGEND_LETTERS) {
            let style = ("sans-serif", size).into_font().color(&BLACK);
            legend.draw(&Text::new(line.into_owned(), (left, *y - 6), style))?;
            *y += 17;
        }
        *y += 8;
        Ok(())
    };
    let line = |y: i32, color: Color, dashed: bool| -> Drawn {
        let pieces: &[(i32, i32)] = match dashed {
            true => &[(8, 15), (19, 26), (30, 36)],
            false => &[(8, 36)],
        };
        for &(from, to) in pieces {
            let path = [(from, y), (to, y)];
            legend.draw(&PathElement::new(path, color.stroke_width(2)))?;
        }
        Ok(())
    };
    let square = |y: i32, style: ShapeStyle| -> Drawn {
        legend.draw(&Rectangle::new([(8, y - 7), (36, y + 7)], style))?;
        Ok(())
    };
    for layer in &figure.layers {
        let label = match layer {
            Layer::Line { label, .. }
            | Layer::Boxes { label, .. }
            | Layer::Level { label, .. }
            | Layer::Mark { label, .. }
            | Layer::Shade { label, .. } => label,
            Layer::Events { label, at, .. } if !at.is_empty() => label,
            _ => continue,
        };
        if label.is_empty() {
            continue;
        }
        match layer {
            Layer::Line {
                color,
                dashed,
                joined,
                marker,
                ..
            } => {
                if *joined {
                    line(y, *color, *dashed)?;
                }
                match marker {
                    Marker::None => {}
                    Marker::Dot => legend.draw(&Circle::new((22, y), 4, color.filled()))?,
                    Marker::Triangle => {
                        legend.draw(&TriangleMarker::new((22, y), 5, color.filled()))?;
                    }
                }
            }
            Layer::Boxes { color, .. } => square(y, color.filled())?,
            Layer::Level { .. } => line(y, GREY, true)?,
            Layer::Mark { dashed, .. } => line(y, GREY, *dashed)?,
            Layer::Shade { .. } => square(y, NAGLE.mix(0.25).filled())?,
            Layer::Events { color, .. } => {
                legend.draw(&TriangleMarker::new((22, y), 6, color.filled()))?;
            }
            Layer::Band { .. } | Layer::Whiskers { .. } | Layer::Spans(_) => {}
        }
        text(&mut y, label, 44, 14)?;
    }
    match &figure.note {
        Some(note) => text(&mut y, note, 8, 13),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::color::BLACK;
    use super::super::figure::{Bar, Group, Span, Strip};
    use super::*;

    fn is_svg(svg: &str) -> bool {
        let whole = svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>");
        whole && !svg.contains("NaN") && !svg.contains("inf")
    }

    #[test]
    fn a_log_scale_has_ticks_also_within_a_decade() {
        assert_eq!(log_ticks(15e3, 300e3), [20e3, 50e3, 100e3, 200e3]);
        assert_eq!(linear_ticks(0.0, 1.0, 10).len(), 11);
    }

    #[test]
    fn figures_without_data_are_still_figures() {
        let figures = [
            Figure::latency_over_load("a.svg", "nothing"),
            Figure::ratios("a.svg", "nothing", "ratio", Vec::new()),
            Figure::stacked_bars("a.svg", "n", ("x", Axis::latency()), &[], "", &[]),
            Figure::over_time("a.svg", "nothing", Axis::new("share", Unit::Percent)),
        ];
        for figure in figures {
            assert!(is_svg(&svg(&figure).unwrap()));
        }
    }

    #[test]
    fn a_collapsed_point_stays_inside_the_picture() {
        let points = vec![(1000.0, 20_000.0), (2000.0, 9e12), (3000.0, f64::INFINITY)];
        let figure = Figure::latency_over_load("a.svg", "collapse");
        let drawn = svg(&figure.measured("measured", NAGLE, points)).unwrap();
        assert!(is_svg(&drawn) && !drawn.contains("cy=\"-"));
    }

    #[test]
    fn every_layer_is_drawn_and_named() {
        let figure = Figure::over_time("a.svg", "all", Axis::latency())
            .measured("measured", BLACK, vec![(0.0, 2e4), (2.0, 3e7)])
            .estimated("estimated", BLACK, vec![(0.0, 2e4), (1.0, f64::INFINITY)])
            .shares("shares", BLACK, true, &[(1.0, 2.0)])
            .level("500 µs", 5e5)
            .mark("cutoff", 1.0, true)
            .layer(Layer::Spans(vec![Span {
                from: 0.0,
                to: 2.0,
                name: "64 B".into(),
            }]))
            .layer(Layer::Shade {
                label: "Nagle on".into(),
                times: vec![(0.5, 1.0)],
            })
            .layer(Layer::Events {
                label: "probe".into(),
                color: BLACK,
                at: vec![0.5],
            })
            .layer(Layer::Events {
                label: "abort".into(),
                color: BLACK,
                at: Vec::new(),
            })
            .layer(Layer::Whiskers {
                color: BLACK,
                points: vec![(1.0, 2e4, 3e4)],
            })
            .note("a note");
        let drawn = svg(&figure).unwrap();
        let names = [
            "measured", "500 µs", "cutoff", "64 B", "Nagle on", "probe", "a note",
        ];
        assert!(is_svg(&drawn));
        assert!(names.iter().all(|name| drawn.contains(name)));
        assert!(!drawn.contains("abort"), "an event that never came");
    }

    #[test]
    fn ratios_show_their_interval_and_bars_their_parts() {
        let pairs: Vec<_> = (0..20).map(|i| (97.0 + f64::from(i % 3), 100.0)).collect();
        let strips = vec![Strip::new("watch", NAGLE, &pairs)];
        let drawn = svg(&Figure::ratios("a.svg", "r", "ratio", strips)).unwrap();
        assert!(
            drawn.contains("watch") && drawn.contains("0.980"),
            "{drawn}"
        );
        let bar = Some(Bar {
            parts: vec![1e4, 2e4],
            measured: Some(2.5e4),
        });
        let group = Group {
            label: "5k".into(),
            bars: vec![bar, None],
        };
        let y = Axis::new("latency", Unit::Duration);
        let parts = ["network", "server"];
        let figure = Figure::stacked_bars("a.svg", "b", ("load", y), &parts, "truth", &[group]);
        let drawn = svg(&figure).unwrap();
        assert!(drawn.contains("network") && drawn.contains("5k") && drawn.contains("truth"));
    }
}
