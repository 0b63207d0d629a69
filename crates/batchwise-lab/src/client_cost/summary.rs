//! What the points say: whether the better arm differs between the clients, and whether batchwise
//! chose it for both.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Client, Point};
use crate::arm::{self, Arm};
use crate::engine::{Ratio, Verdict, pairs};
use crate::stats::median;

/// How much worse than the better static arm batchwise may be.
const BAR: f64 = 1.05;

/// One client. Intervals are of 95 %.
#[derive(Debug, Serialize)]
pub struct ClientSummary {
    /// Mean latency from the intended send time, median over rounds, ns; by arm.
    pub mean_ns: BTreeMap<Arm, f64>,
    /// Nagle's latency over TCP_NODELAY's: the median of the rounds' ratios.
    pub nagle_over_nodelay: Option<f64>,
    pub nagle_interval: Option<Ratio>,
    /// The static arm with the lower latency.
    pub better: Option<Arm>,
    /// Batchwise's latency over that arm's.
    pub batchwise_over_better: Option<f64>,
    pub batchwise_interval: Option<Ratio>,
    /// Whether batchwise was within 5 % of that arm.
    pub verdict: Verdict,
    /// For how much of the measured time Nagle's algorithm worked with batchwise: the median.
    pub nagle_share: Option<f64>,
    /// Whether that was the better arm for most of the time.
    pub chose_right: Option<bool>,
}

/// The experiment.
#[derive(Debug, Serialize)]
pub struct Summary {
    pub flips: Option<bool>,
    /// The same, if the intervals of both clients tell which arm is better.
    pub flips_verdict: Verdict,
    /// Whether batchwise had the better arm for most of the time with both clients.
    pub chose_right: Option<bool>,
    /// The same, likewise.
    pub chose_right_verdict: Verdict,
    pub per_client: BTreeMap<Client, ClientSummary>,
}

impl Summary {
    pub fn of(points: &[Point]) -> Self {
        let of_client = |client| (client, ClientSummary::of(&of(points, client)));
        let per_client = BTreeMap::from(Client::BOTH.map(of_client));
        let [cheap, expensive] = Client::BOTH.map(|client| &per_client[&client]);
        let right = cheap.chose_right.zip(expensive.chose_right);
        let flips = cheap.better.zip(expensive.better).map(|(a, b)| a != b);
        let chose_right = right.map(|(cheap, expensive)| cheap && expensive);
        let known = cheap.is_better_known() && expensive.is_better_known();
        let verdict = |found: Option<bool>| match found.filter(|_| known) {
            Some(true) => Verdict::Met,
            Some(false) => Verdict::Missed,
            None => Verdict::Undecided,
        };
        Self {
            flips,
            flips_verdict: verdict(flips),
            chose_right,
            chose_right_verdict: verdict(chose_right),
            per_client,
        }
    }
}

pub fn of(points: &[Point], client: Client) -> Vec<&Point> {
    points.iter().filter(|p| p.client == client).collect()
}

/// Latencies of two arms in each round that has both.
pub fn latencies(points: &[&Point], above: Arm, below: Arm) -> Vec<(f64, f64)> {
    pairs(points, |p| (p.round, p.arm), above, below, |p| p.latency())
}

impl ClientSummary {
    fn of(points: &[&Point]) -> Self {
        let ratio = |above, below| Ratio::of(&latencies(points, above, below));
        let nagle = ratio(Arm::Nagle, Arm::Nodelay);
        let better = nagle.map(|ratio| match ratio.median < 1.0 {
            true => Arm::Nagle,
            false => Arm::Nodelay,
        });
        let batchwise = better.and_then(|better| ratio(Arm::Batchwise, better));
        let tuned = points.iter().filter(|p| p.arm == Arm::Batchwise);
        let nagle_share = median(&tuned.filter_map(|p| p.nagle_share).collect::<Vec<_>>());
        let chosen = better.zip(nagle_share);
        Self {
            mean_ns: arm::medians(points, |p| (p.arm, p.latency())),
            nagle_over_nodelay: nagle.map(|ratio| ratio.median),
            nagle_interval: nagle,
            better,
            batchwise_over_better: batchwise.map(|ratio| ratio.median),
            batchwise_interval: batchwise,
            verdict: Verdict::at_most(batchwise.as_ref(), BAR),
            nagle_share,
            chose_right: chosen.map(|(better, share)| (better == Arm::Nagle) == (share > 0.5)),
        }
    }

    /// Whether the interval of both arms' ratio is on one side of 1.
    fn is_better_known(&self) -> bool {
        Verdict::at_most(self.nagle_interval.as_ref(), 1.0) != Verdict::Undecided
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use batchwise_testbed::load::samples::window;

    pub fn point(client: Client, arm: Arm, round: u32, us: f64, share: Option<f64>) -> Point {
        Point {
            client,
            arm,
            round,
            saturated: us > 5000.0,
            window: window(20_000.0, us),
            nagle_share: share,
        }
    }

    /// Of each client the means of its arms, µs, and its share of Nagle with batchwise.
    type Clients<'a> = [(&'a [f64], f64); 2];
    const OPPOSITE: Clients<'_> = [(&[60.0, 50.0, 51.0], 0.9), (&[200.0, 9000.0, 210.0], 0.1)];

    fn points(clients: Clients<'_>) -> Vec<Point> {
        let of_client = |(client, (means, share)): (Client, (&[f64], f64))| {
            let arms = Arm::ALL.into_iter().zip(means);
            let share = move |arm| (arm == Arm::Batchwise).then_some(share);
            let points = arms.map(move |(arm, &us)| point(client, arm, 0, us, share(arm)));
            points.collect::<Vec<_>>()
        };
        let clients = Client::BOTH.into_iter().zip(clients);
        clients.flat_map(of_client).collect()
    }

    #[test]
    fn the_answer_flips_or_not_and_batchwise_chose_right_for_both_or_not() {
        for (clients, flips, chose_right) in [
            (OPPOSITE, Some(true), Some(true)),
            (
                [(&[60.0, 50.0, 60.0], 0.1), OPPOSITE[1]],
                Some(true),
                Some(false),
            ),
            // no flip, and no tuning
            (
                [(&[50.0, 60.0], 0.0), (&[200.0, 400.0], 0.0)],
                Some(false),
                None,
            ),
        ] {
            let summary = Summary::of(&points(clients));
            assert_eq!((summary.flips, summary.chose_right), (flips, chose_right));
        }
    }

    #[test]
    fn batchwise_is_compared_with_the_better_arm() {
        let cheap = &Summary::of(&points(OPPOSITE)).per_client[&Client::Cheap];
        assert_eq!(cheap.better, Some(Arm::Nagle));
        assert!((cheap.batchwise_over_better.unwrap() - 1.02).abs() < 1e-9);
    }

    #[test]
    fn fewer_than_fifteen_rounds_decide_nothing() {
        let one = points(OPPOSITE);
        let rounds = |count| {
            let round = |round| one.iter().map(move |p| Point { round, ..p.clone() });
            Summary::of(&(0..count).flat_map(round).collect::<Vec<_>>())
        };
        let verdicts = |count| {
            let s: Summary = rounds(count);
            let cheap = s.per_client[&Client::Cheap].verdict;
            [s.flips_verdict, s.chose_right_verdict, cheap]
        };
        assert_eq!(verdicts(14), [Verdict::Undecided; 3]);
        assert_eq!(verdicts(15), [Verdict::Met; 3]);
    }
}
