//! An agent that serves lines that it is given, as `watch --metrics` does: for the lab's fleet, and no contract.

use std::collections::BTreeMap;

use anyhow::Context as _;
use batchwise_core::sense::connection::ServiceKey;
use batchwise_core::sense::report::Line;
use batchwise_core::sense::tails::Histogram;

use crate::frame::metrics::Exporter;
use crate::watch::metrics::WatchMetrics;

/// Until it is dropped.
pub struct Agent(Exporter<WatchMetrics>);

impl Agent {
    /// Listens on `address`, in this thread's network namespace.
    pub fn serve(address: &str) -> anyhow::Result<Self> {
        let exporter = Exporter::open(Some(address), None)?;
        exporter.map(Self).context("an address is given")
    }

    /// An interval is over: a line of each service, and the latencies of its requests.
    pub fn interval(&self, lines: &[Line], latencies: &[Histogram]) -> anyhow::Result<()> {
        let key = |line: &Line| -> anyhow::Result<_> {
            Ok(ServiceKey {
                server: line.service.parse()?,
                netns: line.netns,
                side: line.side,
            })
        };
        let keys = lines.iter().map(key).collect::<anyhow::Result<Vec<_>>>()?;
        let latencies: BTreeMap<_, _> = keys.into_iter().zip(latencies.iter().cloned()).collect();
        self.0
            .update(|metrics| metrics.interval(lines.iter(), &latencies));
        Ok(())
    }
}
