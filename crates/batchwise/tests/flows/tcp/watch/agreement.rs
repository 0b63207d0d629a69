//! Whether estimates agree with what the load generator measured: of the same requests, all that were
//! sent. Requests of the same time would not do: a busy machine stands still, and catches up with
//! many at once, at either side of any moment.

use std::net::SocketAddr;

use batchwise_core::sense::report::{Estimator, Line, Side, Unit};
use batchwise_testbed::host::Host;
use batchwise_testbed::load::LoadReport;
use batchwise_testbed::stage::close;
use batchwise_testbed::stage::generator::Load;
use batchwise_testbed::stage::watch::{INTERVAL, Watch, items, now_ns, of};
use batchwise_testbed::window::{EndEstimate, estimates_in};

/// A load that keeps a schedule, light enough for a busy machine with two CPUs.
pub const LIGHT: &str = "--rate 4000 --duration 2s --warmup 0s --keys 1 --value-size 64";
/// A load of single requests: of several in one segment, with which a schedule is caught up, a server
/// that is not told sees one.
pub const SINGLE: &str = "--closed --duration 2s --warmup 0s --keys 1 --value-size 64";

/// How often a load is tried of which a busy machine serves the last requests too late to be in its
/// report, which says nothing then.
const ATTEMPTS: u32 = 3;
const TOO_LATE: &str = "no answer within a second after the end of the window";
/// A load from its first request to its last, and what it measured.
pub struct Measured {
    since_ns: u64,
    pub report: LoadReport,
}

impl Measured {
    /// Runs it at `host`, without a warm-up.
    pub fn run(host: &Host, address: SocketAddr, options: &str) -> Self {
        for attempt in 1..=ATTEMPTS {
            let since_ns = now_ns();
            let report = Load::start(host, address, options).any_report();
            assert_eq!(report.warmup_ns, 0);
            // for the line of its last requests, and for lines of their own for those after it
            std::thread::sleep(INTERVAL * 2);
            if report.errors == 0 {
                return Self { since_ns, report };
            }
            let why = report.why_invalid.join("; ");
            assert!(why.contains(TOO_LATE), "{report:?}");
            println!("attempt {attempt} of {ATTEMPTS} at {options}: {why}");
        }
        panic!("the machine served no load in time");
    }

    /// Its requests, with those that are not in the report: each connection's first, and one that
    /// sets each key.
    fn sent(&self) -> f64 {
        let report = &self.report;
        (report.requests + report.connections + report.keys) as f64
    }

    /// By how much a count of them may be off. A request under way between two lines may be in both.
    /// The client's last count may not be told: with a schedule, there are as many requests after it
    /// as a busy machine has to catch up with.
    fn share(&self) -> f64 {
        if self.report.closed { 0.05 } else { 0.15 }
    }

    /// The watcher's lines of all its requests.
    pub fn lines(&self, watch: &Watch, side: Side) -> Vec<Line> {
        let enough = self.sent() * (1.0 - self.share());
        let mine = |lines: &[Line]| -> Vec<Line> {
            let later = lines.iter().filter(|l| l.ts_ns > self.since_ns);
            later.cloned().collect()
        };
        let lines = watch.until("all requests", 0, |lines| {
            items(&sends(&mine(lines), side)) >= enough
        });
        mine(&lines)
    }

    /// They are what was sent.
    pub fn assert_counted(&self, lines: &[Line], side: Side) {
        let (counted, sent) = (items(&sends(lines, side)), self.sent());
        println!("{side:?}: {counted:.0} counted of {sent}");
        assert!(
            (counted - sent).abs() <= self.share() * sent,
            "{side:?}: {counted} counted of {sent}: {lines:#?}"
        );
    }

    /// The estimate is two-sided and agrees with what the load measured. Loosely: how true it is on
    /// a quiet machine is the lab's to say.
    pub fn assert_agrees(&self, lines: &[Line], side: Side) {
        self.assert_agrees_by(Estimator::TwoSided, lines, side);
    }

    /// The same by another estimator.
    pub fn assert_agrees_by(&self, estimator: Estimator, lines: &[Line], side: Side) {
        let estimate = estimate(lines, side);
        assert_eq!(estimate.estimator, estimator, "{estimate:?}");
        let measured = self.report.latency_from_send_ns.mean;
        let total = estimate.total_ns;
        let total = total.unwrap_or_else(|| panic!("{side:?}: no total: {lines:#?}"));
        println!("{side:?}: {total:.0} ns estimated, {measured} ns measured");
        assert!(
            close(total, measured, 0.35),
            "{side:?}: {total} ns estimated, {measured} ns measured; {estimate:?}"
        );
        self.assert_counted(lines, side);
    }
}

fn sends(lines: &[Line], side: Side) -> Vec<&Line> {
    let mut lines = of(lines, side);
    lines.retain(|l| l.unit == Unit::Sends);
    lines
}

/// What the lines say together, in sends.
pub fn estimate(lines: &[Line], side: Side) -> EndEstimate {
    estimates_in(lines, side, 0, u64::MAX)
        .remove(&Unit::Sends)
        .unwrap_or_else(|| panic!("no line of the {side:?}: {lines:#?}"))
}
