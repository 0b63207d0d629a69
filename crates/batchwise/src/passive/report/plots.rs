//! The report's pictures.

use batchwise_core::passive::Epoch;
use maud::{Markup, html};

use crate::frame::chart::{
    AREA, Axis, BLACK, Chart, Curve, HEIGHT, LINE, LOW, legend, percent, plain,
};
use crate::frame::human;

/// Gaps inside bursts, and those that may be pauses.
const BURST: &str = "#96aabe";
const PAUSE: &str = "#c44e20";

/// Latency in ns (log scale) over seconds.
pub fn over_time(curves: &[Curve]) -> Markup {
    let points = || curves.iter().flat_map(|c| c.line.iter().chain(&c.dashed));
    let right = points().map(|p| p.0).fold(1.0, f64::max) * 1.01;
    let chart = Chart {
        x: Axis::linear("seconds since the first packet", right, plain),
        y: Axis::times("latency", points().map(|p| p.1)),
        height: HEIGHT,
    };
    chart.curves(curves)
}

/// Share of requests over latency in ns (log scale).
pub fn distribution(curves: &[Curve]) -> Markup {
    let chart = Chart {
        x: Axis::times("latency", curves.iter().flat_map(|c| &c.line).map(|p| p.0)),
        y: Axis::linear("share of requests", 1.0, percent),
        height: HEIGHT,
    };
    let marks = html! {
        @for curve in curves {
            (chart.line(&steps(&curve.line, chart.x.to), curve.color, 2.0, false))
        }
    };
    chart.draw(marks, &legend(curves))
}

/// All of a value's weight lies at that value.
fn steps(line: &[(f64, f64)], right: f64) -> Vec<(f64, f64)> {
    let mut steps = Vec::new();
    let mut below = 0.0;
    for &(ns, share) in line {
        steps.extend([(ns, below), (ns, share)]);
        below = share;
    }
    steps.push((right, below));
    steps
}

/// Where the gaps of one epoch lie (log scale), and what was made of them.
pub fn modes(epoch: &Epoch) -> Markup {
    let modes = epoch.gaps.modes();
    let extents = modes.iter().flat_map(|m| [m.min_ns(), m.max_ns()]);
    let times: Vec<u64> = extents.chain(epoch.estimate.latency).collect();
    let all: u32 = modes.iter().map(|m| u32::from(m.count)).sum();
    let all = f64::from(all.max(1));
    let shares = modes.iter().map(|m| f64::from(m.count) / all);
    let top = shares.fold(0.01, f64::max) * 1.1;
    let chart = Chart {
        x: Axis::times(
            "gap between two packets",
            times.iter().map(|ns| (*ns).max(16) as f64),
        ),
        y: Axis::linear("share of gaps", top, percent),
        height: LOW,
    };
    let mut bars = Vec::new();
    for mode in modes {
        let (from, to) = (mode.min_ns().max(16) as f64, mode.max_ns().max(17) as f64);
        let (marked, share) = (f64::from(mode.marked) / all, f64::from(mode.count) / all);
        bars.push(((from, 0.0), (to, marked), PAUSE));
        bars.push(((from, marked), (to, share), BURST));
    }
    let mut legend = vec![
        ("may end an answer".to_owned(), PAUSE, AREA),
        ("inside a burst".to_owned(), BURST, AREA),
    ];
    let latency = epoch.estimate.latency;
    let label = |ns| format!("latency {}", human::duration(ns));
    legend.extend(latency.map(|ns| (label(ns), BLACK, LINE)));
    let marks = html! {
        @for (low, high, color) in bars { (chart.bar(low, high, color)) }
        @if let Some(at) = latency.map(|ns| ns as f64) {
            (chart.line(&[(at, 0.0), (at, top)], BLACK, 2.0, false))
        }
    };
    chart.draw(marks, &legend)
}

#[cfg(test)]
mod tests {
    use super::super::super::samples;
    use super::*;
    use crate::frame::chart::COLORS;

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
                let svg = svg.into_string();
                assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"));
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn an_epochs_modes_are_drawn_with_its_latency() {
        let svg = modes(&samples::epoch()).into_string();
        assert!(svg.contains("latency 1.01 ms"), "{svg}");
    }
}
