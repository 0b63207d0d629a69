//! All flows of a server in an interval: means weighted by batches, so that every batch weighs
//! alike, and quantiles of the epochs' estimates.

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::Epoch;

/// Mean response latency and its quantiles over epochs, weighted by batches, ns. null is "not known",
/// never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LatencyQuantiles {
    /// Mean of all batches, ns. null: not known.
    pub mean: Option<u64>,
    /// Median of the epochs' means, ns. null: not known.
    pub p50: Option<u64>,
    /// 90th percentile of the epochs' means, ns. null: not known.
    pub p90: Option<u64>,
    /// 99th percentile of the epochs' means, ns. null: not known.
    pub p99: Option<u64>,
}

/// Steps in an octave of the quantiles' buckets: less than 1.6 % wide.
const STEPS_LOG2: u32 = 6;

/// What an interval's epochs of one server add up to.
#[derive(Clone, Debug, Default)]
pub struct Server {
    clients: BTreeSet<SocketAddr>,
    /// Flows whose last epoch saw nothing but retransmissions and waiting.
    pub(super) stalled: BTreeSet<SocketAddr>,
    unnamed: u64,
    epochs: u64,
    batches: u64,
    weighted_ns: u128,
    weighted_confidence: u64,
    buckets: BTreeMap<u32, u64>,
    pub(super) idle: u64,
    pub(super) resent: u64,
    pub(super) discarded: u64,
}

impl Server {
    /// Adds a closed epoch.
    pub fn add(&mut self, epoch: &Epoch) {
        let e = &epoch.estimate;
        self.epochs += 1;
        self.idle += u64::from(e.idle);
        self.resent += u64::from(epoch.gaps.resent);
        self.discarded += u64::from(epoch.gaps.discarded);
        match epoch.tuple {
            Some(t) => {
                self.clients.insert(t.client);
                if e.stalled {
                    self.stalled.insert(t.client);
                } else if e.latency.is_some() {
                    self.stalled.remove(&t.client);
                }
            }
            None => self.unnamed += 1,
        }
        if let Some(latency) = e.latency {
            let batches = u64::from(e.batches);
            self.batches += batches;
            self.weighted_ns += u128::from(latency) * u128::from(batches);
            self.weighted_confidence += u64::from(e.confidence) * batches;
            *self.buckets.entry(bucket(latency)).or_default() += batches;
        }
    }

    /// Flows that closed an epoch.
    pub fn flows(&self) -> u64 {
        self.clients.len() as u64 + self.unnamed
    }

    /// Epochs that closed.
    pub fn epochs(&self) -> u64 {
        self.epochs
    }

    /// Batches that the latency is the mean of.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// 0 to 1; `None` without an estimate.
    pub fn confidence(&self) -> Option<f64> {
        (self.batches > 0).then(|| self.weighted_confidence as f64 / (self.batches as f64 * 1000.0))
    }

    /// Mean and quantiles.
    pub fn latency(&self) -> LatencyQuantiles {
        let mean = self.weighted_ns.checked_div(u128::from(self.batches));
        LatencyQuantiles {
            mean: mean.map(|m| u64::try_from(m).unwrap_or(u64::MAX)),
            p50: self.quantile(50),
            p90: self.quantile(90),
            p99: self.quantile(99),
        }
    }

    fn quantile(&self, percent: u64) -> Option<u64> {
        let rank = (self.batches * percent).div_ceil(100).max(1);
        let mut seen = 0;
        self.buckets.iter().find_map(|(&b, &n)| {
            seen += n;
            (seen >= rank).then(|| middle(b))
        })
    }
}

/// Log-linear: exact below 2^STEPS_LOG2 ns.
fn bucket(ns: u64) -> u32 {
    let octave = ns.checked_ilog2().unwrap_or(0).saturating_sub(STEPS_LOG2);
    (octave << STEPS_LOG2) + (ns >> octave) as u32
}

fn middle(bucket: u32) -> u64 {
    let octave = (bucket >> STEPS_LOG2).saturating_sub(1);
    let floor = u64::from(bucket - (octave << STEPS_LOG2)) << octave;
    floor + (1 << octave) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buckets_middle_lies_within_a_percent_of_what_is_in_it() {
        for ns in [0, 1, 63, 64, 1_000, 123_456, 200_000_000, u64::MAX / 3] {
            let (ns, middle) = (ns as f64, middle(bucket(ns)) as f64);
            assert!((middle - ns).abs() <= ns * 0.01, "{ns} {middle}");
        }
    }
}
