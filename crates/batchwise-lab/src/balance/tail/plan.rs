//! What is measured: loads, rounds, durations, and what the servers are like.

use std::time::Duration;

use serde::Serialize;

use super::{Arm, Policy};

/// A trace's whole share is so much of the CPU that all four servers share: together they need
/// less than all of it, so that none waits for another.
pub const SCALE: f64 = 0.12;
/// The share of equal servers: the mean of the traces.
pub const EQUAL_SHARE: f64 = 0.68;
/// Pages on a connection, mean.
pub const PAGES: u32 = 2;
/// Loads of the part with a connection for each page, percent.
const VISIT_LOADS: [u32; 2] = [50, 80];
/// Loads of the part with equal servers, percent.
const EQUAL_LOADS: [u32; 2] = [50, 80];
/// Loads at which parts of the policy are tried alone.
const PARTS: [u32; 2] = [50, 80];

/// What the servers are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Servers {
    /// The speed of each follows a trace of its own.
    Traced,
    /// All have the same speed all the time.
    Equal,
}

impl Servers {
    /// As in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Traced => "traced",
            Self::Equal => "equal",
        }
    }
}

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Rounds: each runs every arm once.
    pub rounds: u32,
    /// Percent of the capacity.
    pub loads: &'static [u32],
    /// Pairs with equal servers in each round.
    equal_pairs: u32,
    /// How long capacity is looked for.
    pub calibration: Duration,
    traced: Duration,
    equal: Duration,
}

impl Extent {
    /// Of a quick run, or of a full one.
    pub fn new(quick: bool) -> Self {
        let seconds = Duration::from_secs;
        match quick {
            true => Self {
                rounds: 1,
                loads: &[50, 80],
                equal_pairs: 1,
                calibration: seconds(4),
                traced: seconds(20),
                equal: seconds(12),
            },
            false => Self {
                rounds: 3,
                loads: &[30, 50, 65, 80],
                equal_pairs: 2,
                calibration: seconds(10),
                traced: seconds(20),
                equal: seconds(12),
            },
        }
    }

    /// How long a run takes.
    pub fn duration(&self, servers: Servers) -> Duration {
        match servers {
            Servers::Traced => self.traced,
            Servers::Equal => self.equal,
        }
    }

    /// The runs of a round.
    pub fn arms(&self) -> Vec<Arm> {
        let traced = self
            .loads
            .iter()
            .map(|&load| (Servers::Traced, PAGES, load, 0));
        let visits = VISIT_LOADS.map(|load| (Servers::Traced, 1, load, 0));
        let equal = EQUAL_LOADS.iter().flat_map(|&load| {
            let pairs = 0..self.equal_pairs;
            pairs.map(move |pair| (Servers::Equal, PAGES, load, pair))
        });
        let all = |(servers, pages, load_percent, pair)| {
            let parts = self.rounds > 1 && servers == Servers::Traced && pages == PAGES;
            let parts = parts && PARTS.contains(&load_percent);
            let policies = Policy::ALL.into_iter();
            let wanted = policies.filter(move |policy| match policy {
                Policy::Static | Policy::Latency => true,
                Policy::Choices | Policy::Weights => parts,
            });
            wanted.map(move |policy| Arm {
                servers,
                pages,
                load_percent,
                pair,
                policy,
            })
        };
        traced.chain(visits).chain(equal).flat_map(all).collect()
    }
}

/// Of what is drawn at random in a run: the same for all policies, different otherwise.
pub fn seed(round: u32, arm: Arm) -> u64 {
    let equal = u64::from(arm.servers == Servers::Equal) * 5;
    let visits = u64::from(arm.pages == 1) * 3;
    let part = equal + visits + u64::from(arm.pair);
    u64::from(1 + round) * 10_000 + u64::from(arm.load_percent) * 10 + part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_policies_get_the_same_servers_and_pages_and_every_pair_others() {
        let arms = Extent::new(false).arms();
        let seeds = |policy| -> Vec<u64> {
            let of_policy = arms.iter().filter(move |arm| arm.policy == policy);
            of_policy.map(|&arm| seed(0, arm)).collect()
        };
        let first = seeds(Policy::Static);
        assert_eq!(first, seeds(Policy::Latency));
        let second = arms.iter().filter(|arm| arm.policy == Policy::Static);
        let mut all: Vec<u64> = second.map(|&arm| seed(1, arm)).collect();
        all.extend(&first);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2 * first.len());
    }

    #[test]
    fn servers_at_full_speed_leave_some_of_their_cpu() {
        assert!(SCALE * f64::from(batchwise_testbed::segment::SERVERS) < 0.95);
    }
}
