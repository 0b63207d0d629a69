//! Figures and report of the passive-accuracy experiment.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Result;
use maud::{Markup, html};

use super::summary::{Summary, server_series};
use super::{Runs, SINGLE, STEPPED, WEB};
use crate::cdf::{self, Axis};
use crate::frame::Frame;
use crate::passive::figures::{
    OURS, TRIGGERED, color, estimates, fine_percent, latencies, of_connection, point_table,
    relative_errors, series, truths,
};
use crate::passive::trial::{Baseline, Outcome, against_triggered};
use crate::plot::BATCHWISE;
use crate::report::{figure, percent};
use crate::timeplot::Span;
use crate::truth::{Paired, by_connection, relative};

/// An epoch that is further off than this is an error in the sense of the paper's Figure 4.
const OFF: f64 = 0.15;

/// Writes the plots and the report.
pub(super) fn write(
    frame: &Frame<'_>,
    complete: bool,
    runs: &Runs,
    summary: &Summary,
) -> Result<()> {
    let output = &frame.context.output;
    let mut shown: Vec<(&str, Markup)> = Vec::new();
    let mut show = |file: &str, heading: &'static str, svg: String, text: Markup| -> Result<()> {
        output.write(file, &svg)?;
        shown.push((heading, html! { (figure(&svg)) (text) }));
        Ok(())
    };
    if let Some(web) = runs.of(WEB) {
        show(
            "latencies.svg",
            "Figure 3a: latencies",
            latencies("Latencies, web workload", &with_ours(web, &[]))?,
            html! {},
        )?;
        show(
            "absolute-errors.svg",
            "Figure 3b: absolute errors",
            absolute_errors(web)?,
            html! {},
        )?;
        let others = [Baseline::ReqToReq, Baseline::TcpProbe, Baseline::AckRtt];
        show(
            "relative-errors.svg",
            "Figure 3c: relative errors",
            errors_beside("Errors relative to the time to the response", web, &others)?,
            point_table(&web.point),
        )?;
        let (shares, sizes) = off_by_connection(web)?;
        show(
            "share-off.svg",
            "Figure 4a: epochs that are off, by connection",
            shares,
            html! {
                p { "An epoch is off when its estimate is more than 15 % from the client's own time from \
                     request to triggered request." }
            },
        )?;
        show(
            "size-off.svg",
            "Figure 4b: how far these are off",
            sizes,
            html! {},
        )?;
        let svg = series(
            "The server while its CPU share changes",
            web.from_ns,
            &server_series(web, &web.paired),
            &merged(web, &Baseline::ESTIMATORS),
            Vec::new(),
        )?;
        show(
            "server-over-time.svg",
            "The server over time",
            svg,
            html! {},
        )?;
    }
    if let Some(single) = runs.of(SINGLE) {
        show(
            "single-latencies.svg",
            "Figure 5a: one request in flight",
            latencies(
                "Latencies, one request in flight",
                &with_ours(single, &Baseline::ESTIMATORS),
            )?,
            point_table(&single.point),
        )?;
        if let Some(client) = busiest(&single.paired) {
            let others: Vec<_> = Baseline::ESTIMATORS
                .iter()
                .filter_map(|b| Some((*b, of_connection(single.baselines.get(b)?, client))))
                .collect();
            let ours = of_connection(&single.paired, client);
            let svg = series("One connection", single.from_ns, &ours, &others, Vec::new())?;
            show(
                "connection-over-time.svg",
                "Figure 5b, c: one connection over time",
                svg,
                html! {},
            )?;
        }
    }
    if let Some(stepped) = runs.of(STEPPED) {
        let title = "The server while its speed changes in steps";
        let ours = server_series(stepped, &stepped.paired);
        let svg = series(title, stepped.from_ns, &ours, &[], speeds(stepped))?;
        show(
            "steps-over-time.svg",
            "A server whose speed changes",
            svg,
            point_table(&stepped.point),
        )?;
    }
    let body = html! {
        h2 { "Summary" }
        (words(summary))
        @for (heading, content) in &shown { h2 { (heading) } (content) }
    };
    frame.write_report(
        complete,
        "Passive accuracy: latency from one direction",
        "A web client's requests pass the vantage, nginx's responses do not; the server's CPU share \
         follows a trace. Errors are (truth − estimate) / truth by connection and epoch, each \
         counting as often as it has responses.",
        &body,
    )
}

fn words(summary: &Summary) -> Markup {
    html! {
        ul {
            li { "Median relative error over all responses: " b { (fine_percent(summary.median_rel_error)) }
                 " (the paper: 0.63 %); of its absolute value: " (fine_percent(summary.median_abs_rel_error)) }
            li { "Within 15 % of the truth: " b { (percent(summary.within_15_percent)) }
                 " of the responses with an estimate, which are " (percent(summary.covered)) }
            @for (baseline, times) in &summary.closer_than {
                li { (baseline.label()) " is "
                     b { (times.map_or_else(|| "–".into(), |t| format!("{t:.1}"))) }
                     " times as far off" }
            }
            li { "Epochs until a change of speed is followed, at worst: "
                 b { (summary.epochs_to_follow.map_or_else(|| "–".into(), |n| n.to_string())) } }
        }
    }
}

fn with_ours(outcome: &Outcome, others: &[Baseline]) -> Vec<cdf::Curve> {
    let mut curves = truths(outcome).to_vec();
    for baseline in others {
        if let Some(epochs) = outcome.baselines.get(baseline) {
            curves.push(estimates(baseline.label(), color(*baseline), false, epochs));
        }
    }
    curves.push(estimates(OURS, BATCHWISE, false, &outcome.paired));
    curves
}

fn errors_beside(title: &str, outcome: &Outcome, others: &[Baseline]) -> Result<String> {
    let mut ways: Vec<_> = others
        .iter()
        .filter_map(|b| Some((b.label(), color(*b), outcome.baselines.get(b)?.as_slice())))
        .collect();
    ways.push((OURS, BATCHWISE, &outcome.paired));
    relative_errors(title, "share of responses", &ways)
}

fn absolute_errors(outcome: &Outcome) -> Result<String> {
    let curve = |label: &str, color, epochs: &[Paired]| {
        let off = |epoch: &Paired| {
            let off = (epoch.response_ns - epoch.estimate_ns?).abs();
            Some((off, epoch.responses as f64))
        };
        cdf::Curve {
            label: label.into(),
            color,
            dashed: false,
            samples: epochs.iter().filter_map(off).collect(),
        }
    };
    let mut curves = Vec::new();
    if let Some(epochs) = outcome.baselines.get(&Baseline::ReqToReq) {
        curves.push(curve(Baseline::ReqToReq.label(), TRIGGERED, epochs));
    }
    curves.push(curve(OURS, BATCHWISE, &outcome.paired));
    let title = "Absolute errors, web workload";
    cdf::svg(
        title,
        "absolute error",
        "share of responses",
        Axis::Latency,
        &curves,
    )
}

/// By connection: the share of epochs that are off, and their mean relative error.
fn off_by_connection(outcome: &Outcome) -> Result<(String, String)> {
    let mut connections: BTreeMap<SocketAddr, Vec<f64>> = BTreeMap::new();
    for epoch in against_triggered(&outcome.paired) {
        let errors = relative(std::slice::from_ref(&epoch));
        let errors = errors.iter().map(|(error, _)| *error);
        connections.entry(epoch.client).or_default().extend(errors);
    }
    let mut shares = Vec::new();
    let mut sizes = Vec::new();
    for errors in connections.values().filter(|errors| !errors.is_empty()) {
        let off: Vec<_> = errors.iter().filter(|error| error.abs() > OFF).collect();
        shares.push((off.len() as f64 / errors.len() as f64, 1.0));
        if !off.is_empty() {
            sizes.push((off.iter().copied().sum::<f64>() / off.len() as f64, 1.0));
        }
    }
    let curve = |samples| cdf::Curve {
        label: OURS.into(),
        color: BATCHWISE,
        dashed: false,
        samples,
    };
    let of = "share of connections";
    Ok((
        cdf::svg(
            "Epochs that are off",
            "share of epochs",
            of,
            Axis::Share,
            &[curve(shares)],
        )?,
        cdf::svg(
            "Mean error of the epochs that are off",
            "relative error",
            of,
            Axis::Relative(1.0),
            &[curve(sizes)],
        )?,
    ))
}

fn merged(outcome: &Outcome, others: &[Baseline]) -> Vec<(Baseline, Vec<Paired>)> {
    let merge = |b: &Baseline| Some((*b, server_series(outcome, outcome.baselines.get(b)?)));
    others.iter().filter_map(merge).collect()
}

fn busiest(paired: &[Paired]) -> Option<SocketAddr> {
    let connections = by_connection(paired);
    connections
        .iter()
        .max_by_key(|c| c.responses)
        .map(|c| c.client)
}

fn speeds(outcome: &Outcome) -> Vec<Span> {
    let seconds = |ns: u64| ns.saturating_sub(outcome.from_ns) as f64 / 1e9;
    let end = outcome
        .paired
        .iter()
        .map(|epoch| epoch.end_ns)
        .max()
        .unwrap_or(0);
    let ends = outcome
        .shares
        .iter()
        .skip(1)
        .map(|share| share.at_ns)
        .chain([end]);
    outcome
        .shares
        .iter()
        .zip(ends)
        .map(|(share, until)| Span {
            from: seconds(share.at_ns),
            to: seconds(until),
            name: format!("share {}", share.share),
        })
        .collect()
}
