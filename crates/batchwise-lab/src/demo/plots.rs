//! The demo's plots: latency over load for the three climbs; with time on x the load, latency on a
//! log scale, and the stages stacked.

use anyhow::Result;
use batchwise_core::sense::report::{Nagle, Side};
use batchwise_testbed::window::PARTS;
use plotters::prelude::*;

use super::moment::Moment;
use super::plan::PHASES;
use crate::decisions::join;
use crate::plot::{self, GREY, GRID, PART_COLORS, axes, draw, legend_line, legend_text, legend_y};
use crate::stats::quantile;
use crate::timeplot::{Curve, Height, Span, TimePlot};

const MEASURED: RGBColor = RGBColor(20, 20, 20);
const CLIENT: RGBColor = RGBColor(32, 96, 168);
const SERVER: RGBColor = RGBColor(196, 78, 32);
/// The stages of most seconds fit below this multiple of the middle one.
const STAGES_ROOM: f64 = 6.0;

type Pick = fn(&Moment) -> Option<f64>;

/// Mean latency from the intended send time over the offered load, a curve for each climb.
pub fn arms(moments: &[Moment]) -> Result<String> {
    let curves = PHASES.map(|phase| plot::Curve {
        label: phase.arm.label().into(),
        color: phase.arm.color(),
        estimated: false,
        points: moments
            .iter()
            .filter(|m| m.arm == phase.arm)
            .filter_map(|m| Some((m.offered_rps, m.truth.mean_from_intended_ns?)))
            .collect(),
    });
    let title = "The same climbing load three times: mean latency since a request was due";
    plot::latency_over_load(title, &curves, &[])
}

/// Offered and achieved load.
pub fn load(moments: &[Moment]) -> Result<String> {
    let title = "The load climbs: Nagle off, on, and as batchwise chooses";
    let curves = vec![
        curve(moments, "offered", GREY, true, |m| Some(m.offered_rps)),
        curve(moments, "achieved", MEASURED, false, |m| {
            Some(m.truth.achieved_rps)
        }),
    ];
    over_time(moments, title, Height::Load, curves)
}

/// Measured and estimated mean latency.
pub fn latency(moments: &[Moment]) -> Result<String> {
    const DUE: RGBColor = RGBColor(170, 170, 170);
    let curves = vec![
        curve(moments, "measured, since due", DUE, false, |m| {
            m.truth.mean_from_intended_ns
        }),
        curve(moments, "measured, since sent", MEASURED, false, |m| {
            m.truth.mean_from_send_ns
        }),
        curve(moments, "estimated, client's end", CLIENT, true, |m| {
            m.estimated_ns(Side::Client)
        }),
        curve(moments, "estimated, server's end", SERVER, true, |m| {
            m.estimated_ns(Side::Server)
        }),
    ];
    let title = "Mean latency, measured and estimated";
    over_time(moments, title, Height::Latency, curves)
}

fn over_time(
    moments: &[Moment],
    title: &str,
    height: Height,
    curves: Vec<Curve>,
) -> Result<String> {
    let nagle = moments.iter().filter(|m| m.nagle == Some(Nagle::On));
    let nagle = nagle.map(|m| (begin(m), m.at_s));
    TimePlot {
        title,
        height,
        curves,
        spans: climbs(moments),
        shaded: Some(("Nagle at the client", join(nagle))),
        events: Vec::new(),
        level: None,
    }
    .svg()
}

fn curve(moments: &[Moment], label: &str, color: RGBColor, dashed: bool, pick: Pick) -> Curve {
    Curve {
        label: label.into(),
        color,
        dashed,
        pieces: segments(moments, pick),
    }
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
        let mut chart = axes(area).build_cartesian_2d(0.0..right(moments), 0.0..top)?;
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

/// The climbs, with their names.
fn climbs(moments: &[Moment]) -> Vec<Span> {
    let climb = |phase: &super::plan::Phase| {
        let mut of_it = moments.iter().filter(|m| m.arm == phase.arm);
        let first = of_it.next()?;
        Some(Span {
            from: begin(first),
            to: of_it.next_back().unwrap_or(first).at_s,
            name: phase.name().to_owned(),
        })
    };
    PHASES.iter().filter_map(climb).collect()
}

/// When a moment began, seconds.
fn begin(moment: &Moment) -> f64 {
    moment.at_s - moment.truth.interval_ns as f64 / 1e9
}

/// A curve's points, a climb at a time.
fn segments(moments: &[Moment], pick: Pick) -> Vec<Vec<(f64, f64)>> {
    let of = |phase: &super::plan::Phase| {
        let climb = moments.iter().filter(|m| m.arm == phase.arm);
        climb.filter_map(|m| Some((m.at_s, pick(m)?))).collect()
    };
    PHASES.iter().map(of).collect()
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
        assert!(load(&[]).is_ok() && latency(&[]).is_ok() && arms(&[]).is_ok());
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
            found.iter().map(|c| (c.from, c.to)).collect::<Vec<_>>(),
            [(0.0, 1.0), (2.0, 3.0)]
        );
        assert_eq!(
            segments(&moments, |m| m.truth.mean_from_send_ns)[1],
            [(3.0, 2e4)]
        );
    }
}
