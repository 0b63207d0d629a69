//! Plots and tables that the experiments of `batchwise passive` share.

use std::net::SocketAddr;

use anyhow::Result;
use maud::{Markup, html};
use plotters::style::{BLACK, RGBColor};

use super::trial::{Baseline, Outcome, Point};
use crate::cdf::{self, Axis};
use crate::plot::{BATCHWISE, maybe_duration};
use crate::report::{Table, percent};
use crate::timeplot::{self, Height, Span, TimePlot};
use crate::truth::{Errors, Paired, Request, relative};

/// Name of ours in legends.
pub const OURS: &str = "batchwise passive";
/// Colour of the time to the triggered request.
pub const TRIGGERED: RGBColor = RGBColor(150, 150, 150);

/// Colour of a baseline.
pub fn color(baseline: Baseline) -> RGBColor {
    match baseline {
        Baseline::ReqToReq => TRIGGERED,
        Baseline::SynAck => RGBColor(164, 118, 168),
        Baseline::TcpProbe => RGBColor(32, 96, 168),
        Baseline::AckRtt => RGBColor(196, 78, 32),
    }
}

/// A curve of estimates by epoch, each counting as often as it has responses.
pub fn estimates(label: &str, color: RGBColor, dashed: bool, epochs: &[Paired]) -> cdf::Curve {
    let sample = |epoch: &Paired| Some((epoch.estimate_ns?, epoch.responses as f64));
    cdf::Curve {
        label: label.into(),
        color,
        dashed,
        samples: epochs.iter().filter_map(sample).collect(),
    }
}

/// Curves of the truth: by response, and its means by epoch.
pub fn truths(outcome: &Outcome) -> [cdf::Curve; 3] {
    let requests = || outcome.truth.requests();
    let once = |value: f64| (value, 1.0);
    let curve = |label: &str, color, dashed, samples| cdf::Curve {
        label: label.into(),
        color,
        dashed,
        samples,
    };
    let mean = |epoch: &Paired| (epoch.response_ns, epoch.responses as f64);
    [
        curve(
            "req-to-res",
            BLACK,
            true,
            requests().map(|r| once(r.latency())).collect(),
        ),
        curve(
            "req-to-req",
            TRIGGERED,
            true,
            requests()
                .filter_map(Request::to_triggered)
                .map(once)
                .collect(),
        ),
        curve(
            "req-to-res, mean by epoch",
            BLACK,
            false,
            outcome.paired.iter().map(mean).collect(),
        ),
    ]
}

/// Distribution of latencies.
pub fn latencies(title: &str, curves: &[cdf::Curve]) -> Result<String> {
    cdf::svg(
        title,
        "latency",
        "share of responses",
        Axis::Latency,
        curves,
    )
}

/// Distribution of relative errors, `(truth - estimate) / truth`.
pub fn relative_errors(
    title: &str,
    of: &str,
    ways: &[(&str, RGBColor, &[Paired])],
) -> Result<String> {
    let curve = |&(label, color, epochs): &(&str, RGBColor, &[Paired])| cdf::Curve {
        label: label.into(),
        color,
        dashed: false,
        samples: relative(epochs),
    };
    let curves: Vec<_> = ways.iter().map(curve).collect();
    cdf::svg(title, "relative error", of, Axis::Relative(0.5), &curves)
}

/// Truth and estimates over time, of one connection or of merged ones; `begin_ns` is 0 on x.
pub fn series(
    title: &str,
    begin_ns: u64,
    series: &[Paired],
    others: &[(Baseline, Vec<Paired>)],
    spans: Vec<Span>,
) -> Result<String> {
    let line = |epochs: &[Paired], value: &dyn Fn(&Paired) -> Option<f64>| {
        let point = |epoch: &Paired| {
            let middle = epoch
                .start_ns
                .midpoint(epoch.end_ns)
                .saturating_sub(begin_ns);
            Some((middle as f64 / 1e9, value(epoch)?))
        };
        let mut points: Vec<_> = epochs.iter().filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        vec![points]
    };
    let curve = |label: &str, color, dashed, pieces| timeplot::Curve {
        label: label.into(),
        color,
        dashed,
        pieces,
    };
    let estimate = |epoch: &Paired| epoch.estimate_ns;
    let mut curves = vec![curve(
        "req-to-res",
        BLACK,
        false,
        line(series, &|epoch| Some(epoch.response_ns)),
    )];
    for (baseline, epochs) in others {
        let pieces = line(epochs, &estimate);
        curves.push(curve(baseline.label(), color(*baseline), true, pieces));
    }
    curves.push(curve(OURS, BATCHWISE, false, line(series, &estimate)));
    TimePlot {
        title,
        height: Height::Latency,
        curves,
        spans,
        shaded: None,
        events: Vec::new(),
        level: None,
    }
    .svg()
}

/// The epochs of one connection.
pub fn of_connection(epochs: &[Paired], client: SocketAddr) -> Vec<Paired> {
    epochs
        .iter()
        .filter(|epoch| epoch.client == client)
        .cloned()
        .collect()
}

/// A table of errors, a row a way of estimating.
pub fn error_table<'a>(rows: impl IntoIterator<Item = (&'a str, &'a Errors)>) -> Markup {
    let mut table = Table::new([
        "against req-to-res",
        "responses",
        "with an estimate",
        "truth",
        "estimate",
        "median error",
        "median |error|",
        "90th percentile",
        "within 15 %",
    ]);
    for (name, errors) in rows {
        table.row([
            name.into(),
            errors.responses.to_string(),
            percent(Some(errors.covered)),
            maybe_duration(errors.truth_ns),
            maybe_duration(errors.estimate_ns),
            fine_percent(errors.median_rel_error),
            fine_percent(errors.median_abs_rel_error),
            fine_percent(errors.p90_abs_rel_error),
            percent(errors.within_15_percent),
        ]);
    }
    table.html()
}

/// Ours, the client's own, and the baselines of a point.
pub fn point_table(point: &Point) -> Markup {
    let ours = [
        (OURS, &point.errors),
        ("its means by connection", &point.by_connection),
    ];
    let others = point
        .baselines
        .iter()
        .map(|(baseline, errors)| (baseline.label(), errors));
    html! {
        (error_table(ours.into_iter().chain(others)))
        @if let Some(why) = point.why_invalid() {
            p class="warn" { "The load says of itself that it is not valid: " (why) }
        }
    }
}

/// With two decimals: errors are less than a percent.
pub fn fine_percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".into(), |share| format!("{:.2} %", share * 100.0))
}
