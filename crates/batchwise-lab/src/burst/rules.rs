//! What each of batchwise's rules is good for: the same without it.

use batchwise_core::burst::Rules;
use serde::{Deserialize, Serialize};

use super::abuse::Strategy;
use super::scenarios::{GBIT, Scenario, Traffic, Who};
use super::tcp::Recovery;

/// What is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// No limit to what a source reserves.
    Credit,
    /// No limit to what all reserve.
    Cap,
}

impl Variant {
    pub const ALL: [Self; 2] = [Self::Credit, Self::Cap];

    /// As it is.
    pub const NONE: fn(Rules) -> Rules = |rules| rules;

    /// Leaves it out.
    pub fn rules(self) -> fn(Rules) -> Rules {
        match self {
            Self::Credit => |rules| Rules {
                refill_time: 0,
                ..rules
            },
            Self::Cap => |rules| Rules {
                all_bytes: rules.limit,
                ..rules
            },
        }
    }
}

const fn scenario(traffic: Traffic, recovery: Recovery) -> Scenario {
    let rate = GBIT;
    Scenario {
        traffic,
        rate,
        recovery,
    }
}

/// What shows the difference.
pub const SCENARIOS: [Scenario; 6] = [
    scenario(Traffic::Incast { packets: 100 }, Recovery::Rack),
    scenario(Traffic::Incast { packets: 100 }, Recovery::Cliff),
    scenario(Traffic::Incast { packets: 10 }, Recovery::Rack),
    scenario(Traffic::Incast { packets: 10 }, Recovery::Cliff),
    scenario(Traffic::Mixed(Who::Short), Recovery::Rack),
    scenario(Traffic::Mixed(Who::Short), Recovery::Cliff),
];

/// Likewise: who marks everything, who never sends what it reserved, and who does it from many addresses.
pub const LIES: [Strategy; 3] = [
    Strategy::Tcp {
        share: 1.0,
        claims: 10,
    },
    Strategy::Bursts {
        claims: 10,
        sends: 1,
        load: 0.04,
        new_flows: true,
    },
    Strategy::Spoofed {
        claims: 10,
        load: 0.2,
    },
];
