//! The report's pictures, as SVG text.

use anyhow::anyhow;
use batchwise_core::passive::Epoch;
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::frame::human;

/// Width and height, pixels.
const SIZE: (u32, u32) = (940, 400);
/// Of a picture of one flow's modes.
const SMALL: (u32, u32) = (940, 220);
/// Width of the part left of the legend.
const CHART_WIDTH: u32 = 690;

/// Colours of servers.
pub const COLORS: [RGBColor; 6] = [
    RGBColor(32, 96, 168),
    RGBColor(196, 78, 32),
    RGBColor(34, 128, 72),
    RGBColor(150, 84, 160),
    RGBColor(176, 138, 20),
    RGBColor(70, 130, 140),
];
const GRID: RGBColor = RGBColor(228, 228, 228);
const GREY: RGBColor = RGBColor(110, 110, 110);
/// Gaps inside bursts, and those that may be pauses.
const BURST: RGBColor = RGBColor(150, 170, 190);
const PAUSE: RGBColor = RGBColor(196, 78, 32);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// One server's line.
#[derive(Debug)]
pub struct Curve {
    /// What the legend calls it.
    pub label: String,
    /// Its colour.
    pub color: RGBColor,
    /// Solid.
    pub line: Vec<(f64, f64)>,
    /// Dashed; may be empty.
    pub dashed: Vec<(f64, f64)>,
}

/// Latency in ns (log scale) over seconds.
pub fn over_time(curves: &[Curve]) -> anyhow::Result<String> {
    let points = || curves.iter().flat_map(|c| c.line.iter().chain(&c.dashed));
    let right = points().map(|p| p.0).fold(1.0, f64::max) * 1.01;
    let (bottom, top) = bounds(points().map(|p| p.1));
    draw(SIZE, |area, legend| {
        let y = (bottom..top).log_scale();
        let y = y.with_key_points(ticks(bottom, top));
        let mut chart = axes(area).build_cartesian_2d(0.0..right, y)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .x_desc("seconds since the first packet")
            .y_desc("latency")
            .y_label_formatter(&|ns| human::duration(*ns as u64))
            .draw()?;
        for curve in curves {
            let style = curve.color.stroke_width(2);
            chart.draw_series(LineSeries::new(curve.line.iter().copied(), style))?;
            let thin = curve.color.stroke_width(1);
            let dashed = DashedLineSeries::new(curve.dashed.iter().copied(), 5, 4, thin);
            chart.draw_series(dashed)?;
            // an interval alone has no line
            let dots = curve.line.iter().filter(|_| curve.line.len() == 1);
            chart.draw_series(dots.map(|&p| Circle::new(p, 3, curve.color.filled())))?;
        }
        draw_legend(legend, curves)
    })
}

/// Share of requests over latency in ns (log scale).
pub fn distribution(curves: &[Curve]) -> anyhow::Result<String> {
    let (left, right) = bounds(curves.iter().flat_map(|c| &c.line).map(|p| p.0));
    draw(SIZE, |area, legend| {
        let x = (left..right).log_scale();
        let x = x.with_key_points(ticks(left, right));
        let mut chart = axes(area).build_cartesian_2d(x, 0.0..1.0)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .x_desc("latency")
            .y_desc("share of requests")
            .x_label_formatter(&|ns| human::duration(*ns as u64))
            .y_label_formatter(&|share| format!("{:.0} %", share * 100.0))
            .draw()?;
        for curve in curves {
            // steps: all of a value's weight lies at that value
            let mut steps = Vec::new();
            let mut below = 0.0;
            for &(ns, share) in &curve.line {
                steps.extend([(ns, below), (ns, share)]);
                below = share;
            }
            steps.push((right, below));
            let style = curve.color.stroke_width(2);
            chart.draw_series(LineSeries::new(steps, style))?;
        }
        draw_legend(legend, curves)
    })
}

/// Where the gaps of one epoch lie (log scale), and what was made of them.
pub fn modes(epoch: &Epoch) -> anyhow::Result<String> {
    let modes = epoch.gaps.modes();
    let extents = modes.iter().flat_map(|m| [m.min_ns(), m.max_ns()]);
    let (left, right) = bounds(
        extents
            .chain(epoch.estimate.latency)
            .map(|ns| ns.max(16) as f64),
    );
    let all: u32 = modes.iter().map(|m| u32::from(m.count)).sum();
    let all = f64::from(all.max(1));
    let shares = modes.iter().map(|m| f64::from(m.count) / all);
    let top = shares.fold(0.01, f64::max) * 1.1;
    draw(SMALL, |area, legend| {
        let x = (left..right).log_scale();
        let x = x.with_key_points(ticks(left, right));
        let mut chart = axes(area).build_cartesian_2d(x, 0.0..top)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .x_desc("gap between two packets")
            .y_desc("share of gaps")
            .y_labels(5)
            .x_label_formatter(&|ns| human::duration(*ns as u64))
            .y_label_formatter(&|share| format!("{:.0} %", share * 100.0))
            .draw()?;
        for mode in modes {
            let (from, to) = (mode.min_ns().max(16) as f64, mode.max_ns().max(17) as f64);
            let marked = f64::from(mode.marked) / all;
            let share = f64::from(mode.count) / all;
            let bars = [((0.0, marked), PAUSE), ((marked, share), BURST)];
            chart.draw_series(bars.map(|((low, high), color)| {
                Rectangle::new([(from, low), (to, high)], color.filled())
            }))?;
        }
        let mut row = 0;
        for (label, color) in [("may end an answer", PAUSE), ("inside a burst", BURST)] {
            let y = legend_y(row);
            legend.draw(&Rectangle::new([(8, y - 6), (36, y + 6)], color.filled()))?;
            legend_text(legend, row, label)?;
            row += 1;
        }
        if let Some(latency) = epoch.estimate.latency {
            let at = latency as f64;
            let style = BLACK.stroke_width(2);
            chart.draw_series(LineSeries::new([(at, 0.0), (at, top)], style))?;
            legend_line(legend, row, BLACK)?;
            legend_text(
                legend,
                row,
                &format!("latency {}", human::duration(latency)),
            )?;
        }
        Ok(())
    })
}

fn draw(
    size: (u32, u32),
    body: impl FnOnce(&Area<'_>, &Area<'_>) -> Drawn,
) -> anyhow::Result<String> {
    let mut svg = String::new();
    let drawn = (|| -> Drawn {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (chart, legend) = root.split_horizontally(CHART_WIDTH);
        body(&chart, &legend)?;
        root.present()?;
        Ok(())
    })();
    drawn.map_err(|error| anyhow!("cannot draw the report's pictures: {error}"))?;
    Ok(svg)
}

/// A chart with room for the numbers and names of its axes.
fn axes<'a, 'b, 'c>(area: &'a Area<'c>) -> ChartBuilder<'a, 'b, SVGBackend<'c>> {
    let mut chart = ChartBuilder::on(area);
    chart.margin(8).x_label_area_size(46).y_label_area_size(74);
    chart
}

fn draw_legend(area: &Area<'_>, curves: &[Curve]) -> Drawn {
    for (row, curve) in curves.iter().enumerate() {
        legend_line(area, row, curve.color)?;
        legend_text(area, row, &curve.label)?;
    }
    Ok(())
}

fn legend_y(row: usize) -> i32 {
    24 + 24 * i32::try_from(row).unwrap_or(0)
}

fn legend_line(area: &Area<'_>, row: usize, color: RGBColor) -> Drawn {
    let y = legend_y(row);
    area.draw(&PathElement::new([(8, y), (36, y)], color.stroke_width(2)))?;
    Ok(())
}

fn legend_text(area: &Area<'_>, row: usize, label: &str) -> Drawn {
    let style = ("sans-serif", 13).into_font().color(&GREY.mix(1.0));
    area.draw(&Text::new(label.to_owned(), (44, legend_y(row) - 6), style))?;
    Ok(())
}

/// Bounds of a log scale around these values, with room at both ends.
fn bounds(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(0.0, f64::max);
    if low > high {
        return (1e3, 1e9);
    }
    let low = low.max(1.0) / 1.5;
    (low, (high * 1.5).max(low * 10.0))
}

/// 1, 2 and 5 times the powers of ten within a range; over many decades only the powers.
fn ticks(bottom: f64, top: f64) -> Vec<f64> {
    let steps: &[f64] = if top / bottom > 1e4 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let decades = (bottom.log10().floor() as i32)..=(top.log10().ceil() as i32);
    let all = decades.flat_map(|d| steps.iter().map(move |m| m * 10f64.powi(d)));
    all.filter(|y| (bottom..=top).contains(y)).collect()
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
                let svg = svg.expect("a picture");
                assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            }
        }
    }

    #[test]
    fn an_epochs_modes_are_drawn_with_its_latency() {
        let svg = modes(&samples::epoch()).expect("a picture");
        assert!(svg.contains("latency 1.01 ms"), "{svg}");
    }
}
