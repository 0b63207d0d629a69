//! What `redis-nagle` measures: workloads, load steps, and for how long.

use std::time::Duration;

use crate::ladder::Workload;

/// The paper's two workloads (16 KiB SETs; the same with 5 % GETs) and three of smaller values.
pub static WORKLOADS: [Workload; 5] = [
    Workload::new(
        "64B",
        (64, 0.0),
        &[
            50_000, 100_000, 150_000, 200_000, 225_000, 250_000, 275_000, 300_000, 350_000,
            400_000, 450_000, 500_000, 550_000, 600_000, 650_000,
        ],
        &[
            100_000, 200_000, 250_000, 300_000, 400_000, 500_000, 550_000, 600_000,
        ],
    ),
    Workload::new(
        "512B",
        (512, 0.0),
        &[
            25_000, 50_000, 75_000, 100_000, 125_000, 150_000, 175_000, 200_000, 225_000, 250_000,
            275_000, 300_000,
        ],
        &[50_000, 120_000, 180_000, 240_000, 300_000],
    ),
    Workload::new(
        "4KiB",
        (4096, 0.0),
        &[
            20_000, 40_000, 60_000, 80_000, 100_000, 120_000, 140_000, 160_000, 180_000, 200_000,
            220_000, 240_000, 260_000,
        ],
        &[40_000, 100_000, 160_000, 200_000, 240_000],
    ),
    Workload::new("16KiB", (16_384, 0.0), LARGE_STEPS, LARGE_QUICK_STEPS),
    Workload::new("95:5", (16_384, 0.05), LARGE_STEPS, LARGE_QUICK_STEPS),
];

const LARGE_STEPS: &[u64] = &[
    5_000, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000, 70_000, 80_000, 90_000, 100_000, 110_000,
];
const LARGE_QUICK_STEPS: &[u64] = &[10_000, 30_000, 60_000, 90_000, 110_000];

/// Load before a point is measured, with a static arm.
pub const WARMUP: Duration = Duration::from_millis(500);
/// The same with batchwise: a phase with numbers of its own.
pub const LEARNING: Duration = Duration::from_secs(4);

/// How often each point is measured.
pub fn repeats(quick: bool) -> u32 {
    if quick { 2 } else { 5 }
}

/// How long a point is measured.
pub fn measured(quick: bool) -> Duration {
    Duration::from_secs(if quick { 2 } else { 3 })
}

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
    fn a_quick_run_takes_less_than_twelve_minutes_even_if_nothing_collapses() {
        let measured = measured(true) + Duration::from_millis(400);
        let step = 2 * (WARMUP + measured) + LEARNING + measured;
        let steps: usize = WORKLOADS.iter().map(|w| w.steps(true).len()).sum();
        let whole = step * repeats(true) * steps as u32;
        assert!(whole < Duration::from_secs(12 * 60), "{whole:?}");
    }
}
