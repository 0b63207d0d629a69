//! What is simulated: the paper's experiments (section 5), and what its routers would meet today.

use batchwise_core::burst::Rules;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::discipline::{self, Limit, Which};
use super::network::{FlowSpec, HopSpec, Marks, SourceSpec, Spec, Start};
use super::tcp::Recovery;

/// Packets that a queue holds (the paper's section 4).
pub const QUEUE: u32 = 100;
pub const MBIT: u64 = 1_000_000;
pub const GBIT: u64 = 1_000 * MBIT;
const SECOND: u64 = 1_000_000_000;

/// Endless flows, and how long they are alone, s.
const LONG: u32 = 25;
const ALONE: u64 = SECOND;

/// Who marks in the mixed scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Short,
    All,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// 50 senders with so many packets each, at once.
    Incast { packets: u32 },
    /// 50 senders with 10 packets, half of which enter at a second router.
    Series,
    /// The same with 10 packets each, beside one that reserves and does not send.
    Besieged,
    /// Endless flows, and pairs of flows of 10 packets, one after the other.
    Mixed(Who),
    /// The paper's 49 + 1: the one sends so many packets together, as super-packets or as jumbo frames.
    OneOf50 { unit: u32, jumbo: bool },
}

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    pub traffic: Traffic,
    /// Of the bottleneck, bits a second.
    pub rate: u64,
    pub recovery: Recovery,
}

impl Scenario {
    pub fn name(&self) -> String {
        let rate = match self.rate {
            r if r >= GBIT => format!("{} Gbit/s", r / GBIT),
            r => format!("{} Mbit/s", r / MBIT),
        };
        let traffic = match self.traffic {
            Traffic::Incast { packets } => format!("incast 50 × {packets}"),
            Traffic::Series => "incast 50 × 10, two routers".into(),
            Traffic::Besieged => "incast 50 × 10 beside a liar".into(),
            Traffic::Mixed(Who::Short) => "25 endless + pairs of 10, these mark".into(),
            Traffic::Mixed(Who::All) => "25 endless + pairs of 10, all mark".into(),
            Traffic::OneOf50 { unit, jumbo: true } => format!("49 + 1 of {unit}, jumbo"),
            Traffic::OneOf50 { unit, jumbo: false } => format!("49 + 1 of {unit}"),
        };
        format!("{traffic}, {rate}")
    }

    /// Who is compared.
    pub fn disciplines(&self) -> Vec<Which> {
        match self.traffic {
            // nobody marks a jumbo frame
            Traffic::OneOf50 { jumbo: true, .. } => vec![Which::DropTail],
            Traffic::OneOf50 { .. } => vec![Which::DropTail, Which::Algorithm1, Which::Batchwise],
            _ => Which::ALL.to_vec(),
        }
    }

    pub fn spec(&self, which: Which, rules: fn(Rules) -> Rules, seed: u64) -> Spec {
        let mut rng = StdRng::seed_from_u64(seed ^ 0xb0);
        let (flows, delay, until) = match self.traffic {
            Traffic::Incast { packets } => (self.incast(packets, &mut rng), LAN, 20 * SECOND),
            Traffic::Besieged => (self.incast(10, &mut rng), LAN, 20 * SECOND),
            Traffic::Series => (self.series(&mut rng), LAN, 20 * SECOND),
            Traffic::Mixed(who) => (self.mixed(who, &mut rng), LAN, ALONE + 2 * SECOND),
            Traffic::OneOf50 { unit, jumbo } => {
                let flows = self.one_of_50(unit, jumbo, &mut rng);
                (flows, WIDE, ALONE + 10 * SECOND)
            }
        };
        let longest = match self.traffic {
            Traffic::OneOf50 { unit, .. } => unit,
            _ => 10,
        };
        let limit = match self.traffic {
            // as ns-2 counts
            Traffic::OneOf50 { jumbo: true, .. } => Limit {
                bytes: u32::MAX / 2,
                packets: QUEUE,
            },
            _ => Limit::full_sized(QUEUE),
        };
        let full = u64::from(QUEUE) * 12_000 * SECOND / self.rate;
        let queue = discipline::Spec {
            which,
            limit,
            rate: self.rate,
            longest,
            epoch: 2 * (4 * delay + full),
            rules,
        };
        let hop = HopSpec {
            queue,
            rate: self.rate,
            delay,
        };
        let hops = if self.traffic == Traffic::Series {
            2
        } else {
            1
        };
        Spec {
            hops: vec![hop; hops],
            access_rate: FASTER * self.rate,
            access_delay: delay,
            flows,
            sources: self.liar().into_iter().collect(),
            count_from: ALONE,
            until,
        }
    }

    fn flow(&self, source: u32, start: Start) -> FlowSpec {
        FlowSpec {
            source,
            enters: 0,
            start,
            group: 0,
            total: None,
            size: 1,
            unit: 1,
            recovery: self.recovery,
            marks: Marks::Never,
        }
    }

    fn incast(&self, packets: u32, rng: &mut StdRng) -> Vec<FlowSpec> {
        let flow = |source| FlowSpec {
            total: Some(packets),
            marks: Marks::Bursts,
            ..self.flow(source, Start::At(rng.random_range(0..APART)))
        };
        (0..50).map(flow).collect()
    }

    /// It claims ten packets and sends one, at a fifth of the link's rate.
    fn liar(&self) -> Option<SourceSpec> {
        (self.traffic == Traffic::Besieged).then_some(SourceSpec {
            start: 0,
            gap: 5 * 12_000 * SECOND / self.rate,
            sends: 1,
            claims: 10,
            share: 1.0,
            new_flows: true,
            spoofs: false,
        })
    }

    fn series(&self, rng: &mut StdRng) -> Vec<FlowSpec> {
        let mut flows = self.incast(10, rng);
        for flow in flows.iter_mut().step_by(2) {
            flow.enters = 1;
        }
        flows
    }

    fn mixed(&self, who: Who, rng: &mut StdRng) -> Vec<FlowSpec> {
        let marks = if who == Who::All {
            Marks::Bursts
        } else {
            Marks::Never
        };
        let long = |source| FlowSpec {
            marks,
            group: u32::MAX,
            ..self.flow(source, Start::At(rng.random_range(0..ALONE / 2)))
        };
        let mut flows: Vec<_> = (0..LONG).map(long).collect();
        for pair in 0..10 {
            let start = match pair {
                0 => Start::At(ALONE),
                _ => Start::After(pair - 1),
            };
            // each flow of a pair comes from a sender of its own
            flows.extend((LONG..LONG + 2).map(|source| FlowSpec {
                total: Some(10),
                group: pair,
                marks: Marks::Bursts,
                ..self.flow(source, start)
            }));
        }
        flows
    }

    fn one_of_50(&self, unit: u32, jumbo: bool, rng: &mut StdRng) -> Vec<FlowSpec> {
        let flow = |source| self.flow(source, Start::At(rng.random_range(0..ALONE / 2)));
        let mut flows: Vec<_> = (0..50).map(flow).collect();
        match jumbo {
            true => flows[0].size = unit,
            false => (flows[0].unit, flows[0].marks) = (unit, Marks::Bursts),
        }
        flows
    }
}

/// One way of a link, ns: a round trip of 100 µs, or of 40 ms.
const LAN: u64 = 25_000;
const WIDE: u64 = 10_000_000;
/// Senders' links are so much faster than the bottleneck.
const FASTER: u64 = 10;
/// Within this the flows of an incast begin, ns.
const APART: u64 = 100_000;

/// All of them.
pub fn all(quick: bool) -> Vec<Scenario> {
    let mut all = Vec::new();
    for recovery in [Recovery::Rack, Recovery::Cliff] {
        let mut add = |traffic, rate| {
            all.push(Scenario {
                traffic,
                rate,
                recovery,
            })
        };
        for packets in [10, 100] {
            for rate in [100 * MBIT, GBIT, 10 * GBIT] {
                add(Traffic::Incast { packets }, rate);
            }
        }
        add(Traffic::Series, GBIT);
        add(Traffic::Besieged, GBIT);
        add(Traffic::Mixed(Who::Short), 100 * MBIT);
        add(Traffic::Mixed(Who::Short), GBIT);
        add(Traffic::Mixed(Who::All), GBIT);
        if recovery == Recovery::Rack {
            // the paper's simulator knew nothing of it
            continue;
        }
        let units: &[u32] = if quick { &[1, 4] } else { &[1, 2, 4, 6, 8] };
        for &unit in units {
            for jumbo in [false, true] {
                add(Traffic::OneOf50 { unit, jumbo }, 100 * MBIT);
            }
        }
    }
    all
}
