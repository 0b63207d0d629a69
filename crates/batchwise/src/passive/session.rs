//! What live runs and captures have in common: epochs go in; lines, metrics and the report come out.

use std::fs::File;
use std::time::Duration;

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
use crate::frame::metrics::Exporter;
use crate::frame::rows::{Form, Output, waiting};
use crate::frame::stdout::WhenUnread;
use crate::frame::ticks::{Ticks, Turn};

/// Where the results go.
pub struct Session<'a> {
    args: &'a PassiveArgs,
    output: Output<Interval>,
    /// Interface or capture.
    place: String,
    exporter: Option<Exporter<PassiveMetrics>>,
    epochs: Vec<EpochLine>,
    servers: Servers,
    /// Of the whole run, where it is shown at the end.
    summary: Option<Summary>,
    totals: TotalsLine,
}

impl<'a> Session<'a> {
    /// Opens the outputs. Packets of a capture wait for them, those of an interface do not.
    pub fn open(args: &'a PassiveArgs, form: Form, place: String) -> anyhow::Result<Self> {
        let exporter = args.metrics.as_deref().map(Exporter::bind).transpose()?;
        if let Some(path) = &args.report {
            let file = File::options().create(true).append(true).open(path);
            file.with_context(|| {
                let path = path.display();
                format!("cannot write the report {path}: its directory must exist")
            })?;
        }
        let (when_unread, waiting) = match args.iface {
            Some(_) => (
                WhenUnread::serving(exporter.is_some()),
                waiting(&args.ports),
            ),
            None => (WhenUnread::Wait, String::new()),
        };
        Ok(Self {
            args,
            output: Output::open(form, when_unread, waiting)?,
            place,
            exporter,
            epochs: Vec::new(),
            servers: Servers::default(),
            summary: (form != Form::Jsonl || args.report.is_some()).then(Summary::default),
            totals: TotalsLine::default(),
        })
    }

    /// An epoch closed; its times, as `ts_ns`, are wall clock.
    pub fn epoch(&mut self, ts_ns: u64, epoch: &Epoch) {
        if self.args.per_flow {
            self.epochs.push(EpochLine::new(ts_ns, epoch, 0));
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
        if let Some(exporter) = &self.exporter {
            exporter.update(|metrics| metrics.epoch(key, epoch));
        }
    }

    /// The interval that ends at the time of `totals` is shown; `over`: it is the last.
    pub fn interval(
        &mut self,
        interval_ns: u64,
        totals: TotalsLine,
        over: bool,
    ) -> anyhow::Result<()> {
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
        if let Some(exporter) = &self.exporter {
            exporter.update(|metrics| metrics.interval(&interval));
        }
        self.output.show(&interval)
    }

    /// Whether an interval without epochs would show nothing.
    pub fn is_silent(&self) -> bool {
        self.servers.is_empty()
    }

    /// Waits for the interval's end, but at most `look_every`.
    pub fn turn(&mut self, ticks: &mut Ticks, look_every: Duration) -> anyhow::Result<Turn> {
        ticks.turn(look_every, |time| self.output.wait(time, None))
    }

    /// Puts the terminal back, says what there was in all, and writes the report.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        let Some(summary) = &self.summary else {
            return self.output.finish("");
        };
        if let Some(path) = &self.args.report {
            let page = report::page(self.args, &self.place, summary, &self.totals);
            std::fs::write(path, page)
                .with_context(|| format!("cannot write the report {}", path.display()))?;
        }
        let mut text = ending(summary, &self.totals);
        if let Some(path) = &self.args.report {
            text += &format!("report: {}\n", path.display());
        }
        self.output.finish(&text)
    }
}
