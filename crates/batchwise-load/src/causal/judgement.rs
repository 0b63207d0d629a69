//! When the truth of a closed loop may be believed. Every rule that fails adds a sentence.

use super::report::TruthReport;
use crate::validity::{exceeds, failures, waited_for_cpu};

/// The reasons not to believe a run; none if it is valid. `cpu_wait_share` is the share of the run
/// that the generator waited for its CPU.
///
/// * Something was measured, without errors and lost connections.
/// * The client's own part stays small beside the latency: in the middle below 10 % of it (or
///   50 µs, what the paper saw of lightly loaded clients, §3.1), at p99 below half of it (or
///   500 µs).
/// * The generator's thread had something left of its CPU, 10 %, and hardly waited for it,
///   5 %: responses would otherwise be read late, and the figure would be its own.
pub(crate) fn why_invalid(
    report: &TruthReport,
    lost: Option<&str>,
    first_error: Option<&str>,
    cpu_wait_share: Option<f64>,
) -> Vec<String> {
    let mut why = Vec::new();
    if report.requests == 0 {
        why.push("no request was sent: raise --duration or shorten --think".to_owned());
    }
    why.extend(failures(lost, report.errors, report.requests, first_error));
    if report.connect_failures > 0 {
        let failures = report.connect_failures;
        why.push(format!("{failures} connections could not be opened"));
    }
    let (think, latency) = (&report.client_think_ns, &report.latency_ns);
    for (name, think, latency, share, floor) in [
        ("p50", think.p50, latency.p50, 0.1, 50_000),
        ("p99", think.p99, latency.p99, 0.5, 500_000),
    ] {
        if let Some((think, latency)) = exceeds(think, latency, share, floor) {
            why.push(format!(
                "the client's own time between a response and the request that it caused \
                 ({name} {think:.1} us) is more than {:.0} % of the latency ({name} \
                 {latency:.1} us): give it a CPU of its own with --cpu, or fewer connections",
                share * 100.0,
            ));
        }
    }
    if let Some(share) = report.cpu_share.filter(|&share| share > 0.9) {
        why.push(format!(
            "the generator's thread was busy for {:.0} % of the run: it is the bottleneck",
            share * 100.0
        ));
    }
    why.extend(waited_for_cpu(cpu_wait_share, 0.05));
    why
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut TruthReport);

    /// Why the run of a quick client is not believed, but for a change.
    fn why(
        lost: Option<&str>,
        cpu_wait_share: f64,
        change: impl FnOnce(&mut TruthReport),
    ) -> Vec<String> {
        let mut report = TruthReport {
            requests: 1000,
            cpu_share: Some(0.3),
            ..TruthReport::default()
        };
        let (latency, think) = (&mut report.latency_ns, &mut report.client_think_ns);
        (latency.p50, latency.p99) = (Some(400_000), Some(2_000_000));
        (think.p50, think.p99) = (Some(4_000), Some(30_000));
        change(&mut report);
        why_invalid(&report, lost, Some("status 404"), Some(cpu_wait_share))
    }

    #[test]
    fn a_quick_client_without_errors_is_believed() {
        assert_eq!(why(None, 0.001, |_| ()), Vec::<String>::new());
        // microseconds are no fault even beside a fast server
        let fast = why(None, 0.001, |report| {
            (report.latency_ns.p50, report.client_think_ns.p50) = (Some(100_000), Some(40_000));
        });
        assert_eq!(fast, Vec::<String>::new());
    }

    #[test]
    fn each_rule_speaks_for_itself() {
        let cases: [(Change, &str); 6] = [
            (|r| r.requests = 0, "no request"),
            (
                |r| r.errors = 2,
                "2 of 1000 requests failed or went unanswered (first: status 404)",
            ),
            (
                |r| r.connect_failures = 3,
                "3 connections could not be opened",
            ),
            (|r| r.client_think_ns.p50 = Some(60_000), "p50 60.0 us"),
            (|r| r.client_think_ns.p99 = Some(1_100_000), "p99 1100.0 us"),
            (|r| r.cpu_share = Some(0.95), "bottleneck"),
        ];
        let cases = cases.map(|(change, part)| (why(None, 0.001, change), part));
        let outside = [
            (why(Some("reset"), 0.001, |_| ()), "reset"),
            (why(None, 0.08, |_| ()), "8.0 %"),
        ];
        for (why, part) in cases.into_iter().chain(outside) {
            assert_eq!(why.len(), 1, "{part}: {why:?}");
            assert!(why[0].contains(part), "{why:?}");
        }
    }
}
