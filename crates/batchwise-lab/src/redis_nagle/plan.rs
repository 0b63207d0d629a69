//! What `redis-nagle` measures: workloads, load steps, and for how long.

use std::time::Duration;

use crate::engine::ratio::ENOUGH_PAIRS;
use crate::ladder::Workload;

/// The paper's two workloads (16 KiB SETs; the same with 5 % GETs), three of smaller values, a client
/// that sleeps while it has nothing to do, and agents at both ends. Without quick steps: not in a quick run.
pub static WORKLOADS: [Workload; 7] = [
    Workload::new("64B", (64, 0.0), SMALL_STEPS, &[100_000, 200_000, 300_000]),
    Workload::new(
        "64B, sleeping client",
        (64, 0.0),
        &[
            20_000, 40_000, 60_000, 80_000, 100_000, 150_000, 200_000, 250_000, 300_000,
        ],
        &[40_000, 200_000],
    )
    .sleeping(),
    Workload::new(
        "64B, both ends",
        (64, 0.0),
        &[100_000, 150_000, 200_000, 300_000],
        &[],
    )
    .at_both_ends(),
    Workload::new(
        "512B",
        (512, 0.0),
        &[
            25_000, 50_000, 100_000, 150_000, 200_000, 225_000, 250_000, 275_000, 300_000,
        ],
        &[],
    ),
    Workload::new(
        "4KiB",
        (4096, 0.0),
        &[
            20_000, 40_000, 80_000, 120_000, 140_000, 160_000, 180_000, 200_000,
        ],
        &[40_000, 100_000],
    ),
    Workload::new("16KiB", (16_384, 0.0), LARGE_STEPS, &[]),
    Workload::new("95:5", (16_384, 0.05), LARGE_STEPS, &[]),
];

/// 5 % apart around the loads at which TCP_NODELAY has collapsed, from day to day.
const SMALL_STEPS: &[u64] = &[
    50_000, 100_000, 150_000, 158_000, 166_000, 174_000, 183_000, 192_000, 202_000, 212_000,
    223_000, 234_000, 246_000, 300_000, 400_000, 500_000, 600_000,
];
const LARGE_STEPS: &[u64] = &[
    5_000, 10_000, 20_000, 40_000, 50_000, 60_000, 70_000, 80_000,
];

/// Every arm has these phases, on a connection of its own; with batchwise an agent that knows nothing is
/// there from the begin.
pub const LEARNING: Duration = Duration::from_secs(1);

/// How long a point is measured after that.
pub fn measured(quick: bool) -> Duration {
    Duration::from_secs(if quick { 1 } else { 2 })
}

/// How often each point is measured: fewer pairs decide nothing.
pub const REPEATS: u32 = ENOUGH_PAIRS as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_ascend_and_a_factor_of_two_can_be_seen() {
        for workload in &WORKLOADS {
            assert!(workload.steps.is_sorted() && workload.quick_steps.is_sorted());
        }
        let fine = |steps: &[u64]| steps.windows(2).all(|w| w[1] as f64 / w[0] as f64 <= 2.0);
        assert!(fine(WORKLOADS[0].steps) && fine(WORKLOADS[0].quick_steps));
    }

    #[test]
    fn a_quick_run_takes_less_than_fifteen_minutes_even_if_nothing_collapses() {
        let start = Duration::from_millis(500);
        let step = (LEARNING + measured(true) + start) * 3;
        let steps: usize = WORKLOADS.iter().map(|w| w.steps(true).len()).sum();
        let whole = step * REPEATS * steps as u32;
        assert!(whole < Duration::from_secs(15 * 60), "{whole:?}");
    }
}
