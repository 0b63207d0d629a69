//! What the points say: whether the better arm differs between the clients, and whether batchwise
//! chose it for both.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Client, Point};
use crate::arm::Arm;
use crate::engine::pairs;
use crate::stats::median;

/// One client.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClientSummary {
    /// Mean latency from the intended send time, median over rounds, ns; by arm.
    pub mean_ns: BTreeMap<Arm, f64>,
    /// Nagle's latency over TCP_NODELAY's: the median of the rounds' ratios.
    pub nagle_over_nodelay: Option<f64>,
    /// The static arm with the lower latency.
    pub better: Option<Arm>,
    /// Batchwise's latency over that arm's.
    pub batchwise_over_better: Option<f64>,
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
    /// Whether batchwise had the better arm for most of the time with both clients.
    pub chose_right: Option<bool>,
    /// By client.
    pub per_client: BTreeMap<Client, ClientSummary>,
}

impl Summary {
    /// Of these points.
    pub fn of(points: &[Point]) -> Self {
        let per_client = Client::BOTH.map(|client| {
            let of_it: Vec<_> = points.iter().filter(|p| p.client == client).collect();
            (client, client_summary(&of_it))
        });
        let per_client = BTreeMap::from(per_client);
        let [cheap, expensive] = Client::BOTH.map(|client| &per_client[&client]);
        let right = cheap.chose_right.zip(expensive.chose_right);
        Self {
            flips: cheap.better.zip(expensive.better).map(|(a, b)| a != b),
            chose_right: right.map(|(cheap, expensive)| cheap && expensive),
            per_client,
        }
    }
}

fn client_summary(points: &[&Point]) -> ClientSummary {
    let of = |arm: Arm| points.iter().filter(move |p| p.arm == arm);
    let means = |arm| median(&of(arm).map(|p| p.latency()).collect::<Vec<_>>());
    let ratio = |above: Arm, below: Arm| {
        let pairs = pairs(points, |p| (p.round, p.arm), above, below, |p| p.latency());
        let ratio = |&(above, below): &(f64, f64)| {
            (above.is_finite() || below.is_finite()).then(|| above / below)
        };
        median(&pairs.iter().filter_map(ratio).collect::<Vec<_>>())
    };
    let nagle_over_nodelay = ratio(Arm::Nagle, Arm::Nodelay);
    let better = nagle_over_nodelay.map(|ratio| match ratio < 1.0 {
        true => Arm::Nagle,
        false => Arm::Nodelay,
    });
    let shares: Vec<f64> = of(Arm::Batchwise).filter_map(|p| p.nagle_share).collect();
    let nagle_share = median(&shares);
    ClientSummary {
        mean_ns: Arm::ALL
            .into_iter()
            .filter_map(|arm| Some((arm, means(arm)?)))
            .collect(),
        nagle_over_nodelay,
        better,
        batchwise_over_better: better.and_then(|better| ratio(Arm::Batchwise, better)),
        nagle_share,
        chose_right: better
            .zip(nagle_share)
            .map(|(better, share)| (better == Arm::Nagle) == (share > 0.5)),
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
        let summary = Summary::of(&points(
            [60.0, 50.0, 51.0],
            [200.0, 9000.0, 210.0],
            [0.9, 0.1],
        ));
        assert_eq!(
            (summary.flips, summary.chose_right),
            (Some(true), Some(true))
        );
        let cheap = &summary.per_client[&Client::Cheap];
        assert_eq!(cheap.better, Some(Arm::Nagle));
        assert!((cheap.batchwise_over_better.unwrap() - 1.02).abs() < 1e-9);
    }

    #[test]
    fn one_wrong_choice_is_not_right() {
        let summary = Summary::of(&points(
            [60.0, 50.0, 60.0],
            [200.0, 400.0, 210.0],
            [0.1, 0.1],
        ));
        assert_eq!(
            (summary.flips, summary.chose_right),
            (Some(true), Some(false))
        );
    }

    #[test]
    fn the_same_answer_for_both_is_no_flip_and_no_tuning_is_not_known() {
        let mut points = points([50.0, 60.0, 0.0], [200.0, 400.0, 0.0], [0.0, 0.0]);
        points.retain(|p| p.arm != Arm::Batchwise);
        let summary = Summary::of(&points);
        assert_eq!((summary.flips, summary.chose_right), (Some(false), None));
    }
}
