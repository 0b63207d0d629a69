//! The demo's plots, with time on x: the load, latency on a log scale, and the stages stacked.

use anyhow::Result;
use batchwise_core::report::Side;
use plotters::prelude::*;

use super::moment::Moment;
use super::plan::PHASES;
use crate::plot::{
    self, Area, Drawn, GREY, GRID, PART_COLORS, draw, legend_line, legend_text, legend_y,
};
use crate::stats::quantile;
use crate::window::PARTS;

const MEASURED: RGBColor = RGBColor(20, 20, 20);
const CLIENT: RGBColor = RGBColor(32, 96, 168);
const SERVER: RGBColor = RGBColor(196, 78, 32);
/// The stages of most seconds fit below this multiple of the middle one.
const STAGES_ROOM: f64 = 6.0;

type Pick = fn(&Moment) -> Option<f64>;

struct Curve {
    label: &'static str,
    color: RGBColor,
    dashed: bool,
    pick: Pick,
}

const fn curve(label: &'static str, color: RGBColor, dashed: bool, pick: Pick) -> Curve {
    Curve {
        label,
        color,
        dashed,
        pick,
    }
}

/// Offered and achieved load.
pub fn load(moments: &[Moment]) -> Result<String> {
    let curves = [
        curve("offered", GREY, true, |m| Some(m.offered_rps)),
        curve("achieved", MEASURED, false, |m| Some(m.truth.achieved_rps)),
    ];
    let top = highest(moments, &curves, 1000.0) * 1.12;
    let title = "The load climbs twice: Nagle off, then on";
    draw(title, |area, legend| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_top(4)
            .x_label_area_size(46)
            .y_label_area_size(74)
            .build_cartesian_2d(0.0..right(moments), 0.0..top)?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .x_desc("seconds")
            .y_desc("requests/s")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| plot::thousands(*y))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .draw()?;
        for (from, to, name) in climbs(moments) {
            chart.draw_series(DashedLineSeries::new(
                [(from, 0.0), (from, top)],
                3,
                4,
                GREY.stroke_width(1),
            ))?;
            let at = ((from + to) / 2.0, top * 0.98);
            chart.draw_series([Text::new(name, at, climb_name())])?;
        }
        for curve in &curves {
            for points in segments(moments, curve.pick) {
                let style = curve.color.stroke_width(2);
                if curve.dashed {
                    chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?;
                } else {
                    chart.draw_series(LineSeries::new(points, style))?;
                }
            }
        }
        name_curves(legend, &curves)
    })
}

/// Measured and estimated mean latency.
pub fn latency(moments: &[Moment]) -> Result<String> {
    let curves = [
        curve("measured, since due", RGBColor(170, 170, 170), false, |m| {
            m.truth.mean_from_intended_ns
        }),
        curve("measured, since sent", MEASURED, false, |m| {
            m.truth.mean_from_send_ns
        }),
        curve("estimated, client's end", CLIENT, true, |m| {
            m.estimated_ns(Side::Client)
        }),
        curve("estimated, server's end", SERVER, true, |m| {
            m.estimated_ns(Side::Server)
        }),
    ];
    let low = curves
        .iter()
        .flat_map(|c| moments.iter().filter_map(c.pick))
        .fold(2e4, f64::min)
        .max(1e3);
    let (bottom, top) = (low / 1.5, highest(moments, &curves, low * 10.0) * 2.0);
    draw("Mean latency, measured and estimated", |area, legend| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_top(4)
            .x_label_area_size(46)
            .y_label_area_size(74)
            .build_cartesian_2d(
                0.0..right(moments),
                (bottom..top)
                    .log_scale()
                    .with_key_points(plot::ticks(bottom, top)),
            )?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .x_desc("seconds")
            .y_desc("mean latency")
            .y_labels(14)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| plot::duration(*y))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .draw()?;
        for (from, to, name) in climbs(moments) {
            chart.draw_series(DashedLineSeries::new(
                [(from, bottom), (from, top)],
                3,
                4,
                GREY.stroke_width(1),
            ))?;
            let at = ((from + to) / 2.0, top * 0.9);
            chart.draw_series([Text::new(name, at, climb_name())])?;
        }
        for curve in &curves {
            for points in segments(moments, curve.pick) {
                let style = curve.color.stroke_width(2);
                if curve.dashed {
                    chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?;
                } else {
                    chart.draw_series(LineSeries::new(points, style))?;
                }
            }
        }
        name_curves(legend, &curves)
    })
}

/// Where the time goes by one end's estimate, second by second.
pub fn stages(moments: &[Moment], side: Side) -> Result<String> {
    let sum = |m: &Moment| {
        m.end(side)
            .map(|e| e.parts().into_iter().flatten().sum::<f64>())
    };
    let sums: Vec<f64> = moments.iter().filter_map(sum).collect();
    let room = quantile(&sums, 0.5).unwrap_or(0.0) * STAGES_ROOM;
    let top = sums.iter().copied().fold(1e4, f64::max).min(room.max(1e4)) * 1.08;
    let end = match side {
        Side::Client => "client",
        Side::Server => "server",
    };
    let title = format!("Where the time goes, estimated at the {end}'s end");
    draw(&title, |area, legend| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_top(4)
            .x_label_area_size(46)
            .y_label_area_size(74)
            .build_cartesian_2d(0.0..right(moments), 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .x_desc("seconds")
            .y_desc("mean latency")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| plot::duration(*y))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .draw()?;
        for moment in moments {
            let Some(end) = moment.end(side) else {
                continue;
            };
            let (to, mut base) = (moment.at_s, 0.0);
            let from = to - moment.truth.interval_ns as f64 / 1e9;
            for (part, color) in end.parts().into_iter().zip(PART_COLORS) {
                let height = f64::min(base + part.unwrap_or(0.0), top);
                let corners = [(from + 0.06, base), (to - 0.06, height)];
                chart.draw_series([Rectangle::new(corners, color.filled())])?;
                base = height;
            }
            if let Some(measured) = moment.truth.mean_from_send_ns.filter(|&ns| ns < top) {
                let line = [(from, measured), (to, measured)];
                chart.draw_series(LineSeries::new(line, BLACK.stroke_width(2)))?;
            }
        }
        for (row, (part, color)) in PARTS.iter().zip(PART_COLORS).enumerate() {
            let y = legend_y(row);
            legend.draw(&Rectangle::new([(8, y - 7), (36, y + 7)], color.filled()))?;
            legend_text(legend, row, part)?;
        }
        legend_line(legend, PARTS.len(), "measured, since sent", BLACK, false)?;
        if sums.iter().any(|&sum| sum > top) {
            let note = ("sans-serif", 13).into_font().color(&GREY);
            let at = (8, legend_y(PARTS.len() + 1) - 6);
            legend.draw(&Text::new("Bars to the upper edge are longer.", at, note))?;
        }
        Ok(())
    })
}

fn name_curves(legend: &Area<'_>, curves: &[Curve]) -> Drawn {
    curves.iter().enumerate().try_for_each(|(row, curve)| {
        legend_line(legend, row, curve.label, curve.color, curve.dashed)
    })
}

fn climb_name() -> TextStyle<'static> {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    let style = ("sans-serif", 14).into_font().color(&GREY);
    style.pos(Pos::new(HPos::Center, VPos::Top))
}

/// Begin and end of each climb, in seconds, and its name.
fn climbs(moments: &[Moment]) -> Vec<(f64, f64, &'static str)> {
    let climb = |phase: &super::plan::Phase| {
        let mut of_it = moments.iter().filter(|m| m.nodelay == phase.nodelay);
        let first = of_it.next()?;
        let from = first.at_s - first.truth.interval_ns as f64 / 1e9;
        Some((from, of_it.next_back().unwrap_or(first).at_s, phase.name()))
    };
    PHASES.iter().filter_map(climb).collect()
}

/// A curve's points, a climb at a time.
fn segments(moments: &[Moment], pick: Pick) -> Vec<Vec<(f64, f64)>> {
    let of = |nodelay: bool| {
        let climb = moments.iter().filter(|m| m.nodelay == nodelay);
        climb.filter_map(|m| Some((m.at_s, pick(m)?))).collect()
    };
    PHASES.iter().map(|phase| of(phase.nodelay)).collect()
}

fn highest(moments: &[Moment], curves: &[Curve], at_least: f64) -> f64 {
    let all = curves
        .iter()
        .flat_map(|c| moments.iter().filter_map(c.pick));
    all.fold(at_least, f64::max)
}

fn right(moments: &[Moment]) -> f64 {
    moments.last().map_or(1.0, |m| m.at_s.max(1.0)) * 1.01
}

#[cfg(test)]
mod tests {
    use super::super::samples::moment;
    use super::*;

    #[test]
    fn a_run_without_moments_still_gives_plots() {
        assert!(load(&[]).is_ok() && latency(&[]).is_ok());
        assert!(stages(&[], Side::Client).is_ok());
    }

    #[test]
    fn bars_that_are_too_long_are_cut_and_that_is_said() {
        let mut moments: Vec<_> = (1..6).map(|i| moment(i, true, 1e5, 2e4, 2e4)).collect();
        assert!(!stages(&moments, Side::Client).unwrap().contains("longer"));
        moments.push(moment(6, true, 3e5, 9e6, 9e6));
        assert!(stages(&moments, Side::Client).unwrap().contains("longer"));
    }

    #[test]
    fn the_climbs_are_parted_and_named() {
        let moments = [
            moment(1, true, 1e5, 2e4, 2e4),
            moment(3, false, 1e5, 2e4, 2e4),
        ];
        let found = climbs(&moments);
        assert_eq!(
            found.iter().map(|c| (c.0, c.1)).collect::<Vec<_>>(),
            [(0.0, 1.0), (2.0, 3.0)]
        );
        assert_eq!(
            segments(&moments, |m| m.truth.mean_from_send_ns)[1],
            [(3.0, 2e4)]
        );
    }
}
