//! What finds a place in the queue: drop-tail, the paper's algorithm, or bursts whole or not at all. All
//! three see a queue through the same numbers.

use batchwise_core::burst::algorithm1::{Algorithm1, Tagged};
use batchwise_core::burst::{Admission, Packet, Rules, Sender, Verdict, mark};
use clap::ValueEnum;
use serde::Serialize;

use super::queue::Length;
use crate::burst::limit::Limit;
use crate::burst::queue::FEWEST;

/// What finds a place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Admit {
    /// Whatever has room (drop-tail); marks are not looked at
    Off,
    /// The paper's Algorithm 1, as published: to compare with
    Published,
    /// Marked bursts whole or not at all
    Bursts,
}

/// Sources of bursts that are known at a time, and bursts that are under way.
pub const SOURCES: usize = 4096;
/// An epoch of Algorithm 1: twice the largest round-trip time, which is taken to be 100 ms.
const EPOCH: u64 = 200_000_000;

/// Segments of the longest burst that a mark tells of.
const LONGEST_BURST: u32 = mark::CLASSES[mark::CLASSES.len() - 1] as u32;

/// Of the longest kind that such a queue holds.
fn packets(limit: Limit, longest: u32) -> u32 {
    match limit {
        Limit::Packets(packets) => packets,
        Limit::Bytes(bytes) => bytes / longest,
    }
}

/// Whether the queue is long enough for what is asked of it; otherwise the remedy.
pub fn check(admit: Admit, limit: Limit, longest: u32) -> Result<(), String> {
    let (least, why) = match admit {
        Admit::Off => (1, "has no room for a packet"),
        Admit::Bursts => (FEWEST, "has no room for bursts"),
        Admit::Published => (
            LONGEST_BURST + 1,
            "lets nothing in: Algorithm 1 keeps the room of its longest burst free",
        ),
    };
    match packets(limit, longest) {
        held if held >= least => Ok(()),
        held => Err(format!(
            "--limit: a queue of {held} packets of {longest} bytes {why}. Give {least}p, or {}, or more",
            least * longest
        )),
    }
}

/// A discipline and its state.
pub struct Discipline {
    rule: Rule,
    limit: Limit,
    /// Bytes of the longest frame.
    longest: u32,
}

enum Rule {
    Off,
    Published(Box<Algorithm1>),
    Bursts(Box<Admission>),
}

impl Discipline {
    /// For a queue with this limit before a link of so many bits a second.
    pub fn new(admit: Admit, limit: Limit, longest: u32, rate: u64) -> Self {
        let packets = packets(limit, longest);
        let rule = match admit {
            Admit::Off => Rule::Off,
            Admit::Published => {
                let algorithm = Algorithm1::new(packets, LONGEST_BURST, EPOCH);
                Rule::Published(Box::new(algorithm))
            }
            Admit::Bursts => {
                let rules = Rules::new(Self::bytes(limit, longest), rate);
                Rule::Bursts(Box::new(Admission::new(rules, SOURCES)))
            }
        };
        Self {
            rule,
            limit,
            longest,
        }
    }

    /// A limit in packets is one in bytes for packets that are all of the longest kind.
    fn bytes(limit: Limit, longest: u32) -> u32 {
        match limit {
            Limit::Packets(packets) => packets * longest,
            Limit::Bytes(bytes) => bytes,
        }
    }

    /// What a frame of so many bytes counts for, and what the queue counts for.
    fn weigh(&self, bytes: u32, queued: Length) -> (u32, u32) {
        match self.limit {
            Limit::Packets(_) => (self.longest, queued.packets * self.longest),
            Limit::Bytes(_) => (bytes, queued.bytes),
        }
    }

    /// Decides about a frame that arrives at `now`, ns.
    pub fn admit(
        &mut self,
        now: u64,
        burst: Option<(Sender, u32)>,
        bytes: u32,
        queued: Length,
    ) -> Verdict {
        let (bytes, full) = self.weigh(bytes, queued);
        let fits =
            u64::from(full) + u64::from(bytes) <= Self::bytes(self.limit, self.longest).into();
        match &mut self.rule {
            Rule::Off if fits => Verdict::Taken,
            Rule::Off => Verdict::Full,
            Rule::Published(algorithm) => match fits {
                true => published(algorithm, now, burst, queued.packets),
                false => Verdict::Full, // the algorithm counts packets
            },
            Rule::Bursts(admission) => {
                let (sender, segments) = match burst {
                    Some((sender, segments)) => (sender, Some(segments)),
                    None => (Sender { source: 0, flow: 0 }, None),
                };
                admission.admit(now, sender, Packet { bytes, segments }, full)
            }
        }
    }

    /// Bytes that are promised to bursts and have not come. Of Algorithm 1 they are not told: what it
    /// counts as reserved is never given back.
    pub fn reserved(&mut self, now: u64) -> u32 {
        match &mut self.rule {
            Rule::Off | Rule::Published(_) => 0,
            Rule::Bursts(admission) => admission.reserved(now),
        }
    }
}

/// Algorithm 1. A mark names no super-packet: a flow has one at a time. It names no first packet either:
/// one that was refused is asked for again by its next packet.
fn published(
    algorithm: &mut Algorithm1,
    now: u64,
    burst: Option<(Sender, u32)>,
    queued: u32,
) -> Verdict {
    let (key, length) = burst.map_or((0, 1), |(sender, segments)| (sender.flow, segments));
    let first = length > 1 && !algorithm.knows(key);
    let tagged = Tagged {
        key,
        length,
        first,
        last: false,
    };
    let is_in = algorithm.admit(now, tagged, queued);
    match (is_in, length > 1, first) {
        (true, false, _) => Verdict::Taken,
        (true, true, true) => Verdict::Admitted,
        (true, true, false) => Verdict::Promised,
        (false, false, _) => Verdict::Full,
        (false, true, true) => Verdict::Refused,
        (false, true, false) => Verdict::Denied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: u32 = 1518;
    const GBIT: u64 = 1_000_000_000;

    fn sender(n: u64) -> Sender {
        Sender { source: n, flow: n }
    }

    /// Puts in what is admitted; nothing leaves.
    fn fill(admit: Admit, limit: Limit, arrivals: &[(Option<(Sender, u32)>, u32)]) -> Length {
        let mut discipline = Discipline::new(admit, limit, LONGEST, GBIT);
        let mut queued = Length::default();
        for (now, (burst, bytes)) in arrivals.iter().enumerate() {
            let verdict = discipline.admit(now as u64, *burst, *bytes, queued);
            if verdict.is_in() {
                queued.packets += 1;
                queued.bytes += bytes;
            }
        }
        queued
    }

    #[test]
    fn no_discipline_exceeds_a_limit_in_packets_or_bytes_whatever_comes() {
        let mut arrivals = vec![(None, 60), (None, 1518)];
        for n in 0..40 {
            arrivals.extend([(Some((sender(n), 10)), 1518); 10]);
            arrivals.extend([(None, 200); 3]);
            arrivals.extend([(Some((sender(n), 64)), 60); 5]);
        }
        for admit in Admit::value_variants() {
            let packets = fill(*admit, Limit::Packets(100), &arrivals).packets;
            assert!((1..=100).contains(&packets), "{admit:?}: {packets}");
            let bytes = fill(*admit, Limit::Bytes(100 * LONGEST), &arrivals).bytes;
            assert!((1..=100 * LONGEST).contains(&bytes), "{admit:?}: {bytes}");
        }
    }

    #[test]
    fn a_queue_that_would_let_nothing_in_is_refused_with_one_that_does() {
        for admit in Admit::value_variants() {
            let refused = check(*admit, Limit::Bytes(LONGEST - 1), LONGEST).expect_err("no room");
            let least = refused
                .split("Give ")
                .nth(1)
                .and_then(|rest| rest.split("p, or ").next());
            let least: u32 = least.and_then(|n| n.parse().ok()).expect("a remedy");
            assert!(
                refused.contains(&format!("or {}, or", least * LONGEST)),
                "{refused}"
            );
            for limit in [Limit::Packets(least), Limit::Bytes(least * LONGEST)] {
                assert_eq!(check(*admit, limit, LONGEST), Ok(()));
                assert_eq!(
                    fill(*admit, limit, &[(None, LONGEST)]).packets,
                    1,
                    "{admit:?}"
                );
                let burst = fill(*admit, limit, &[(Some((sender(1), 2)), LONGEST); 2]);
                assert_eq!(burst.packets, least.min(2), "{admit:?}");
            }
        }
    }

    #[test]
    fn drop_tail_fills_the_queue_to_the_last_place() {
        let short = [(None, 60); 300];
        assert_eq!(fill(Admit::Off, Limit::Packets(100), &short).packets, 100);
        assert_eq!(fill(Admit::Off, Limit::Bytes(6000), &short).bytes, 6000);
    }

    #[test]
    fn an_admitted_burst_is_in_the_queue_whole() {
        for admit in [Admit::Published, Admit::Bursts] {
            let burst = [(Some((sender(1), 10)), 1518); 10];
            let length = fill(admit, Limit::Packets(100), &burst);
            assert_eq!(length.packets, 10, "{admit:?}");
        }
    }
}
