//! Reads a truth log and holds it against what must be true of any.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use batchwise_load::TruthReport;

/// A line.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub sent: u64,
    pub response: u64,
    pub triggered: Option<u64>,
    pub request_bytes: u64,
    pub response_bytes: u64,
}

/// Waits until a run has connected: then it begins its log.
pub fn begun(path: &Path) {
    let begun = (0..3000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        path.exists()
    });
    assert!(begun, "no connection within 30 s");
}

/// The lines of each connection, in the order of their responses.
pub fn read(path: &Path) -> HashMap<String, Vec<Line>> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some("connection,sent_ns,response_ns,triggered_ns,request_bytes,response_bytes")
    );
    let mut connections: HashMap<String, Vec<Line>> = HashMap::new();
    for line in lines {
        let fields: Vec<_> = line.split(',').collect();
        let number = |at: usize| fields[at].parse::<u64>().unwrap();
        let connection = connections.entry(fields[0].to_owned()).or_default();
        connection.push(Line {
            sent: number(1),
            response: number(2),
            triggered: (!fields[3].is_empty()).then(|| number(3)),
            request_bytes: number(4),
            response_bytes: number(5),
        });
    }
    connections
}

/// What must be true of any log of a run without errors: it has a line for each request, and
/// times in order; what a response triggered is a request of the same connection; no more
/// requests than `in_flight` are out at a time; and it agrees with the report.
pub fn check(report: &TruthReport, path: &Path, in_flight: usize) -> HashMap<String, Vec<Line>> {
    assert_eq!(report.errors, 0, "{report:?}");
    let connections = read(path);
    assert_eq!(connections.len() as u64, report.connections, "{report:?}");
    let all: Vec<_> = connections.values().flatten().copied().collect();
    assert_eq!(all.len() as u64, report.requests, "{report:?}");
    let triggers = all.iter().filter(|line| line.triggered.is_some()).count();
    assert_eq!(triggers as u64, report.triggers);
    let total = |of: fn(&Line) -> u64| all.iter().map(of).sum::<u64>();
    assert_eq!(total(|line| line.request_bytes), report.bytes_sent);
    assert_eq!(total(|line| line.response_bytes), report.bytes_received);
    let mean = total(|line| line.response - line.sent) / all.len() as u64;
    assert!(mean.abs_diff(report.latency_ns.mean.unwrap()) <= 1);
    for (name, lines) in &connections {
        assert!(name.starts_with("127.0.0.1:"), "{name}");
        let sent: HashSet<_> = lines.iter().map(|line| line.sent).collect();
        for line in lines {
            assert!(line.sent <= line.response, "{line:?}");
            if let Some(triggered) = line.triggered {
                assert!(line.response <= triggered, "{line:?}");
                assert!(sent.contains(&triggered), "{line:?}");
            }
            // Those that were sent no later and answered later were out when this one was sent.
            let out = |other: &&Line| other.sent <= line.sent && other.response > line.sent;
            let out = lines.iter().filter(out).count();
            assert!(out <= in_flight, "{out} in flight at {line:?}");
        }
    }
    connections
}
