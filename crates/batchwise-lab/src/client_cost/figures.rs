//! Plot and report of `client-cost`.

use anyhow::Result;
use maud::{Markup, html};

use super::search::{CHEAP, Setting, Trial};
use super::summary::Summary;
use super::{Client, Point, RATE, Run};
use crate::arm::Arm;
use crate::frame::Frame;
use crate::plot::{Strip, maybe_duration, ratios, thousands};
use crate::report::{Table, figure, percent, ratio};
use crate::rounds::pairs;

/// Writes the plot and the report.
pub(super) fn write(frame: &Frame<'_>, complete: bool, run: &Run, summary: &Summary) -> Result<()> {
    let svg = ratio_plot(run)?;
    frame.context.output.write("nagle-over-nodelay.svg", &svg)?;
    let lead = format!(
        "{} requests/s on one connection, open loop, from a client that is done with a response at \
         once and from one that works on it. To the server both are the same.",
        thousands(RATE as f64)
    );
    let body = html! {
        h2 { "Summary" }
        @if let Some(setting) = &run.setting { p { (describe(setting)) } }
        p { (verdict(summary)) }
        (clients(summary))
        p {
            "Mean latency from the intended send time, medians over rounds; ratios are medians of \
             the rounds' ratios. Agents run with --policy latency and start anew for each point. \
             Packets are processed on the CPU of the host that receives them, as a network card's \
             interrupts would have it."
        }
        (figure(&svg))
        details { summary { "What was tried to find the setting" } (trials(&run.trials).html()) }
    };
    let title = "Client cost: the same load, opposite answers";
    frame.write_report(complete, title, &lead, &body)
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

fn clients(summary: &Summary) -> Markup {
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
    table.html()
}

fn ratio_plot(run: &Run) -> Result<String> {
    let strip = |client: Client| {
        let of_it = run.points.iter().filter(|p| p.client == client);
        let pairs = pairs(of_it, Arm::Nagle, Arm::Nodelay);
        // A collapse would leave no room for the rest.
        let ratio = |(nagle, nodelay): (&Point, &Point)| {
            (nagle.latency() / nodelay.latency()).clamp(0.1, 10.0)
        };
        Strip {
            label: format!("{} client", client.name()),
            color: match client {
                Client::Cheap => Arm::Nodelay.color(),
                Client::Expensive => Arm::Nagle.color(),
            },
            values: pairs.map(ratio).collect(),
        }
    };
    let title = "Latency with Nagle over that with TCP_NODELAY (cut at 10)";
    ratios(title, "latency ratio", &Client::BOTH.map(strip))
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

    #[test]
    fn the_plot_has_both_clients_also_when_one_collapses() {
        let run = Run {
            points: vec![
                point(Client::Cheap, Arm::Nodelay, 0, 60.0, None),
                point(Client::Cheap, Arm::Nagle, 0, 50.0, None),
                point(Client::Expensive, Arm::Nodelay, 0, 200.0, None),
                point(Client::Expensive, Arm::Nagle, 0, 90_000.0, None),
            ],
            ..Run::default()
        };
        let svg = ratio_plot(&run).unwrap();
        assert!(svg.contains("cheap client, median 0.833"));
        assert!(svg.contains("expensive client, median 10.000"));
        assert!(verdict(&Summary::of(&run.points)).contains("flips"));
    }
}
