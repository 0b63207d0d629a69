//! Plots as SVG text: latency over load in the style of the paper's Figure 4, and bars of stages.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

pub use crate::engine::text::{duration, maybe_duration, thousands};

/// Width and height, pixels.
const SIZE: (u32, u32) = (940, 460);
/// Width of the part left of the legend.
const CHART_WIDTH: u32 = 670;
/// Latencies beyond this (ns), of arms that have collapsed, are drawn at the upper edge.
const LATENCY_CAP: f64 = 1e7;

/// Colour of what is measured or estimated with Nagle on.
pub const NAGLE: RGBColor = RGBColor(196, 78, 32);
/// Colour of what is measured or estimated with TCP_NODELAY.
pub const NODELAY: RGBColor = RGBColor(32, 96, 168);

/// Colour of what is measured with batchwise tuning.
pub const BATCHWISE: RGBColor = RGBColor(34, 128, 72);

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(crate) const GREY: RGBColor = RGBColor(110, 110, 110);
pub(crate) const GRID: RGBColor = RGBColor(228, 228, 228);

/// Colours of the parts of a request's time.
pub(crate) const PART_COLORS: [RGBColor; 4] = [
    RGBColor(86, 132, 178),
    RGBColor(150, 184, 110),
    RGBColor(226, 168, 76),
    RGBColor(164, 118, 168),
];

/// One curve of a latency plot.
#[derive(Clone, Debug)]
pub struct Curve {
    /// What the legend calls it.
    pub label: String,
    /// Its colour.
    pub color: RGBColor,
    /// Whether it is an estimate: dashed, with triangles.
    pub estimated: bool,
    /// Requests a second, and mean latency in ns.
    pub points: Vec<(f64, f64)>,
}

/// A vertical line at a load, or a horizontal one at a latency.
#[derive(Clone, Debug)]
pub struct Mark {
    /// What the legend calls it.
    pub label: String,
    /// Whether it is an estimate: dashed.
    pub estimated: bool,
    /// Requests a second, or ns.
    pub at: f64,
}

/// Mean latency (log scale) over offered load.
pub fn latency_over_load(title: &str, curves: &[Curve], marks: &[Mark]) -> Result<String> {
    latency_with_level(title, curves, marks, None)
}

/// The same with a horizontal line at a latency.
pub fn latency_with_level(
    title: &str,
    curves: &[Curve],
    marks: &[Mark],
    level: Option<&Mark>,
) -> Result<String> {
    let all = || curves.iter().flat_map(|c| &c.points);
    let right = all().map(|p| p.0).fold(1000.0, f64::max) * 1.03;
    let heights = || all().map(|p| p.1).chain(level.map(|level| level.at));
    let low = heights().fold(LATENCY_CAP, f64::min).max(1000.0);
    let high = heights().fold(low, f64::max).min(LATENCY_CAP);
    let (bottom, top) = (
        low / 1.5,
        (high * 1.5).max(low * 10.0).min(LATENCY_CAP * 1.05),
    );
    draw(title, |chart_area, legend| {
        let mut chart = axes(chart_area).build_cartesian_2d(
            0.0..right,
            (bottom..top)
                .log_scale()
                .with_key_points(ticks(bottom, top)),
        )?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .x_desc("offered load, requests/s")
            .y_desc("mean latency")
            .x_labels(9)
            .y_labels(10)
            .x_label_formatter(&|x| thousands(*x))
            .y_label_formatter(&|y| duration(*y))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .draw()?;
        let mut row = 0;
        if let Some(level) = level.filter(|level| (bottom..top).contains(&level.at)) {
            let line = [(0.0, level.at), (right, level.at)];
            chart.draw_series(DashedLineSeries::new(line, 5, 5, GREY.stroke_width(2)))?;
        }
        for mark in marks {
            let line = [(mark.at, bottom), (mark.at, top)];
            let style = GREY.stroke_width(2);
            if mark.estimated {
                chart.draw_series(DashedLineSeries::new(line, 5, 5, style))?;
            } else {
                chart.draw_series(LineSeries::new(line, style))?;
            }
        }
        for curve in curves {
            let points: Vec<_> = curve.points.iter().map(|&(x, y)| (x, y.min(top))).collect();
            let style = curve.color.stroke_width(2);
            if curve.estimated {
                chart.draw_series(DashedLineSeries::new(points.iter().copied(), 7, 4, style))?;
                let markers = points
                    .iter()
                    .map(|&p| TriangleMarker::new(p, 5, curve.color.filled()));
                chart.draw_series(markers)?;
            } else {
                chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
                let markers = points
                    .iter()
                    .map(|&p| Circle::new(p, 4, curve.color.filled()));
                chart.draw_series(markers)?;
            }
            let at = (22, legend_y(row));
            if curve.estimated {
                legend.draw(&TriangleMarker::new(at, 5, curve.color.filled()))?;
            } else {
                legend.draw(&Circle::new(at, 4, curve.color.filled()))?;
            }
            legend_line(legend, row, &curve.label, curve.color, curve.estimated)?;
            row += 1;
        }
        for mark in marks.iter().chain(level) {
            legend_line(legend, row, &mark.label, GREY, mark.estimated)?;
            row += 1;
        }
        Ok(())
    })
}

/// Ratios to draw next to each other.
#[derive(Clone, Debug)]
pub struct Strip {
    /// What the legend calls them.
    pub label: String,
    /// Their colour.
    pub color: RGBColor,
    /// One a round.
    pub values: Vec<f64>,
}

/// Ratios of `what` by round, with their medians as lines and 1 marked.
pub fn ratios(title: &str, what: &str, strips: &[Strip]) -> Result<String> {
    let all = || strips.iter().flat_map(|s| s.values.iter().copied());
    let (bottom, top) = (
        all().fold(0.95, f64::min) - 0.01,
        all().fold(1.0, f64::max) + 0.02,
    );
    let whole = |x: &f64| {
        if x.fract() == 0.0 {
            format!("{x:.0}")
        } else {
            String::new()
        }
    };
    let rounds = strips
        .iter()
        .map(|s| s.values.len())
        .max()
        .unwrap_or(0)
        .max(1) as f64;
    draw(title, |chart_area, legend| {
        let mut chart = axes(chart_area).build_cartesian_2d(0.5..rounds + 0.5, bottom..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .x_desc("round")
            .y_desc(what)
            .x_label_formatter(&whole)
            .y_label_formatter(&|y| format!("{y:.2}"))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .draw()?;
        let across = |y: f64| [(0.5, y), (rounds + 0.5, y)];
        chart.draw_series(LineSeries::new(across(1.0), GREY.stroke_width(1)))?;
        for (index, strip) in strips.iter().enumerate() {
            let dots = strip.values.iter().enumerate();
            let dots =
                dots.map(|(i, &y)| Circle::new((i as f64 + 1.0, y), 4, strip.color.filled()));
            chart.draw_series(dots)?;
            if let Some(median) = crate::stats::median(&strip.values) {
                let style = strip.color.stroke_width(2);
                chart.draw_series(DashedLineSeries::new(across(median), 7, 4, style))?;
                let label = format!("{}, median {median:.3}", strip.label);
                legend_line(legend, index, &label, strip.color, true)?;
            }
        }
        Ok(())
    })
}

pub(crate) type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// A chart with room for the numbers and names of its axes.
pub(crate) fn axes<'a, 'b, 'c>(area: &'a Area<'c>) -> ChartBuilder<'a, 'b, SVGBackend<'c>> {
    let mut chart = ChartBuilder::on(area);
    chart
        .margin(8)
        .margin_top(4)
        .x_label_area_size(46)
        .y_label_area_size(74);
    chart
}

pub(crate) fn draw(
    title: &str,
    body: impl FnOnce(&Area<'_>, &Area<'_>) -> Drawn,
) -> Result<String> {
    let mut svg = String::new();
    let drawn = (|| -> Drawn {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let root = root.titled(title, ("sans-serif", 19))?;
        let (chart, legend) = root.split_horizontally(CHART_WIDTH);
        body(&chart, &legend)?;
        root.present()?;
        Ok(())
    })();
    drawn.map_err(|error| anyhow!("drawing {title:?}: {error}"))?;
    Ok(svg)
}

pub(crate) fn legend_y(row: usize) -> i32 {
    30 + 25 * i32::try_from(row).unwrap_or(i32::MAX / 50)
}

pub(crate) fn legend_line(
    area: &Area<'_>,
    row: usize,
    label: &str,
    color: RGBColor,
    dashed: bool,
) -> Drawn {
    let y = legend_y(row);
    let pieces: &[(i32, i32)] = if dashed {
        &[(8, 15), (19, 26), (30, 36)]
    } else {
        &[(8, 36)]
    };
    for &(from, to) in pieces {
        area.draw(&PathElement::new(
            [(from, y), (to, y)],
            color.stroke_width(2),
        ))?;
    }
    legend_text(area, row, label)
}

pub(crate) fn legend_text(area: &Area<'_>, row: usize, label: &str) -> Drawn {
    let style = ("sans-serif", 14).into_font().color(&BLACK);
    area.draw(&Text::new(label.to_owned(), (44, legend_y(row) - 6), style))?;
    Ok(())
}

/// 1, 2 and 5 times the powers of ten within a range, as ticks of a log scale.
pub(crate) fn ticks(bottom: f64, top: f64) -> Vec<f64> {
    let decades = (bottom.log10().floor() as i32)..=(top.log10().ceil() as i32);
    let all = decades.flat_map(|d| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(d)));
    all.filter(|y| (bottom..=top).contains(y)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_scale_has_ticks_also_within_a_decade() {
        assert_eq!(ticks(15e3, 300e3), [20e3, 50e3, 100e3, 200e3]);
    }

    #[test]
    fn a_plot_without_points_is_still_a_plot() {
        let svg = latency_over_load("nothing", &[], &[]).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn a_collapsed_point_is_drawn_inside_the_plot() {
        let curve = Curve {
            label: "measured".into(),
            color: NAGLE,
            estimated: false,
            points: vec![(1000.0, 20_000.0), (2000.0, 9e12)],
        };
        let svg = latency_over_load("collapse", &[curve], &[]).unwrap();
        assert!(!svg.contains("cy=\"-"), "a marker is above the picture");
    }
}
