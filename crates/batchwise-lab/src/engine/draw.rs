//! Draws a [`Figure`] as SVG text.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::Color as _;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::color::{Color, GREY};
use super::figure::{Axis, Figure, Layer, Line, Marker, Stroke, Unit};
use super::text::{duration, thousands};

/// Width and height, pixels.
const SIZE: (u32, u32) = (940, 460);
/// Width of the part left of the legend.
const CHART_WIDTH: u32 = 670;
const GRID: Color = Color(228, 228, 228);
/// Letters of a legend's line.
const LEGEND_LETTERS: usize = 32;
/// Pixels of a dash, and between two.
const DASH: (i32, i32) = (7, 4);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Scale, Scale>>;
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// As SVG text.
pub(crate) fn svg(figure: &Figure) -> Result<String> {
    let mut svg = String::new();
    let drawn = (|| -> Drawn {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let root = root.titled(&figure.title, ("sans-serif", 19))?;
        let (area, legend) = root.split_horizontally(CHART_WIDTH);
        draw_chart(figure, &area)?;
        draw_legend(figure, &legend)?;
        root.present()?;
        Ok(())
    })();
    drawn.map_err(|error| anyhow!("drawing {:?}: {error}", figure.title))?;
    Ok(svg)
}

/// An axis with its ends known, and numbers where we want them.
struct Scale {
    unit: Unit,
    log: bool,
    ends: (f64, f64),
    ticks: Vec<f64>,
}

impl Scale {
    fn of(axis: &Axis, data: impl Iterator<Item = f64>) -> Self {
        let cap = axis.cap.unwrap_or(f64::INFINITY);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        let usable = |v: &f64| v.is_finite() && (!axis.log || *v > 0.0);
        for value in data.chain(axis.reaches.iter().copied()).filter(usable) {
            low = low.min(value.min(cap));
            high = high.max(value.min(cap));
        }
        if low > high {
            (low, high) = if axis.log { (1e3, 1e5) } else { (0.0, 1.0) };
        }
        let ends = if axis.log {
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
            (_, true) => log_ticks(ends.0, ends.1),
            // no two that are written alike
            (Unit::Number(decimals), _) => linear_ticks(ends, 0.1f64.powi(*decimals as i32)),
            (_, false) => linear_ticks(ends, 0.0),
        };
        Self {
            unit: axis.unit.clone(),
            log: axis.log,
            ends,
            ticks,
        }
    }

    fn position(&self, value: f64) -> f64 {
        match self.log {
            true => value.max(f64::MIN_POSITIVE).log10(),
            false => value,
        }
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let [at, from, to] = [*value, self.ends.0, self.ends.1].map(|v| self.position(v));
        let share = ((at - from) / (to - from)).clamp(0.0, 1.0);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.ends.0..self.ends.1
    }
}

impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, &value: &f64) -> String {
        match &self.unit {
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
}

/// 1, 2 and 5 times the powers of ten within a range.
fn log_ticks(bottom: f64, top: f64) -> Vec<f64> {
    let decades = (bottom.log10().floor() as i32)..=(top.log10().ceil() as i32);
    let all = decades.flat_map(|d| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(d)));
    all.filter(|y| (bottom..=top).contains(y)).collect()
}

/// About ten round numbers within a range, `least` apart at least.
fn linear_ticks((bottom, top): (f64, f64), least: f64) -> Vec<f64> {
    let rough = ((top - bottom) / 10.0).max(least);
    let decade = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|m| m * decade);
    let step = steps.into_iter().find(|s| *s >= rough).unwrap_or(rough);
    let (first, last) = ((bottom / step).ceil() as i64, (top / step).floor() as i64);
    (first..=last).map(|i| i as f64 * step).collect()
}

/// All values of a layer on x and on y.
fn values(layer: &Layer) -> (Vec<f64>, Vec<f64>) {
    match layer {
        Layer::Line(line) => line.pieces.iter().flatten().copied().unzip(),
        Layer::Boxes(boxes) => {
            let corners = boxes
                .boxes
                .iter()
                .flat_map(|b| [(b[0], b[2]), (b[1], b[3])]);
            corners.unzip()
        }
        Layer::Whiskers { points, .. } => {
            let ends = points.iter().flat_map(|p| [(p.0, p.1), (p.0, p.2)]);
            ends.unzip()
        }
        Layer::Spans(spans) => (spans.iter().map(|span| span.to).collect(), Vec::new()),
    }
}

fn draw_chart(figure: &Figure, area: &Area<'_>) -> Drawn {
    let (on_x, on_y): (Vec<_>, Vec<_>) = figure.layers.iter().map(values).unzip();
    let x = Scale::of(&figure.x, on_x.into_iter().flatten());
    let y = Scale::of(&figure.y, on_y.into_iter().flatten());
    let is_named = |axis: &Axis| matches!(axis.unit, Unit::Names(_));
    let mut builder = ChartBuilder::on(area);
    let mut chart = builder
        .margin(8)
        .margin_top(4)
        .x_label_area_size(46)
        .y_label_area_size(if is_named(&figure.y) { 150 } else { 74 })
        .build_cartesian_2d(x, y)?;
    let mut mesh = chart.configure_mesh();
    if is_named(&figure.x) {
        mesh.disable_x_mesh();
    }
    mesh.light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .x_desc(&figure.x.name)
        .y_desc(&figure.y.name)
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 15))
        .draw()?;
    for layer in &figure.layers {
        draw_layer(layer, &mut chart)?;
    }
    Ok(())
}

fn draw_layer(layer: &Layer, chart: &mut Chart<'_, '_>) -> Drawn {
    match layer {
        Layer::Line(line) => draw_line(line, chart)?,
        Layer::Boxes(boxes) => {
            let style = boxes.color.mix(boxes.opacity).filled();
            let corners = boxes.boxes.iter().map(|b| [(b[0], b[2]), (b[1], b[3])]);
            chart.draw_series(corners.map(|corners| Rectangle::new(corners, style)))?;
        }
        Layer::Whiskers { color, points } => {
            let style = color.stroke_width(2);
            let bars = points.iter();
            let bars = bars.map(|p| PathElement::new([(p.0, p.1), (p.0, p.2)], style));
            chart.draw_series(bars)?;
            let ends = points.iter().flat_map(|p| [(p.0, p.1), (p.0, p.2)]);
            let across = |end| EmptyElement::at(end) + PathElement::new([(-4, 0), (4, 0)], style);
            chart.draw_series(ends.map(across))?;
        }
        Layer::Spans(spans) => {
            let (bottom, top) = (f64::NEG_INFINITY, f64::INFINITY);
            for span in spans {
                let begin = [(span.from, bottom), (span.from, top)];
                chart.draw_series(DashedLineSeries::new(begin, DASH.0, DASH.1, GREY.into()))?;
                let style = ("sans-serif", 14).into_font().color(&GREY);
                let style = style.pos(Pos::new(HPos::Center, VPos::Top));
                let name = Text::new(span.name.clone(), (0, 8), style);
                let middle = f64::midpoint(span.from, span.to);
                chart.draw_series([EmptyElement::at((middle, top)) + name])?;
            }
        }
    }
    Ok(())
}

fn draw_line(line: &Line, chart: &mut Chart<'_, '_>) -> Drawn {
    let (style, filled) = (line.color.stroke_width(2), line.color.filled());
    for piece in &line.pieces {
        let known = piece.iter().copied();
        let known = known.filter(|p| !p.0.is_nan() && !p.1.is_nan());
        match line.stroke {
            Stroke::Nothing => {}
            Stroke::Solid => {
                chart.draw_series(LineSeries::new(known.clone(), style))?;
            }
            Stroke::Dashed => {
                let dashes = DashedLineSeries::new(known.clone(), DASH.0, DASH.1, style);
                chart.draw_series(dashes)?;
            }
        }
        match line.marker {
            Marker::Nothing => {}
            Marker::Dot => {
                // So that hundreds of them can still be told apart.
                let size = if piece.len() > 60 { 2 } else { 4 };
                chart.draw_series(known.map(|p| Circle::new(p, size, filled)))?;
            }
            Marker::Triangle => {
                chart.draw_series(known.map(|p| TriangleMarker::new(p, 5, filled)))?;
            }
        }
    }
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
    for layer in &figure.layers {
        match layer {
            Layer::Line(line) if !line.label.is_empty() => {
                let (path, style) = ([(8, y), (36, y)], line.color.stroke_width(2));
                match line.stroke {
                    Stroke::Nothing => {}
                    Stroke::Solid => legend.draw(&PathElement::new(path, style))?,
                    Stroke::Dashed => {
                        legend.draw(&DashedPathElement::new(path, DASH.0, DASH.1, style))?;
                    }
                }
                let (middle, filled) = ((22, y), line.color.filled());
                match line.marker {
                    Marker::Nothing => {}
                    Marker::Dot => legend.draw(&Circle::new(middle, 4, filled))?,
                    Marker::Triangle => legend.draw(&TriangleMarker::new(middle, 5, filled))?,
                }
                text(&mut y, &line.label, 44, 14)?;
            }
            Layer::Boxes(boxes) if !boxes.label.is_empty() => {
                let style = boxes.color.mix(boxes.opacity).filled();
                legend.draw(&Rectangle::new([(8, y - 7), (36, y + 7)], style))?;
                text(&mut y, &boxes.label, 44, 14)?;
            }
            _ => {}
        }
    }
    match &figure.note {
        Some(note) => text(&mut y, note, 8, 13),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::color::{BLACK, NAGLE};
    use super::super::figure::{Bar, Group, Span, Strip};
    use super::*;

    fn is_svg(svg: &str) -> bool {
        let whole = svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>");
        whole && !svg.contains("NaN") && !svg.contains("inf")
    }

    #[test]
    fn ticks_are_round_also_within_a_decade_and_never_written_alike() {
        assert_eq!(log_ticks(15e3, 300e3), [20e3, 50e3, 100e3, 200e3]);
        assert_eq!(linear_ticks((0.0, 1.0), 0.0).len(), 11);
        let two_rounds = Axis::new("round", Unit::Number(0)).between(0.5, 2.5);
        assert_eq!(Scale::of(&two_rounds, std::iter::empty()).ticks, [1.0, 2.0]);
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
            .level("500 µs", 5e5)
            .mark("cutoff", 1.0, true)
            .layer(Layer::Spans(vec![Span {
                from: 0.0,
                to: 2.0,
                name: "64 B".into(),
            }]))
            .shade("Nagle on", &[(0.5, 1.0)])
            .events("probe", BLACK, &[0.5])
            .events("abort", BLACK, &[])
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
