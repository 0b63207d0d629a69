//! What `tails` measures: workloads of `accuracy` at loads from light to near saturation.

use std::time::Duration;

use crate::accuracy;
use crate::ladder::Workload;

/// A workload's name, its loads, and those of a quick run.
type Loads = (&'static str, &'static [u64], &'static [u64]);

static LOADS: [Loads; 4] = [
    (
        "64B",
        &[10_000, 50_000, 100_000, 150_000],
        &[10_000, 50_000, 100_000],
    ),
    (
        "4KiB",
        &[10_000, 30_000, 60_000, 80_000],
        &[10_000, 30_000, 60_000],
    ),
    ("16KiB", LARGE, QUICK_LARGE),
    ("95:5", LARGE, QUICK_LARGE),
];

const LARGE: &[u64] = &[5_000, 15_000, 30_000, 40_000];
const QUICK_LARGE: &[u64] = &[5_000, 15_000, 30_000];

/// The workloads at the loads of this experiment.
pub fn workloads() -> Vec<Workload> {
    let find = |&(name, steps, quick_steps): &Loads| {
        let found = accuracy::workload(name)?;
        Some(Workload {
            steps,
            quick_steps,
            ..found
        })
    };
    LOADS.iter().filter_map(find).collect()
}

/// How often each point is measured.
pub fn repeats(quick: bool) -> u32 {
    if quick { 1 } else { 4 }
}

/// Load before the watchers count, and a phase of which the end tells that they are to begin.
pub const WARMUP: Duration = Duration::from_millis(500);
pub const LEAD: Duration = Duration::from_millis(100);
/// How long a point is measured: percentiles of several lines cannot be averaged, so it has one.
pub const MEASURED: Duration = Duration::from_secs(4);
/// A watcher's interval goes on until the load is over, so that nothing is left for the next point.
pub const INTERVAL: Duration = Duration::from_millis(4250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_one_of_accuracys_with_ascending_loads() {
        let found = workloads();
        assert_eq!(found.len(), LOADS.len());
        for workload in found {
            assert!(workload.steps.is_sorted(), "{}", workload.name);
            let is_step = |step| workload.steps.contains(step);
            assert!(workload.quick_steps.iter().all(is_step));
        }
    }
}
