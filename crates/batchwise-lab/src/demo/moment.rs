//! One passage of a climb through a bin of load: what the load generator measured, slice by slice,
//! and what both ends estimated over just that time.

use std::collections::BTreeMap;
use std::time::Duration;

use batchwise_core::sense::report::{Estimator, Line, Nagle, Side, Unit};
use batchwise_core::tune::report::Decision;
use batchwise_testbed::load::{LoadInterval, saturated};
use batchwise_testbed::window::{EndEstimate, estimate_across};
use serde::{Deserialize, Serialize};

use super::others::{Used, share};
use super::plan::{Climb, Plan, watched};
use crate::arm::Arm;
use crate::engine::stalls::{Gap, lost};
use crate::stats::median;

/// A stall leaves a backlog that takes a multiple of its own length to drain: four times at a load
/// of 80 %. That much time after a stall is cut as well, in all arms.
const BACKLOG: u64 = 4;
/// A passage in which other work took more than this share of the CPUs is cut as a whole.
const OTHERS: f64 = 0.15;
/// A 99th percentile of fewer requests is none.
const ENOUGH: u64 = 100;
/// How long after a passage the watchers' last line of it may come.
const PATIENCE: Duration = Duration::from_millis(800);

/// What was measured in one slice of a passage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    pub length_ns: u64,
    /// Mean latency since requests were due; `None` if none was answered.
    pub mean_ns: Option<f64>,
    /// What the client's end estimated.
    pub estimate_ns: Option<f64>,
    /// Whether it is cut: the machine stood still, or what that had left was not drained yet, or
    /// other work took the CPUs.
    pub stalled: bool,
}

impl Slice {
    /// Latency as far as it is known: if nothing was answered, it was longer than the slice.
    pub fn latency(&self) -> Option<f64> {
        Some(self.mean_ns.unwrap_or(self.length_ns as f64))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Its end in seconds of load, all climbs one after another.
    pub at_s: f64,
    /// What decided about Nagle's algorithm at the client.
    pub arm: Arm,
    /// Which climb of this arm, from 0.
    #[serde(default)]
    pub pass: u32,
    /// Whether Nagle's algorithm worked, at the end; `None` if that is not known.
    pub nagle: Option<Nagle>,
    /// The load by plan in the middle of the bin, requests a second.
    pub offered_rps: f64,
    /// What the load generator measured, with nothing cut.
    pub truth: LoadInterval,
    /// Whether the load was more than could be carried, by the slices that count.
    pub saturated: bool,
    /// What the client's end estimated; `None` if it had no line.
    pub client: Option<EndEstimate>,
    pub server: Option<EndEstimate>,
    /// By end: the 99th percentile that it estimated, ns; the median of its lines.
    #[serde(default)]
    pub p99_ns: BTreeMap<Side, f64>,
    /// What sensing cost an end, share of one CPU: the mean of both.
    #[serde(default)]
    pub cost: Option<f64>,
    /// The share of its CPUs that other work took, if that is known.
    #[serde(default)]
    pub others: Option<f64>,
    #[serde(default)]
    pub slices: Vec<Slice>,
}

impl Moment {
    pub fn end(&self, side: Side) -> Option<&EndEstimate> {
        match side {
            Side::Client => self.client.as_ref(),
            Side::Server => self.server.as_ref(),
        }
    }

    /// How far an end's estimate is from the measured mean since the send, as a share of it.
    pub fn error(&self, side: Side) -> Option<f64> {
        let truth = self.truth.mean_from_send_ns.filter(|&ns| ns > 0.0)?;
        Some(whole(self.end(side))? / truth - 1.0)
    }

    /// The same of the 99th percentile.
    pub fn p99_error(&self, side: Side) -> Option<f64> {
        let truth = self.truth.p99_from_send_ns.filter(|&ns| ns > 0.0)?;
        Some(self.p99_ns.get(&side)? / truth - 1.0)
    }

    /// The share of its time that is cut.
    pub fn cut(&self) -> f64 {
        let time = |stalled: bool| -> u64 {
            let those = self.slices.iter().filter(|s| s.stalled || !stalled);
            those.map(|s| s.length_ns).sum()
        };
        time(true) as f64 / time(false).max(1) as f64
    }
}

/// Whether an estimate is of all that a client feels.
fn is_whole(estimator: Estimator) -> bool {
    matches!(estimator, Estimator::TwoSided | Estimator::Matched)
}

/// The whole latency that an end estimated, ns.
pub fn whole(end: Option<&EndEstimate>) -> Option<f64> {
    end.filter(|end| is_whole(end.estimator))?.total_ns
}

/// Everything that was read during a climb.
#[derive(Debug)]
pub struct Recording {
    climb: Climb,
    plan: Plan,
    before_s: f64,
    pub intervals: Vec<LoadInterval>,
    pub client: Vec<Line>,
    pub server: Vec<Line>,
    /// What the agents decided, also in earlier climbs.
    pub decisions: Vec<Decision>,
    pub gaps: Vec<Gap>,
    /// CPU time that was used of so many CPUs, every so often.
    pub used: Vec<Used>,
    cpus: usize,
}

impl Recording {
    /// Of which nothing was read yet; so many climbs are before it by plan.
    pub fn new(climb: Climb, plan: Plan, before: u32, cpus: usize) -> Self {
        Self {
            climb,
            plan,
            before_s: f64::from(before) * plan.climb.as_secs_f64(),
            intervals: Vec::new(),
            client: Vec::new(),
            server: Vec::new(),
            decisions: Vec::new(),
            gaps: Vec::new(),
            used: Vec::new(),
            cpus,
        }
    }

    fn began_ns(&self) -> u64 {
        self.intervals.first().map_or(0, begin)
    }

    fn bin(&self, interval: &LoadInterval) -> usize {
        let middle = begin(interval) + interval.interval_ns / 2;
        self.plan.bin_at(middle.saturating_sub(self.began_ns()))
    }

    /// Whether everything about a bin has been read.
    pub fn is_complete(&self, bin: usize) -> bool {
        let of_bin = |i: &&LoadInterval| self.bin(i) == bin;
        let (Some(end), Some(last)) = (
            self.intervals.iter().rev().find(of_bin).map(|i| i.ts_ns),
            self.intervals.last(),
        ) else {
            return false;
        };
        let past = |lines: &[Line]| lines.last().is_some_and(|line| line.ts_ns >= end);
        let read = !watched(self.climb.arm) || (past(&self.client) && past(&self.server));
        let waited = last.ts_ns > end + PATIENCE.as_nanos() as u64;
        self.bin(last) > bin && (read || waited)
    }

    /// A bin's passage; `None` if the climb did not come to it.
    pub fn moment(&self, bin: usize) -> Option<Moment> {
        let of_bin = self.intervals.iter().filter(|i| self.bin(i) == bin);
        let intervals: Vec<_> = of_bin.collect();
        let (from, to) = (begin(intervals.first()?), intervals.last()?.ts_ns);
        let mut slices: Vec<_> = intervals.iter().map(|i| self.slice(i)).collect();
        let others = share(&self.used, self.cpus, from, to);
        if others.is_some_and(|share| share > OTHERS) {
            slices.iter_mut().for_each(|slice| slice.stalled = true);
        }
        let truth = merged(&intervals)?;
        let counted = intervals.iter().zip(&slices).filter(|(_, s)| !s.stalled);
        let counted = merged(&counted.map(|(i, _)| *i).collect::<Vec<_>>());
        let counted = counted.unwrap_or_else(|| truth.clone());
        let mean = counted.mean_from_intended_ns.unwrap_or(f64::INFINITY);
        let client = estimate(&self.client, Side::Client, from, to);
        let decided = self.decisions.iter().filter(|d| d.ts_ns <= to);
        let decided = decided
            .filter(|d| d.side == Side::Client)
            .map(Decision::nagle_on)
            .next_back()
            .map(|on| if on { Nagle::On } else { Nagle::Off });
        Some(Moment {
            at_s: self.before_s + to.saturating_sub(self.began_ns()) as f64 / 1e9,
            arm: self.climb.arm,
            pass: self.climb.pass,
            nagle: match watched(self.climb.arm) {
                true => client.as_ref().map(|end| end.nagle),
                false => decided,
            },
            offered_rps: self.plan.load_of(bin),
            saturated: saturated(counted.offered_rps, counted.achieved_rps, mean, 0),
            truth,
            client,
            server: estimate(&self.server, Side::Server, from, to),
            p99_ns: [Side::Client, Side::Server]
                .into_iter()
                .filter_map(|side| Some((side, self.p99(side, from, to)?)))
                .collect(),
            cost: self.cost(from, to),
            others,
            slices,
        })
    }

    /// The lines of this time, and how much of it each is of.
    fn lines(&self, from: u64, to: u64) -> impl Iterator<Item = (&Line, u64)> {
        let all = self.client.iter().chain(&self.server);
        all.filter_map(move |line| {
            let begin = line.ts_ns.saturating_sub(line.interval_ns).max(from);
            let time = line.ts_ns.min(to).saturating_sub(begin);
            (time > 0).then_some((line, time))
        })
    }

    fn p99(&self, side: Side, from: u64, to: u64) -> Option<f64> {
        let known = |line: &Line| {
            let ours = line.side == side && is_whole(line.estimator);
            let p99 = line
                .tails_ns
                .p99
                .filter(|_| ours && line.matched >= ENOUGH)?;
            Some(p99 as f64)
        };
        let all = self.lines(from, to);
        median(&all.filter_map(|(line, _)| known(line)).collect::<Vec<_>>())
    }

    fn cost(&self, from: u64, to: u64) -> Option<f64> {
        let (spent, time) = self.lines(from, to).fold((0.0, 0), |all, (line, time)| {
            (all.0 + line.cost * time as f64, all.1 + time)
        });
        (time > 0).then(|| spent / time as f64)
    }

    fn slice(&self, interval: &LoadInterval) -> Slice {
        let (from, to) = (begin(interval), interval.ts_ns);
        let with_backlog = |gap: &Gap| Gap {
            from: gap.from,
            to: gap.to + (gap.to - gap.from) * BACKLOG,
        };
        let cut: Vec<_> = self.gaps.iter().map(with_backlog).collect();
        let estimate = estimate(&self.client, Side::Client, from, to);
        Slice {
            length_ns: interval.interval_ns,
            mean_ns: interval.mean_from_intended_ns,
            estimate_ns: whole(estimate.as_ref()),
            stalled: lost(&cut, from, to) > 0,
        }
    }
}

fn begin(interval: &LoadInterval) -> u64 {
    interval.ts_ns.saturating_sub(interval.interval_ns)
}

fn estimate(lines: &[Line], side: Side, from: u64, to: u64) -> Option<EndEstimate> {
    estimate_across(lines, side, Unit::Sends, from, to)
}

/// Intervals as one. Its percentiles are the medians of theirs.
fn merged(intervals: &[&LoadInterval]) -> Option<LoadInterval> {
    let last = intervals.last()?;
    let time: f64 = intervals.iter().map(|i| i.interval_ns as f64).sum();
    let mean = |value: fn(&LoadInterval) -> Option<f64>, weight: fn(&LoadInterval) -> f64| {
        let known = intervals.iter().filter_map(|i| {
            let weight = weight(i) * i.interval_ns as f64;
            Some((value(i)? * weight, weight))
        });
        let (sum, weights) = known.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
        (weights > 0.0).then(|| sum / weights)
    };
    let middle = |value: fn(&LoadInterval) -> Option<f64>| {
        median(
            &intervals
                .iter()
                .filter_map(|i| value(i))
                .collect::<Vec<_>>(),
        )
    };
    let answered = |i: &LoadInterval| i.achieved_rps;
    Some(LoadInterval {
        ts_ns: last.ts_ns,
        interval_ns: time as u64,
        phase: last.phase,
        offered_rps: mean(|i| Some(i.offered_rps), |_| 1.0)?,
        achieved_rps: mean(|i| Some(i.achieved_rps), |_| 1.0)?,
        mean_from_intended_ns: mean(|i| i.mean_from_intended_ns, answered),
        mean_from_send_ns: mean(|i| i.mean_from_send_ns, answered),
        p50_ns: middle(|i| i.p50_ns),
        p99_ns: middle(|i| i.p99_ns),
        p99_from_send_ns: middle(|i| i.p99_from_send_ns),
    })
}

#[cfg(test)]
mod tests {
    use super::super::plan::SLICE;
    use super::super::samples::{ZERO, interval, line, moment, recording};
    use super::*;
    use crate::decisions::samples::decision;
    use batchwise_core::tune::report::{DecisionEvent, InForce};

    const MS: u64 = 1_000_000;

    /// A climb of which so many slices were read.
    fn read(arm: Arm, slices: u64) -> Recording {
        let mut recording = recording(arm, 0);
        let end = |number: u64| ZERO + (number + 1) * SLICE.as_nanos() as u64;
        recording.intervals = (0..slices).map(|n| interval(end(n), 35e3, 2e4)).collect();
        recording
    }

    #[test]
    fn a_passage_waits_for_lines_past_its_end_but_not_forever() {
        let mut recording = read(Arm::Nodelay, 13);
        let end = recording.intervals[11].ts_ns;
        recording.client.push(line(Side::Client, end, 2e4));
        recording.server.push(line(Side::Server, end - 1, 2e4));
        assert!(!recording.is_complete(0));
        recording.server.push(line(Side::Server, end + 1, 2e4));
        assert!(recording.is_complete(0) && !recording.is_complete(1));
        recording.server.clear();
        assert!(!recording.is_complete(0));
        recording.intervals = read(Arm::Nodelay, 29).intervals;
        assert!(recording.is_complete(0), "the server's watcher is silent");
        let found = recording.moment(0).unwrap();
        assert!(found.server.is_none() && found.error(Side::Server).is_none());
        assert_eq!(recording.moment(5), None, "the climb has not come there");
    }

    #[test]
    fn a_stall_cuts_its_slices_and_those_in_which_its_backlog_drains() {
        let mut recording = read(Arm::Nagle, 12);
        // 15 ms, and four times as long for its backlog: up to 285 ms
        let (from, to) = (ZERO + 210 * MS, ZERO + 225 * MS);
        recording.gaps.push(Gap { from, to });
        let found = recording.moment(0).unwrap();
        let stalled: Vec<_> = (0..12).filter(|&i| found.slices[i].stalled).collect();
        assert_eq!(stalled, [4, 5], "up to 300 ms");
        assert!((found.cut() - 2.0 / 12.0).abs() < 1e-9);
    }

    #[test]
    fn a_stall_makes_no_load_too_much_but_a_collapse_does() {
        let mut recording = read(Arm::Nodelay, 12);
        recording.intervals[3].mean_from_intended_ns = Some(500e6);
        assert!(recording.moment(0).unwrap().saturated);
        let at = recording.intervals[3].ts_ns;
        let (from, to) = (at - 30 * MS, at - 20 * MS);
        recording.gaps.push(Gap { from, to });
        let found = recording.moment(0).unwrap();
        assert!(!found.saturated && found.truth.mean_from_intended_ns > Some(40e6));
    }

    #[test]
    fn other_work_cuts_a_passage_whatever_the_arm_and_our_own_never_does() {
        for arm in Arm::ALL {
            let mut recording = read(arm, 12);
            let used = |own_ms: u64| {
                let second = |s: u64| Used {
                    ts_ns: ZERO - 1000 * MS + s * 1000 * MS,
                    all: Duration::from_millis(2000 * s),
                    own: Duration::from_millis(own_ms * s),
                };
                vec![second(0), second(2)]
            };
            let (own, others) = (used(1900), used(1500));
            recording.used = own;
            assert_eq!(recording.moment(0).unwrap().cut(), 0.0);
            recording.used = others;
            let found = recording.moment(0).unwrap();
            assert_eq!((found.cut(), found.others), (1.0, Some(0.25)));
        }
    }

    #[test]
    fn the_error_is_signed_and_only_of_an_estimate_of_the_whole() {
        let mut found = moment(Arm::Nodelay, 0, 2, 2e4);
        assert!((found.error(Side::Server).unwrap() + 0.1).abs() < 1e-3);
        assert_eq!((found.offered_rps, found.at_s), (95e3, 1.8));
        assert!((found.p99_error(Side::Server).unwrap() + 0.1).abs() < 1e-2);
        found.client.as_mut().unwrap().estimator = Estimator::Local;
        assert_eq!(found.error(Side::Client), None);
    }

    #[test]
    fn percentiles_of_few_requests_are_left_out_and_cost_weighs_by_time() {
        let mut recording = read(Arm::Nodelay, 12);
        let end = |slice: usize| recording.intervals[slice].ts_ns;
        let mut lines = [0, 1, 2].map(|slice| line(Side::Client, end(slice), 2e4));
        lines[1].tails_ns.p99 = Some(90_000);
        (lines[2].tails_ns.p99, lines[2].matched) = (Some(900_000), 99);
        lines[2].cost = 0.012;
        recording.client.extend(lines);
        let found = recording.moment(0).unwrap();
        assert_eq!(found.p99_ns, [(Side::Client, 75_000.0)].into());
        assert!((found.cost.unwrap() - 0.01).abs() < 1e-9);
    }

    #[test]
    fn while_batchwise_tunes_a_passage_has_what_was_decided_and_waits_for_no_lines() {
        let mut recording = read(Arm::Batchwise, 13);
        let mut adopted = decision(0.0, DecisionEvent::Adopt, InForce::On);
        adopted.ts_ns = recording.intervals[5].ts_ns;
        let mut later = decision(0.0, DecisionEvent::Adopt, InForce::Off);
        later.ts_ns = recording.intervals[12].ts_ns;
        recording.decisions = vec![adopted, later];
        assert!(recording.is_complete(0));
        let found = recording.moment(0).unwrap();
        assert_eq!((found.nagle, found.client), (Some(Nagle::On), None));
    }
}
