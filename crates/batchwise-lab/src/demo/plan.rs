//! What the demo does: one climb of the load without Nagle's algorithm, the same climb with it,
//! and the same again with batchwise choosing.

use std::net::SocketAddr;
use std::time::Duration;

use batchwise_testbed::load::{LoadPhase, LoadSpec};

use crate::arm::Arm;

/// Bytes of a value: small ones, where batching decides how much can be carried.
pub const VALUE_SIZE: u32 = 64;
/// The load at the foot of a climb, requests a second.
const FOOT: u64 = 20_000;
/// The load at its top: beyond what TCP_NODELAY carries on a small machine.
const TOP: u64 = 320_000;
/// Load before the first measured second of a climb.
const WARMUP: Duration = Duration::from_secs(1);

/// One second of the load generator is one moment of the demo.
pub const MOMENT: Duration = Duration::from_secs(1);

/// One climb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What decides about Nagle's algorithm at the client.
    pub arm: Arm,
}

/// The climbs in their order.
pub const PHASES: [Phase; 3] = [
    Phase { arm: Arm::Nodelay },
    Phase { arm: Arm::Nagle },
    Phase {
        arm: Arm::Batchwise,
    },
];

impl Phase {
    /// What people call its setting.
    pub fn name(&self) -> &'static str {
        match self.arm {
            Arm::Nodelay => "Nagle off (TCP_NODELAY)",
            Arm::Nagle => "Nagle on",
            Arm::Batchwise => "batchwise tuning",
        }
    }

    /// Whether the estimates of watchers are shown. While batchwise tunes, its own agents exchange
    /// queue states over the connection.
    pub fn watched(&self) -> bool {
        self.arm != Arm::Batchwise
    }
}

/// How long everything takes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Of one climb, without its warm-up.
    pub climb: Duration,
}

impl Plan {
    /// Of a quick or a full run.
    pub fn new(quick: bool) -> Self {
        let seconds = if quick { 10 } else { 28 };
        Self {
            climb: Duration::from_secs(seconds),
        }
    }

    /// From the start of the first climb to the end of the last.
    pub fn length(&self) -> Duration {
        PHASES.len() as u32 * (WARMUP + self.climb)
    }

    /// The load that is offered so many seconds after the warm-up of a climb, requests a second.
    pub fn offered_at(&self, seconds: f64) -> f64 {
        let height = (seconds / self.climb.as_secs_f64()).clamp(0.0, 1.0);
        FOOT as f64 + (TOP - FOOT) as f64 * height
    }

    /// The load of a climb against `address`.
    pub fn load(&self, phase: Phase, address: SocketAddr) -> LoadSpec {
        LoadSpec {
            address,
            phases: vec![LoadPhase {
                duration: self.climb,
                rate: FOOT,
                climb_to: Some(TOP),
                value_size: VALUE_SIZE,
            }],
            warmup: WARMUP,
            get_ratio: 0.0,
            busy_per_response: Duration::ZERO,
            nodelay: phase.arm.nodelay(),
        }
    }
}

/// The foot and the top of a climb, requests a second.
pub const fn climb() -> (u64, u64) {
    (FOOT, TOP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_climbs_evenly_from_the_foot_to_the_top() {
        let plan = Plan::new(true);
        let at = [0.0, 5.0, 10.0, 11.0].map(|seconds| plan.offered_at(seconds));
        assert_eq!(at, [20e3, 170e3, 320e3, 320e3]);
    }
}
