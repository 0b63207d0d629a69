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

/// One client.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClientSummary {
    /// Mean latency from the intended send time, median over rounds, ns; by arm.
    pub mean_ns: BTreeMap<Arm, f64>,
    /// Nagle's latency over TCP_NODELAY's: the median of the rounds' ratios.
    pub nagle_over_nodelay: Option<f64>,
    /// The same with its 95 % interval.
    pub nagle_interval: Option<Ratio>,
    /// The static arm with the lower latency.
    pub better: Option<Arm>,
    /// Batchwise's latency over that arm's.
    pub batchwise_over_better: Option<f64>,
    /// The same with its 95 % interval.
    pub batchwise_interval: Option<Ratio>,
    /// Whether batchwise was within 5 % of that arm.
    pub verdict: Verdict,
    /// For how much of the measured time Nagle's algorithm worked with batchwise: the median.
    pub nagle_share: Option<f64>,
    /// Whether that was the better arm for most of the time.
    pub chose_right: Option<bool>,
}

/// The experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Whether the better arm differs.
    pub flips: Option<bool>,
    /// The same, if the intervals of both clients tell which arm is better.
    pub flips_verdict: Verdict,
    /// Whether batchwise had the better arm for most of the time with both clients.
    pub chose_right: Option<bool>,
    /// The same, likewise.
    pub chose_right_verdict: Verdict,
    /// By client.
    pub per_client: BTreeMap<Client, ClientSummary>,
}

impl Summary {
    /// Of these points.
    pub fn of(points: &[Point]) -> Self {
        let of_client = |client| (client, ClientSummary::of(&of(points, client)));
        let per_client = BTreeMap::from(Client::BOTH.map(of_client));
        let [cheap, expensive] = Client::BOTH.map(|client| &per_client[&client]);
        let right = cheap.chose_right.zip(expensive.chose_right);
        let flips = cheap.better.zip(expensive.better).map(|(a, b)| a != b);
        let chose_right = right.map(|(cheap, expensive)| cheap && expensive);
        let told = cheap.is_better_known() && expensive.is_better_known();
        let verdict = |found: Option<bool>| match found.filter(|_| told) {
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

/// The points of a client.
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

    fn points(cheap: [f64; 3], expensive: [f64; 3], shares: [f64; 2]) -> Vec<Point> {
        let mut points = Vec::new();
        for (client, us, share) in [
            (Client::Cheap, cheap, shares[0]),
            (Client::Expensive, expensive, shares[1]),
        ] {
            for (arm, us) in Arm::ALL.into_iter().zip(us) {
                let share = (arm == Arm::Batchwise).then_some(share);
                points.push(point(client, arm, 0, us, share));
            }
        }
        points
    }

    #[test]
    fn opposite_answers_of_which_batchwise_has_both() {
        let (cheap, expensive) = ([60.0, 50.0, 51.0], [200.0, 9000.0, 210.0]);
        let summary = Summary::of(&points(cheap, expensive, [0.9, 0.1]));
        let found = (summary.flips, summary.chose_right);
        assert_eq!(found, (Some(true), Some(true)));
        let cheap = &summary.per_client[&Client::Cheap];
        assert_eq!(cheap.better, Some(Arm::Nagle));
        assert!((cheap.batchwise_over_better.unwrap() - 1.02).abs() < 1e-9);
    }

    #[test]
    fn one_wrong_choice_is_not_right() {
        let (cheap, expensive) = ([60.0, 50.0, 60.0], [200.0, 400.0, 210.0]);
        let summary = Summary::of(&points(cheap, expensive, [0.1, 0.1]));
        let found = (summary.flips, summary.chose_right);
        assert_eq!(found, (Some(true), Some(false)));
    }

    #[test]
    fn the_same_answer_for_both_is_no_flip_and_no_tuning_is_not_known() {
        let mut points = points([50.0, 60.0, 0.0], [200.0, 400.0, 0.0], [0.0, 0.0]);
        points.retain(|p| p.arm != Arm::Batchwise);
        let summary = Summary::of(&points);
        assert_eq!((summary.flips, summary.chose_right), (Some(false), None));
    }
    #[test]
    fn fewer_than_fifteen_rounds_decide_nothing() {
        let one = points([60.0, 50.0, 51.0], [200.0, 400.0, 210.0], [0.9, 0.1]);
        let rounds = |count| {
            let round = |round| one.iter().map(move |p| Point { round, ..p.clone() });
            Summary::of(&(0..count).flat_map(round).collect::<Vec<_>>())
        };
        let verdicts = |s: &Summary| (s.flips_verdict, s.chose_right_verdict);
        let few = rounds(14);
        assert_eq!(verdicts(&few), (Verdict::Undecided, Verdict::Undecided));
        let enough = rounds(15);
        assert_eq!(verdicts(&enough), (Verdict::Met, Verdict::Met));
        assert_eq!(enough.per_client[&Client::Cheap].verdict, Verdict::Met);
    }
}
