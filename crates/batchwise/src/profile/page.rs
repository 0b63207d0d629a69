//! `--report`: one page with all of it: shares, where they were spent, and a flame graph coloured by component.

use std::io::Write;
use std::time::{Duration, SystemTime};

use batchwise_core::profile::Component;
use batchwise_core::profile::report::Line;
use maud::{Markup, PreEscaped, html};
use nix::sys::utsname::uname;

use super::flames;
use super::frames::Graph;
use super::report::{most, traffic};
use crate::frame::human::{UNKNOWN, duration, percent};
use crate::frame::page::document;

const TITLE: &str = "Where the CPU time of the network stack goes";
/// Where the flame graph comes: it is large, and no part of the text.
const FLAMES: &str = "<!-- flames -->";

/// Writes the page.
pub fn write(summary: &str, line: &Line, graph: &Graph, mut out: impl Write) -> anyhow::Result<()> {
    let flames = flames::draw(graph)?;
    let body = html! {
        h1 { (TITLE) }
        p class="lead" { (summary) }
        p class="note" { (about(line)) " By batchwise " (env!("CARGO_PKG_VERSION")) "." }
        @if let Some(doubt) = line.doubt() { p class="warn" { (doubt) } }
        @if line.lost > 0 { p class="warn" { (line.lost) " samples were lost." } }
        h2 { "Components" }
        div class="scroll" { (components(line)) }
        h2 { "Phases, CPUs, processes" }
        (others(line))
        @if line.traffic.is_some() {
            h2 { "What went on" }
            table class="facts" {
                @for (name, of) in traffic(line, line.traffic.as_ref()) { tr { td { (name) } td style="text-align:left" { (of) } } }
            }
            (sizes(line))
        }
        h2 { "Stacks" }
        p class="note" {
            "A function is as wide as the time in it and in what it calls. Its colour is its component's; grey works \
             for whoever calls it. Click to look closer."
        }
        @if flames.is_none() { p { "Nothing was sampled." } }
        div class="flames" { (PreEscaped(FLAMES)) }
    };
    let page = document(TITLE, &body);
    let (before, after) = page.split_once(FLAMES).unwrap_or((&page, ""));
    out.write_all(before.as_bytes())?;
    out.write_all(&flames.unwrap_or_default())?;
    out.write_all(after.as_bytes())?;
    Ok(())
}

/// Where and when it was.
fn about(line: &Line) -> String {
    let end = SystemTime::UNIX_EPOCH + Duration::from_nanos(line.ts_ns);
    let end = humantime::format_rfc3339_seconds(end);
    let took = duration(line.interval_ns);
    let machine = uname().map_or_else(
        |_| String::new(),
        |name| {
            let (host, release) = (name.nodename(), name.release());
            format!(" on {}, Linux {}", host.display(), release.display())
        },
    );
    format!("{took}{machine}, until {end}.")
}

fn components(line: &Line) -> Markup {
    html! {
        table {
            tr { th { "component" } th { "share" } th { "in softirqs" } th {} th style="text-align:left" { "most of it" } }
            @for share in &line.components {
                tr {
                    td { (share.component.label()) }
                    td { (percent(share.share)) }
                    td { (percent(share.softirq)) }
                    td style="min-width:16em;text-align:left" { div style=(bar(share.component, share.share)) {} }
                    td style="text-align:left;white-space:normal" { (most(line, share.component)) }
                }
            }
        }
    }
}

fn bar(component: Component, share: f64) -> String {
    let [red, green, blue] = component.colour();
    format!(
        "height:.9em;width:{:.1}%;background:rgb({red},{green},{blue})",
        share * 100.0
    )
}

/// Buffers by size, as the paper's Figure 8c has them.
fn sizes(line: &Line) -> Markup {
    let Some(traffic) = &line.traffic else {
        return Markup::default();
    };
    let share = |sizes: &[u64], at: usize| {
        let all: u64 = sizes.iter().sum();
        percent(
            sizes
                .get(at)
                .map_or(0.0, |count| *count as f64 / all.max(1) as f64),
        )
    };
    let is_some = |at: &usize| {
        let of = |sizes: &[u64]| sizes.get(*at).is_some_and(|count| *count > 0);
        of(&traffic.received_sizes) || of(&traffic.queued_sizes)
    };
    let longest = (0..traffic.received_sizes.len()).rev().find(is_some);
    html! {
        table {
            tr { th { "buffers" } th { "received, after GRO" } th { "sent, before GSO" } }
            @for at in 0..longest.map_or(0, |at| at + 1) {
                tr {
                    td { "from " (4 * at) " KiB" }
                    td { (share(&traffic.received_sizes, at)) }
                    td { (share(&traffic.queued_sizes, at)) }
                }
            }
        }
    }
}

fn others(line: &Line) -> Markup {
    html! {
        table {
            tr { th { "phase" } th { "share" } }
            @for p in &line.phases { tr { td { (p.phase.label()) } td { (percent(p.share)) } } }
        }
        table {
            tr { th { "CPU" } th { "busy" } th { "softirq" } }
            @for c in &line.cpus {
                tr { td { (c.cpu) } td { (percent(c.busy)) } td { (percent(c.softirq)) } }
            }
        }
        table {
            tr { th { "process" } th { "share" } th { "softirqs meanwhile" } }
            @for p in line.processes.iter().take(10) {
                tr {
                    td { (if p.name.is_empty() { UNKNOWN } else { &p.name }) }
                    td { (percent(p.share)) }
                    td { (percent(p.interrupted)) }
                }
            }
        }
    }
}
