//! Plots of distributions: which share of the responses has at most so much latency, or so much
//! error.

use anyhow::Result;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;

use crate::plot::{Drawn, GRID, axes, draw, duration, legend_line, ticks};
use crate::stats::weighted_quantile;

/// Points of a curve: half a percent each.
const POINTS: u32 = 200;
/// Shares of the responses between which the axis of latencies reaches.
const REACH: (f64, f64) = (0.002, 0.998);

/// A distribution.
#[derive(Clone, Debug)]
pub struct Curve {
    /// What the legend calls it.
    pub label: String,
    /// Its colour.
    pub color: RGBColor,
    /// Whether it is dashed.
    pub dashed: bool,
    /// Values and how often each counts.
    pub samples: Vec<(f64, f64)>,
}

/// What is on x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Axis {
    /// Times in ns, on a log scale.
    Latency,
    /// Relative errors up to this on both sides.
    Relative(f64),
    /// Shares.
    Share,
}

/// As SVG text; `what` names x, and `of` what is counted.
pub fn svg(title: &str, what: &str, of: &str, axis: Axis, curves: &[Curve]) -> Result<String> {
    let curves: Vec<_> = curves.iter().map(|curve| (curve, points(curve))).collect();
    draw(title, |area, legend| {
        let mut builder = axes(area);
        match axis {
            Axis::Latency => {
                let (left, right) = reach(&curves);
                let log = (left..right).log_scale();
                let log = log.with_key_points(ticks(left, right));
                let chart = builder.build_cartesian_2d(log, 0.0..1.0)?;
                draw_on(chart, what, of, &curves, (left, right), &|x| duration(*x))?;
            }
            Axis::Relative(most) => {
                let chart = builder.build_cartesian_2d(-most..most, 0.0..1.0)?;
                draw_on(chart, what, of, &curves, (-most, most), &percent)?;
            }
            Axis::Share => {
                let chart = builder.build_cartesian_2d(0.0..1.0, 0.0..1.0)?;
                draw_on(chart, what, of, &curves, (0.0, 1.0), &percent)?;
            }
        }
        for (row, (curve, _)) in curves.iter().enumerate() {
            legend_line(legend, row, &curve.label, curve.color, curve.dashed)?;
        }
        Ok(())
    })
}

fn percent(share: &f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn points(curve: &Curve) -> Vec<(f64, f64)> {
    let mut sorted = curve.samples.clone();
    sorted.retain(|(value, weight)| value.is_finite() && *weight > 0.0);
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: f64 = sorted.iter().map(|(_, weight)| weight).sum();
    let (mut below, mut at) = (0.0, 0);
    let mut point = |share: f64| {
        while at < sorted.len() {
            if below + sorted[at].1 >= share * all {
                return Some((sorted[at].0, share));
            }
            below += sorted[at].1;
            at += 1;
        }
        sorted.last().map(|last| (last.0, share))
    };
    (0..=POINTS)
        .filter_map(|i| point(f64::from(i) / f64::from(POINTS)))
        .collect()
}

fn reach(curves: &[(&Curve, Vec<(f64, f64)>)]) -> (f64, f64) {
    let edge = |q| {
        curves
            .iter()
            .filter_map(move |(c, _)| weighted_quantile(&c.samples, q))
    };
    let left = edge(REACH.0).fold(f64::INFINITY, f64::min);
    let right = edge(REACH.1).fold(0.0, f64::max);
    if left.is_finite() && right > 0.0 {
        (left.max(1e3) / 1.3, (right * 1.3).max(left.max(1e3) * 2.0))
    } else {
        (1e5, 1e7)
    }
}

fn draw_on<X>(
    mut chart: ChartContext<
        '_,
        SVGBackend<'_>,
        Cartesian2d<X, plotters::coord::types::RangedCoordf64>,
    >,
    what: &str,
    of: &str,
    curves: &[(&Curve, Vec<(f64, f64)>)],
    (left, right): (f64, f64),
    label: &dyn Fn(&f64) -> String,
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .light_line_style(WHITE.mix(0.0))
        .bold_line_style(GRID)
        .x_desc(what)
        .y_desc(of)
        .x_labels(9)
        .y_labels(11)
        .x_label_formatter(&label)
        .y_label_formatter(&percent)
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 15))
        .draw()?;
    for (curve, points) in curves {
        let style = curve.color.stroke_width(2);
        let points = points.iter().map(|&(x, y)| (x.clamp(left, right), y));
        if curve.dashed {
            chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?;
        } else {
            chart.draw_series(LineSeries::new(points, style))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(samples: &[(f64, f64)]) -> Curve {
        Curve {
            label: "truth".into(),
            color: BLACK,
            dashed: false,
            samples: samples.to_vec(),
        }
    }

    #[test]
    fn a_curve_climbs_by_weight() {
        let points = points(&curve(&[(30.0, 1.0), (10.0, 3.0)]));
        assert_eq!(points[0], (10.0, 0.0));
        let at = |share: f64| points.iter().find(|p| p.1 >= share).unwrap().0;
        assert_eq!((at(0.5), at(0.75), at(0.76)), (10.0, 10.0, 30.0));
    }

    #[test]
    fn every_axis_draws_also_without_samples() {
        for axis in [Axis::Latency, Axis::Relative(0.5), Axis::Share] {
            let empty = svg("nothing", "x", "y", axis, &[curve(&[])]).unwrap();
            assert!(empty.trim_end().ends_with("</svg>"));
            let full = svg("all", "x", "y", axis, &[curve(&[(2e5, 1.0), (9e9, 1.0)])]).unwrap();
            assert!(full.contains("truth") && !full.contains("inf"));
        }
    }
}
