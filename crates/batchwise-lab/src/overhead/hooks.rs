//! Time inside the hooks, from the kernel's statistics of BPF programs.

use std::collections::BTreeMap;

use batchwise_testbed::bpf_stats::Runs;
use serde::{Deserialize, Serialize};

use super::Arm;
use crate::engine::Table;

/// Time inside the hooks, from the kernel's statistics.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HookCost {
    pub arm: Arm,
    /// Requests in the time.
    pub requests: u64,
    /// A request at one of its two endpoints, ns.
    pub ns_per_request: f64,
    pub programs: Vec<ProgramCost>,
}

/// One BPF program's part of [`HookCost`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramCost {
    pub name: String,
    pub runs: u64,
    /// Mean of a run, ns.
    pub ns_per_run: f64,
    /// How often it ran for a request, both endpoints together.
    pub runs_per_request: f64,
}

impl HookCost {
    /// What was added between two readings.
    pub fn between(
        arm: Arm,
        requests: u64,
        before: &BTreeMap<String, Runs>,
        after: &BTreeMap<String, Runs>,
    ) -> Self {
        let per_request = |value: u64| value as f64 / requests as f64;
        let (mut total_ns, mut programs) = (0, Vec::new());
        for (name, now) in after {
            let then = before.get(name).copied().unwrap_or_default();
            let runs = now.count.saturating_sub(then.count);
            let ns = now.time_ns.saturating_sub(then.time_ns);
            if runs > 0 {
                total_ns += ns;
                programs.push(ProgramCost {
                    name: name.clone(),
                    runs,
                    ns_per_run: ns as f64 / runs as f64,
                    runs_per_request: per_request(runs),
                });
            }
        }
        Self {
            arm,
            requests,
            ns_per_request: per_request(total_ns) / 2.0,
            programs,
        }
    }

    /// A row for each program.
    pub fn table(&self) -> Table {
        Table::of(
            &self.programs,
            &[
                ("program", &|program| program.name.clone()),
                ("runs", &|program| program.runs.to_string()),
                ("ns per run", &|program| {
                    format!("{:.0}", program.ns_per_run)
                }),
                ("runs per request", &|program| {
                    format!("{:.2}", program.runs_per_request)
                }),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_time_is_what_was_added_per_request_and_endpoint() {
        let runs = |count, time_ns| Runs { count, time_ns };
        let before = BTreeMap::from([("bw_a".to_owned(), runs(10, 1000))]);
        let after = BTreeMap::from([
            ("bw_a".to_owned(), runs(210, 21_000)),
            ("bw_b".to_owned(), runs(100, 5_000)),
            ("bw_idle".to_owned(), runs(0, 0)),
        ]);
        let cost = HookCost::between(Arm::Watch, 100, &before, &after);
        assert_eq!(cost.ns_per_request, 125.0);
        assert_eq!(cost.programs.len(), 2);
        let first = &cost.programs[0];
        assert_eq!((first.ns_per_run, first.runs_per_request), (100.0, 2.0));
    }
}
