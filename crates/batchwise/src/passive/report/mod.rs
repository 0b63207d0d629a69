//! `--report`: one page with everything in it, readable on its own.

use batchwise_core::passive::Epoch;
use batchwise_core::passive::report::TotalsLine;
use maud::{Markup, html};

use super::args::PassiveArgs;
use super::interval::classes;
use super::rows::OVERALL;
use super::summary::{Overall, Summary};
use crate::frame::chart::{COLORS, Curve};
use crate::frame::human;
use crate::frame::page::document;

mod plots;

/// Flows of which the gaps are shown.
const FLOWS: usize = 6;

pub fn page(args: &PassiveArgs, place: &str, summary: &Summary, totals: &TotalsLine) -> String {
    let mut busiest: Vec<_> = summary.servers().collect();
    busiest.sort_by_key(|overall| std::cmp::Reverse(overall.batches));
    let most = &busiest[..busiest.len().min(COLORS.len())];
    let begin = summary.span().map_or(0, |span| span.0);
    let over_time = plots::over_time(&curves(most, |overall| {
        let at = |ts_ns: u64| ts_ns.saturating_sub(begin) as f64 / 1e9;
        let points = || overall.points.iter();
        let line = points().map(|p| (at(p.ts_ns), p.mean_ns)).collect();
        (line, points().map(|p| (at(p.ts_ns), p.p90_ns)).collect())
    }));
    let distribution = plots::distribution(&curves(most, |overall| {
        (overall.distribution(), Vec::new())
    }));
    let title = format!("Response latency at {place}");
    let body = html! {
        h1 { (title) }
        p class="lead" {
            "Estimated from the packets that clients sent, by batchwise " (env!("CARGO_PKG_VERSION")) ". "
            (length(summary))
        }
        (warnings(summary, totals))
        h2 { "Servers" }
        (servers(&busiest))
        @if busiest.len() > most.len() {
            p class="note" { "The pictures show the " (most.len()) " servers with the most batches." }
        }
        h2 { "Latency over time" }
        p class="note" { "Solid: mean of each interval. Dashed: 90th percentile." }
        (over_time)
        h2 { "Distribution" }
        (distribution)
        @if summary.busiest(1).len() == 1 {
            h2 { "Gaps of the busiest flows" }
            p class="note" {
                "Of the busiest flows that gaps measure, at most two a server, the epoch with the most gaps. The mean of its \
                 answers is the line; the gaps that it was made from are the bars."
            }
            (flows(summary))
        }
        h2 { "What was seen" }
        (facts(args, place, totals))
        (how_to_read())
    };
    document(&title, &body)
}

fn curves(
    servers: &[&Overall],
    of: impl Fn(&Overall) -> (Vec<(f64, f64)>, Vec<(f64, f64)>),
) -> Vec<Curve> {
    let curves = servers.iter().zip(COLORS).map(|(overall, color)| {
        let (line, dashed) = of(overall);
        Curve {
            label: format!("{} {}", overall.key.0, human::word(&overall.key.1)),
            color,
            line,
            dashed,
        }
    });
    curves.collect()
}

fn length(summary: &Summary) -> String {
    summary.span().map_or_else(String::new, |(from, to)| {
        let length = human::duration(to.saturating_sub(from));
        format!("{length} from {} on.", human::clock(from))
    })
}

fn warnings(summary: &Summary, totals: &TotalsLine) -> Markup {
    let stalled: u64 = summary.servers().map(|overall| overall.stalled).sum();
    html! {
        @if summary.servers().next().is_none() {
            p class="warn" {
                "Nothing was measured: no client sent two packets with payload to a server. Does the \
                 interface see what clients send? Are the ports right?"
            }
        }
        @if stalled > 0 {
            p class="warn" {
                (stalled) " epochs held nothing but retransmissions and waiting: a server that did not \
                 answer, or clients that had nothing to ask."
            }
        }
        @if totals.lost_events > 0 {
            p class="warn" { (totals.lost_events) " events were lost: numbers of flows are too low." }
        }
        @if totals.evicted > 0 {
            p class="warn" {
                (totals.evicted) " flows gave their place in the table to others: a larger --flows \
                 keeps them."
            }
        }
        @if summary.beyond() > 0 {
            p class="warn" { (summary.beyond()) " epochs of further servers are not shown." }
        }
    }
}

fn servers(servers: &[&Overall]) -> Markup {
    html! {
        div class="scroll" { table {
            tr { @for column in OVERALL { th { (column.name()) } } }
            @for overall in servers {
                tr { @for column in OVERALL { td { (column.text(overall)) } } }
            }
        } }
    }
}

fn flows(summary: &Summary) -> Markup {
    let name = |epoch: &Epoch| {
        epoch.tuple.map_or_else(String::new, |tuple| {
            let transport = human::word(&tuple.transport);
            format!("{} → {} {transport}", tuple.client, tuple.server)
        })
    };
    html! {
        @for epoch in summary.busiest(FLOWS) {
            h3 { (name(epoch)) }
            p class="note" {
                (epoch.estimate.gaps) " gaps, " (epoch.estimate.batches) " batches, pauses of "
                (human::maybe_duration(epoch.estimate.ibg)) ", confidence "
                (format!("{:.2}", f64::from(epoch.estimate.confidence) / 1e3))
            }
            (plots::modes(epoch))
        }
    }
}

fn facts(args: &PassiveArgs, place: &str, totals: &TotalsLine) -> Markup {
    let ports: Vec<String> = args.ports.iter().map(u16::to_string).collect();
    let packets = classes(totals).map(|(class, n)| format!("{n} {class}"));
    let facts = [
        ("Where", place.to_owned()),
        (
            "Ports",
            if ports.is_empty() {
                "all".to_owned()
            } else {
                ports.join(", ")
            },
        ),
        ("Estimator", args.estimator.describe()),
        ("Epoch", format!("{:?}", args.epoch)),
        ("Idle from", format!("{:?}", args.idle)),
        (
            "Packets",
            format!("{}: {}", totals.packets, packets.join(", ")),
        ),
        ("Flows that began", totals.born.to_string()),
        ("Flows that gave way to others", totals.evicted.to_string()),
    ];
    html! {
        table class="facts" {
            @for (name, value) in facts { tr { td { (name) } td { (value) } } }
        }
    }
}

fn how_to_read() -> Markup {
    html! {
        h2 { "How to read it" }
        p {
            "Nothing here was seen of the answers. A client that has asked for something often waits for \
             the answer before it sends again; the time from one batch of requests to the next is then \
             the time that an answer took, as the client felt it: network both ways, server, and the \
             client's own work on the answer. A TCP client's packets also say what it has received: a request \
             that acknowledges more than the one before follows an answer, and the oldest one in flight is \
             taken for answered. Where that is not seen (UDP, QUIC), each flow's gaps between packets are sorted into clusters \
             (modes). Short ones lie inside a burst; the pauses end with an answer. The latency of an \
             epoch is the time that its bursts and pauses took, divided by the number of pauses."
        }
        ul {
            li { b { "batches" } ": as many answers the latency is the mean of. Means of epochs weigh by them, \
                 and percentiles are of epochs' means: single slow answers show less than at a client." }
            li { b { "confidence" } ": falls with few batches, with gaps that had no room (discarded), and where \
                 neither acknowledgments nor sizes tell a pause from a gap in a burst." }
            li { b { "idle" } ": gaps too long to be answers: clients that had nothing to ask, timeouts. They are \
                 no part of the latency." }
            li { b { "resent, stalled" } ": packets that came again, and epochs with nothing but such packets and \
                 waiting. A server that fails looks like that." }
        }
        p {
            "It is not the latency where clients do not wait: many independent requests in flight, pacing by \
             the sender or a bottleneck, clients that work long on an answer."
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::super::samples;
    use super::*;

    fn args() -> PassiveArgs {
        let command = PassiveArgs::augment_args(clap::Command::new("passive"));
        let matches = command.get_matches_from(["passive", "--iface", "eth1", "--port", "80"]);
        PassiveArgs::from_arg_matches(&matches).expect("arguments")
    }

    #[test]
    fn a_page_holds_everything_and_refers_to_nothing_outside() {
        let mut summary = Summary::default();
        summary.epoch(samples::KEY, &samples::epoch());
        let interval = samples::interval();
        summary.interval(&interval.servers);
        let page = page(&args(), "<eth1>", &summary, &interval.totals);
        for part in [
            "10.0.0.1:80",
            "1.01 ms",
            "How to read it",
            "15000 measured",
            "7 events",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert_eq!(page.matches("<svg").count(), 3, "{page}");
        let page = page.replace("http://www.w3.org/2000/svg", "");
        for link in [
            "http:", "https:", "src=", "href=", "url(", "<script", "<eth1>",
        ] {
            assert!(!page.contains(link), "{link} is in {page}");
        }
    }

    #[test]
    fn a_run_that_saw_nothing_says_so() {
        let page = page(
            &args(),
            "<eth1>",
            &Summary::default(),
            &TotalsLine::default(),
        );
        assert!(page.contains("Nothing was measured"));
    }
}
