//! A sender that lies among honest ones: every strategy of a grid, against the same packets at a queue
//! that does not know marks.

use batchwise_core::burst::Rules;
use serde::{Deserialize, Serialize};

use super::discipline::{self, Limit, Which};
use super::network::{self, FlowSpec, HopSpec, Marks, SourceSpec, Spec, Start};
use super::scenarios::{MBIT, QUEUE};
use super::tcp::Recovery;

/// What the liar does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// An endless TCP flow that marks a share of its segments, each as the first of so many.
    Tcp { share: f64, claims: u32 },
    /// Bursts without a protocol: it claims, sends so much of that, and does it at this share of the
    /// link's rate; with a new flow for each burst or not.
    Bursts {
        claims: u32,
        sends: u32,
        load: f64,
        new_flows: bool,
    },
    /// The same, never more than one packet a burst, from a new address each time.
    Spoofed { claims: u32, load: f64 },
}

impl Strategy {
    pub fn name(self) -> String {
        match self {
            Self::Tcp { share, claims } => {
                format!("TCP, marks {:.0} % as {claims}", 100.0 * share)
            }
            Self::Bursts {
                claims,
                sends,
                load,
                new_flows,
            } => {
                let flows = if new_flows { "new flows" } else { "one flow" };
                format!("claims {claims}, sends {sends}, load {load}, {flows}")
            }
            Self::Spoofed { claims, load } => {
                format!("claims {claims}, sends 1, load {load}, new addresses")
            }
        }
    }

    /// Whether one sender can do it.
    pub fn is_of_one(self) -> bool {
        !matches!(self, Self::Spoofed { .. })
    }
}

/// What is searched.
pub fn strategies(quick: bool) -> Vec<Strategy> {
    let mut all = Vec::new();
    let claims: &[u32] = if quick { &[2, 10] } else { &[2, 3, 5, 10, 64] };
    for &claims in claims {
        for share in [0.1, 0.5, 1.0] {
            all.push(Strategy::Tcp { share, claims });
        }
        let mut sends = vec![1, claims.div_ceil(2), claims];
        sends.dedup();
        for sends in sends {
            for load in [0.002, 0.01, 0.04, 0.2] {
                for new_flows in [false, true] {
                    all.push(Strategy::Bursts {
                        claims,
                        sends,
                        load,
                        new_flows,
                    });
                }
            }
        }
    }
    for claims in [2, 10] {
        for load in [0.04, 0.2] {
            all.push(Strategy::Spoofed { claims, load });
        }
    }
    all
}

/// Honest endless flows, and the link.
const HONEST: u32 = 24;
const RATE: u64 = 100 * MBIT;
/// ns: one way of a link, what is not counted, the end.
const DELAY: u64 = 2_500_000;
const WARM: u64 = 1_000_000_000;
const END: u64 = 6_000_000_000;

/// What honest flows and the liar carried, segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    pub honest: u64,
    pub liar: u64,
}

/// Runs it.
pub fn carried(strategy: Strategy, which: Which, rules: fn(Rules) -> Rules, seed: u64) -> Carried {
    let flow = |source| FlowSpec {
        source,
        enters: 0,
        start: Start::At(u64::from(source) * 10_000_000),
        group: 0,
        total: None,
        size: 1,
        unit: 1,
        recovery: Recovery::Rack,
        marks: Marks::Never,
    };
    let mut flows: Vec<_> = (0..HONEST).map(flow).collect();
    let mut sources = Vec::new();
    let mut bursts = |claims, sends: u32, load: f64, new_flows, spoofs| {
        sources.push(SourceSpec {
            start: WARM / 2 + seed * 7919,
            gap: (f64::from(sends) * 12e12 / RATE as f64 / load) as u64,
            sends,
            claims,
            share: 1.0,
            new_flows,
            spoofs,
        });
    };
    match strategy {
        Strategy::Tcp {
            share,
            claims: claimed,
        } => flows.push(FlowSpec {
            marks: Marks::Lies { share, claimed },
            ..flow(HONEST)
        }),
        Strategy::Bursts {
            claims,
            sends,
            load,
            new_flows,
        } => {
            bursts(claims, sends, load, new_flows, false);
        }
        Strategy::Spoofed { claims, load } => bursts(claims, 1, load, true, true),
    }
    let queue = discipline::Spec {
        which,
        limit: Limit::full_sized(QUEUE),
        rate: RATE,
        longest: 10,
        epoch: 2 * (4 * DELAY + 12_000_000),
        rules,
    };
    let spec = Spec {
        hops: vec![HopSpec {
            queue,
            rate: RATE,
            delay: DELAY,
        }],
        access_rate: 10 * RATE,
        access_delay: DELAY,
        flows,
        sources,
        count_from: WARM,
        until: END,
    };
    let outcomes = network::run(&spec, seed).flows;
    let (honest, liar) = outcomes.split_at(HONEST as usize);
    let arrived = |flows: &[network::Outcome]| flows.iter().map(|f| f.arrived).sum();
    Carried {
        honest: arrived(honest),
        liar: arrived(liar),
    }
}
