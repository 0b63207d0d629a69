//! What the accuracy experiment measures: workloads, load steps, and for how long.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ladder::Workload;

/// At which end the arms differ: Nagle's algorithm on, or TCP_NODELAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NagleAt {
    /// The requests' sender; the server has TCP_NODELAY.
    Client,
    /// The responses' sender, as in the paper; the client has TCP_NODELAY.
    Server,
}

/// The paper's two workloads (16 KiB SETs; the same with 5 % GETs) and two of smaller values, for
/// which Nagle is known to help here; and the paper's mix as the paper ran it, Nagle switched at the
/// server, where byte units must fail (Figure 4b).
pub static WORKLOADS: [(NagleAt, Workload); 5] = [
    (
        NagleAt::Client,
        Workload::new(
            "64B",
            (64, 0.0),
            &[
                5_000, 10_000, 25_000, 50_000, 100_000, 150_000, 200_000, 250_000, 300_000,
                350_000, 400_000, 500_000,
            ],
            &[
                5_000, 25_000, 100_000, 150_000, 200_000, 250_000, 300_000, 400_000,
            ],
        ),
    ),
    (
        NagleAt::Client,
        Workload::new(
            "4KiB",
            (4096, 0.0),
            &[
                5_000, 10_000, 20_000, 40_000, 60_000, 80_000, 100_000, 120_000, 140_000, 160_000,
                180_000, 200_000,
            ],
            &[
                5_000, 20_000, 50_000, 80_000, 110_000, 140_000, 170_000, 200_000,
            ],
        ),
    ),
    (NagleAt::Client, large("16KiB", 0.0)),
    (NagleAt::Client, large("95:5", 0.05)),
    (NagleAt::Server, large("95:5-server", 0.05)),
];

const fn large(name: &'static str, get_ratio: f64) -> Workload {
    Workload::new(name, (16_384, get_ratio), LARGE_STEPS, LARGE_QUICK_STEPS)
}

const LARGE_STEPS: &[u64] = &[
    2_000, 5_000, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000, 70_000, 80_000, 90_000, 100_000,
];
const LARGE_QUICK_STEPS: &[u64] = &[
    2_000, 10_000, 20_000, 35_000, 50_000, 65_000, 80_000, 90_000,
];

/// The workload of this name.
pub fn workload(name: &str) -> Option<Workload> {
    let mut all = WORKLOADS.iter().map(|(_, workload)| *workload);
    all.find(|workload| workload.name == name)
}

/// Load before a point is measured.
pub const WARMUP: Duration = Duration::from_millis(500);

/// What the watchers may cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cost {
    /// Everything is counted.
    #[default]
    Off,
    /// The default: events are counted in windows.
    Budget,
}

/// How often each point is measured.
pub fn repeats(quick: bool, cost: Cost) -> u32 {
    match (quick, cost) {
        (false, Cost::Off) => 3,
        _ => 1,
    }
}

/// How long a point is measured: windows come once a second.
pub fn measured(quick: bool, cost: Cost) -> Duration {
    Duration::from_secs(match (quick, cost) {
        (true, Cost::Off) => 2,
        (false, Cost::Off) => 3,
        (true, Cost::Budget) => 3,
        (false, Cost::Budget) => 6,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_ascend_and_names_differ() {
        let workloads: Vec<_> = WORKLOADS.iter().map(|w| w.1).collect();
        for (i, workload) in workloads.iter().enumerate() {
            assert!(workload.steps.is_sorted() && workload.quick_steps.is_sorted());
            let mut others = workloads[i + 1..].iter();
            assert!(others.all(|other| other.name != workload.name));
        }
    }
}
