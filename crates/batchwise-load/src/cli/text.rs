//! Reports for people.

use std::io::{self, Write};

use crate::{Interval, LatencySummary, Report, TruthReport};

/// An interim report of `load redis`.
pub fn interval(out: &mut dyn Write, interval: &Interval) -> io::Result<()> {
    writeln!(
        out,
        "{:>9.0} offered/s {:>9.0} achieved/s   mean {:>10}   p50 {:>10}   p99 {:>10}",
        interval.offered_rps,
        interval.achieved_rps,
        human(interval.mean_ns),
        human(interval.p50_ns),
        human(interval.p99_ns),
    )
}

/// The report of `load redis`.
pub fn report(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    let whole = &report.whole;
    let nagle = match report.nodelay {
        true => "TCP_NODELAY",
        false => "Nagle",
    };
    write!(out, "{} connection(s) with {nagle}, ", report.connections)?;
    if report.phases.is_empty() {
        let (size, share) = (whole.value_size, whole.get_ratio * 100.0);
        write!(out, "{size} B values, {share:.0} % GET, ")?;
    }
    writeln!(out, "seed {}", report.seed)?;
    for (number, phase) in (1..).zip(&report.phases) {
        let phase = &phase.figures;
        writeln!(
            out,
            "phase {number}: {:>6} B values, {:.0} % GET, offered {:.0}/s, achieved {:.0}/s, {} \
             errors; latency since intended mean {}  p99 {}",
            phase.value_size,
            phase.get_ratio * 100.0,
            phase.offered_rps,
            phase.achieved_rps,
            phase.errors,
            human(phase.latency_ns.mean),
            human(phase.latency_ns.p99),
        )?;
    }
    writeln!(
        out,
        "offered {:.0}/s, achieved {:.0}/s; {} requests, {} errors",
        whole.offered_rps, whole.achieved_rps, whole.requests, whole.errors
    )?;
    if !report.closed {
        latency(out, "latency since intended", &whole.latency_ns)?;
    }
    latency(out, "latency since send", &whole.latency_from_send_ns)?;
    if !report.closed {
        writeln!(
            out,
            "{:<24} mean {:>9}  p50 {:>9}  {:>14}  p99 {:>9}  {:>15}  max {:>9}",
            "lateness of sends",
            human(whole.lateness_ns.mean),
            human(whole.lateness_ns.p50),
            "",
            human(whole.lateness_ns.p99),
            "",
            human(whole.lateness_ns.max)
        )?;
    }
    writeln!(
        out,
        "{} requests met back-pressure; the generator was preempted {} times for {} in all",
        whole.backpressure,
        report.preemptions,
        human(report.cpu_wait_ns)
    )?;
    validity(out, whole.valid, &whole.why_invalid)
}

/// The report of a closed loop that logs the truth.
pub fn truth(out: &mut dyn Write, report: &TruthReport) -> io::Result<()> {
    write!(
        out,
        "{} connection(s), seed {}; offered {:.0}/s, achieved {:.0}/s; {} requests, {} errors",
        report.connections,
        report.seed,
        report.offered_rps,
        report.achieved_rps,
        report.requests,
        report.errors
    )?;
    match report.pages {
        Some(pages) => writeln!(out, ", {pages} pages")?,
        None => writeln!(out)?,
    }
    if report.connections_opened != report.connections || !report.breaks.is_empty() {
        writeln!(
            out,
            "{} connections opened, {} broken, {} could not be opened",
            report.connections_opened, report.broken_connections, report.connect_failures
        )?;
    }
    latency(out, "request to response", &report.latency_ns)?;
    latency(out, "request to request", &report.triggered_ns)?;
    latency(out, "the client's own part", &report.client_think_ns)?;
    writeln!(
        out,
        "{} responses caused a request; the client used {} of its CPU and waited for it for {} \
         in all",
        report.triggers,
        report
            .cpu_share
            .map_or("an unknown share".to_owned(), |share| format!(
                "{:.0} %",
                share * 100.0
            )),
        human(report.cpu_wait_ns)
    )?;
    validity(out, report.valid, &report.why_invalid)
}

/// A line about a latency.
pub fn latency(out: &mut dyn Write, name: &str, latency: &LatencySummary) -> io::Result<()> {
    writeln!(
        out,
        "{name:<24} mean {:>9}  p50 {:>9}  p90 {:>9}  p99 {:>9}  p99.9 {:>9}  max {:>9}",
        human(latency.mean),
        human(latency.p50),
        human(latency.p90),
        human(latency.p99),
        human(latency.p999),
        human(latency.max)
    )
}

fn validity(out: &mut dyn Write, valid: bool, why_invalid: &[String]) -> io::Result<()> {
    if valid {
        return writeln!(out, "valid");
    }
    writeln!(out, "NOT VALID:")?;
    why_invalid
        .iter()
        .try_for_each(|why| writeln!(out, "  - {why}"))
}

/// Nanoseconds for people.
pub fn human(ns: Option<u64>) -> String {
    match ns {
        None => "-".to_owned(),
        Some(ns) if ns < 1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        Some(ns) if ns < 1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        Some(ns) => format!("{:.2} s", ns as f64 / 1e9),
    }
}
