//! Reports for people.

use std::io::{self, Write};

use crate::downloads::{FetchReport, ServeReport};
use crate::incast::AskReport as IncastReport;
use crate::lives::{ReceiveReport, SendReport};
use crate::priority::AskReport;
use crate::streams::StreamsReport;
use crate::{Interval, LatencySummary, Report, TruthReport, multiplexed};

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

/// The report of `load multiplexed`.
pub fn multiplexed(out: &mut dyn Write, report: &multiplexed::Report) -> io::Result<()> {
    writeln!(
        out,
        "{} task(s) on {} connection(s); achieved {:.0}/s; {} requests, {} errors",
        report.tasks, report.connections, report.achieved_rps, report.requests, report.errors
    )?;
    latency(out, "latency", &report.latency_ns)
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

fn latency(out: &mut dyn Write, name: &str, latency: &LatencySummary) -> io::Result<()> {
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
fn human(ns: Option<u64>) -> String {
    match ns {
        None => "-".to_owned(),
        Some(ns) if ns < 1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        Some(ns) if ns < 1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        Some(ns) => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// The report of `load downloads`.
pub fn downloads(out: &mut dyn Write, report: &FetchReport) -> io::Result<()> {
    writeln!(
        out,
        "{:.2} MB/s, {} downloads",
        report.bytes_per_s / 1e6,
        report.downloads
    )?;
    latency(out, "age of what arrives", &report.age_ns)?;
    latency(out, "ping", &report.ping_ns)
}

/// The report of `load downloads-server`.
pub fn downloads_server(out: &mut dyn Write, report: &ServeReport) -> io::Result<()> {
    if let Some(mode) = &report.window {
        writeln!(out, "window: {mode}")?;
    }
    let unsent = report
        .unsent_bytes
        .map_or("–".to_owned(), |b| format!("{b:.0} B"));
    writeln!(
        out,
        "{} bytes in {} writes, {} asked, {} waits, {:.2} s of CPU time; {unsent} waited a connection",
        report.bytes,
        report.writes,
        report.asked,
        report.waits,
        report.cpu_ns as f64 / 1e9,
    )
}

/// The report of `load streams` and of its server.
pub fn streams(out: &mut dyn Write, report: &StreamsReport) -> io::Result<()> {
    writeln!(
        out,
        "{:.1} MB/s written, {:.1} MB/s read, {:.0} requests/s; {} connections broken",
        report.written_per_s / 1e6,
        report.read_per_s / 1e6,
        report.requests_per_s,
        report.broken,
    )
}

/// The report of `load lives`.
pub fn lives(out: &mut dyn Write, report: &SendReport) -> io::Result<()> {
    writeln!(
        out,
        "{} lives: {} whole, {} reset, {} failed; {} waits, {} late, latest {}",
        report.lives,
        report.whole,
        report.reset,
        report.failed,
        report.waits,
        report.late,
        human(Some(report.latest_ns)),
    )?;
    match &report.why {
        Some(why) => writeln!(out, "the first that failed: {why}"),
        None => Ok(()),
    }
}

/// The report of `load lives-server`.
pub fn lives_server(out: &mut dyn Write, report: &ReceiveReport) -> io::Result<()> {
    writeln!(out, "{} lives", report.lives)
}

/// The report of `load priority`.
pub fn priority(out: &mut dyn Write, report: &AskReport) -> io::Result<()> {
    writeln!(out, "download {:.2} MB/s", report.bytes_per_s / 1e6)?;
    latency(out, "first byte", &report.first_byte_ns)
}

/// The report of `load incast`.
pub fn incast(out: &mut dyn Write, report: &IncastReport) -> io::Result<()> {
    let count = report.completions_ns.len();
    let at = |share: f64| {
        let place = (share * count as f64) as usize;
        human(report.completions_ns.get(place).copied())
    };
    writeln!(
        out,
        "{count} answers: p50 {}, p99 {}, longest {}; {} segments sent again, {} answers missing",
        at(0.5),
        at(0.99),
        human(report.completions_ns.last().copied()),
        report.retransmissions,
        report.incomplete,
    )
}
