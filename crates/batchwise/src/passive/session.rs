//! What live runs and captures have in common: epochs go in; lines, metrics and the report come out.

use std::fs::File;

use anyhow::Context;
use batchwise_core::passive::Epoch;
use batchwise_core::passive::report::{EpochLine, TotalsLine};

use super::args::PassiveArgs;
use super::interval::{Interval, Key, MOST_SERVERS};
use super::metrics::PassiveMetrics;
use super::report;
use super::rows::ending;
use super::servers::Servers;
use super::summary::Summary;
use crate::frame::rows::Form;

/// What closed, and what is made of it.
pub struct Session<'a> {
    args: &'a PassiveArgs,
    /// Interface or capture.
    place: String,
    epochs: Vec<EpochLine>,
    servers: Servers,
    /// Of the whole run, where it is shown at the end.
    summary: Option<Summary>,
    /// What is served from the interval's end on, where anybody may ask.
    metrics: Option<PassiveMetrics>,
    totals: TotalsLine,
}

impl<'a> Session<'a> {
    /// Begins; the report can be written.
    pub fn begin(args: &'a PassiveArgs, form: Form, place: String) -> anyhow::Result<Self> {
        if let Some(path) = &args.report {
            let file = File::options().create(true).append(true).open(path);
            file.with_context(|| {
                let path = path.display();
                format!("cannot write the report {path}: its directory must exist")
            })?;
        }
        Ok(Self {
            args,
            place,
            epochs: Vec::new(),
            servers: Servers::default(),
            summary: (form != Form::Jsonl || args.report.is_some()).then(Summary::default),
            metrics: args
                .run
                .stay
                .metrics
                .as_ref()
                .map(|_| PassiveMetrics::default()),
            totals: TotalsLine::default(),
        })
    }

    /// Where at the interface packets are seen.
    pub fn attached_at(&mut self, hook: &str) {
        self.place += &format!(" ({hook})");
    }

    /// An epoch closed; its times, as `ts_ns`, are wall clock.
    pub fn epoch(&mut self, ts_ns: u64, epoch: &Epoch) {
        if self.args.per_flow {
            self.epochs.push(EpochLine::new(ts_ns, epoch));
        }
        let Some(tuple) = epoch.tuple else {
            tracing::debug!("an epoch of a flow whose name was lost is not counted");
            return;
        };
        let key: Key = (tuple.server, tuple.transport);
        self.servers.add(key, epoch);
        if let Some(summary) = &mut self.summary {
            summary.epoch(key, epoch);
        }
        if let Some(metrics) = &mut self.metrics {
            metrics.epoch(key, epoch);
        }
    }

    /// Closes the interval that ends at the time of `totals`; `over`: it is the last.
    pub fn close(&mut self, interval_ns: u64, totals: TotalsLine, over: bool) -> Interval {
        let totals = TotalsLine {
            epochs_left_out: self.servers.left_out(),
            ..totals
        };
        if totals.epochs_left_out > 0 && self.totals.epochs_left_out == 0 {
            tracing::warn!(
                "more than {MOST_SERVERS} servers: further ones are not shown; give --port"
            );
        }
        self.totals = totals;
        let interval = Interval {
            place: self.place.clone(),
            epochs: std::mem::take(&mut self.epochs),
            servers: self
                .servers
                .lines(totals.ts_ns, interval_ns, totals.lost_events),
            totals,
            over,
        };
        if let Some(summary) = &mut self.summary {
            summary.interval(&interval.servers);
        }
        if let Some(metrics) = &mut self.metrics {
            metrics.interval(&interval);
        }
        interval
    }

    /// Serves all up to the last interval.
    pub fn serve(&self, served: &mut PassiveMetrics) {
        if let Some(metrics) = &self.metrics {
            served.clone_from(metrics);
        }
    }

    /// Whether an interval without epochs would show nothing.
    pub fn is_silent(&self) -> bool {
        self.servers.is_empty()
    }

    /// Writes the report; what people are told of the whole.
    pub fn end(&self) -> anyhow::Result<String> {
        let Some(summary) = &self.summary else {
            return Ok(String::new());
        };
        let mut text = ending(summary, &self.totals);
        if let Some(path) = &self.args.report {
            let page = report::page(self.args, &self.place, summary, &self.totals);
            std::fs::write(path, page)
                .with_context(|| format!("cannot write the report {}", path.display()))?;
            text += &format!("report: {}\n", path.display());
        }
        Ok(text)
    }
}
