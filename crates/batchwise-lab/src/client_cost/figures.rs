//! Plot and report of `client-cost`.

use super::search::{CHEAP, Setting, Trial};
use super::summary::Summary;
use super::{Client, More, Point, RATE};
use crate::arm::Arm;
use crate::engine::report::Part;
use crate::engine::text::{maybe_duration, percent, ratio, thousands};
use crate::engine::{Figure, Report, Strip, Table, pairs};

/// The report.
pub(super) fn report(points: &[Point], more: &More, summary: &Summary) -> Report {
    let lead = format!(
        "{} requests/s on one connection, open loop, from a client that is done with a response at \
         once and from one that works on it. To the server both are the same.",
        thousands(RATE as f64)
    );
    let tried = "What was tried to find the setting".into();
    Report::new("Client cost: the same load, opposite answers", lead)
        .heading("Summary")
        .parts(more.setting.as_ref().map(describe).map(Part::Text))
        .text(verdict(summary))
        .table(clients(summary))
        .text(
            "Mean latency from the intended send time, medians over rounds; ratios are medians of \
             the rounds' ratios. Agents run with --policy latency and start anew for each point. \
             Packets are processed on the CPU of the host that receives them, as a network card's \
             interrupts would have it.",
        )
        .figure(ratio_plot(points))
        .part(Part::Details(
            tried,
            vec![Part::Table(trials(&more.trials))],
        ))
}

fn describe(setting: &Setting) -> String {
    format!(
        "SETs of {} B; the expensive client works {} µs on each response. This is the setting with \
         the most opposite answers among those that were tried with the static arms.",
        setting.value_size,
        setting.busy.as_micros()
    )
}

fn verdict(summary: &Summary) -> &'static str {
    match (summary.flips, summary.chose_right) {
        (Some(true), Some(true)) => "The answer flips with the client, and batchwise has both.",
        (Some(true), Some(false)) => "The answer flips with the client; batchwise missed one.",
        (Some(true), None) => "The answer flips with the client.",
        (Some(false), _) => "On this machine the answer did not flip in any setting tried.",
        (None, _) => "Not enough was measured to tell.",
    }
}

fn clients(summary: &Summary) -> Table {
    let mut table = Table::new([
        "client",
        "TCP_NODELAY",
        "Nagle",
        "batchwise",
        "Nagle / TCP_NODELAY",
        "better",
        "batchwise / better",
        "batchwise had Nagle on",
    ]);
    for (client, found) in &summary.per_client {
        let mean = |arm| maybe_duration(found.mean_ns.get(&arm).copied());
        table.row([
            client.name().into(),
            mean(Arm::Nodelay),
            mean(Arm::Nagle),
            mean(Arm::Batchwise),
            ratio(found.nagle_over_nodelay),
            found.better.map_or("–", Arm::label).into(),
            ratio(found.batchwise_over_better),
            percent(found.nagle_share),
        ]);
    }
    table
}

fn ratio_plot(points: &[Point]) -> Figure {
    let strip = |client: Client| {
        let of_it: Vec<_> = points.iter().filter(|p| p.client == client).collect();
        let key = |p: &&Point| (p.round, p.arm);
        let pairs = pairs(&of_it, key, Arm::Nagle, Arm::Nodelay, |p| p.latency());
        // A collapse would leave no room for the rest.
        let cut = |&(nagle, nodelay): &(f64, f64)| ((nagle / nodelay).clamp(0.1, 10.0), 1.0);
        let color = match client {
            Client::Cheap => Arm::Nodelay.color(),
            Client::Expensive => Arm::Nagle.color(),
        };
        let pairs: Vec<_> = pairs.iter().map(cut).collect();
        Strip::new(format!("{} client", client.name()), color, &pairs)
    };
    let title = "Latency with Nagle over that with TCP_NODELAY (cut at 10)";
    let strips = Client::BOTH.map(strip).into();
    Figure::ratios("nagle-over-nodelay.svg", title, "latency ratio", strips)
}

fn trials(trials: &[Trial]) -> Table {
    let mut table = Table::new(["value", "client", "arm", "mean"]);
    for trial in trials {
        let client = match trial.busy {
            CHEAP => "cheap".to_owned(),
            busy => format!("{} µs a response", busy.as_micros()),
        };
        table.row([
            format!("{} B", trial.value_size),
            client,
            trial.arm.label().into(),
            maybe_duration(Some(trial.mean_ns)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::point;
    use super::*;
    use crate::engine::draw;

    #[test]
    fn the_plot_has_both_clients_also_when_one_collapses() {
        let points = [
            point(Client::Cheap, Arm::Nodelay, 0, 60.0, None),
            point(Client::Cheap, Arm::Nagle, 0, 50.0, None),
            point(Client::Expensive, Arm::Nodelay, 0, 200.0, None),
            point(Client::Expensive, Arm::Nagle, 0, 90_000.0, None),
        ];
        let svg = draw::svg(&ratio_plot(&points)).unwrap();
        assert!(svg.contains("cheap client, median 0.833"));
        assert!(svg.contains("expensive client, median 10.000"));
        assert!(verdict(&Summary::of(&points)).contains("flips"));
    }
}
