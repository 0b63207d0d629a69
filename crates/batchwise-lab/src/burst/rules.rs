//! What each of batchwise's rules is good for: the same without it.

use batchwise_core::burst::Rules;
use serde::{Deserialize, Serialize};

use super::scenarios::{GBIT, Scenario, Traffic, Who};
use super::tcp::Recovery;

/// What is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// No limit to what a source reserves.
    Credit,
}

impl Variant {
    pub const ALL: [Self; 1] = [Self::Credit];

    /// As it is.
    pub const NONE: fn(Rules) -> Rules = |rules| rules;

    /// Leaves it out.
    pub fn rules(self) -> fn(Rules) -> Rules {
        match self {
            Self::Credit => |rules| Rules {
                refill_time: 0,
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
pub const SCENARIOS: [Scenario; 4] = [
    scenario(Traffic::Incast { packets: 10 }, Recovery::Rack),
    scenario(Traffic::Incast { packets: 100 }, Recovery::Rack),
    scenario(Traffic::Besieged, Recovery::Rack),
    scenario(Traffic::Mixed(Who::All), Recovery::Rack),
];
