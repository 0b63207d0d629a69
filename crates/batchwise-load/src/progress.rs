//! Interim reports, made on a thread of their own so that quantiles and output never delay the
//! load. Two sets of samples go back and forth between the generator and that thread.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use anyhow::{Context, Result, bail};

use crate::clock::Clock;
use crate::phase::Stretch;
use crate::report::Interval;
use crate::samples::Samples;

/// The reading side has ended: it has the reason itself.
const NO_READER: &str = "nobody reads the interval reports";

/// What happened in one interval.
#[derive(Default)]
pub(crate) struct IntervalSamples {
    pub from: u64,
    pub to: u64,
    /// The phase in which it began.
    pub phase: usize,
    pub arrivals: u64,
    pub latency: Samples,
    pub from_send: Samples,
}

impl IntervalSamples {
    fn report(&self, clock: &Clock) -> Interval {
        let length = (self.to - self.from).max(1);
        let per_second = |count: u64| count as f64 * 1e9 / length as f64;
        Interval {
            ts_ns: clock.wall(self.to),
            interval_ns: length,
            phase: self.phase as u64,
            offered_rps: per_second(self.arrivals),
            achieved_rps: per_second(self.latency.count()),
            mean_ns: self.latency.mean(),
            p50_ns: self.latency.quantile(0.5),
            p99_ns: self.latency.quantile(0.99),
            mean_from_send_ns: self.from_send.mean(),
            p99_from_send_ns: self.from_send.quantile(0.99),
        }
    }

    fn reset(&mut self) {
        self.latency.reset();
        self.from_send.reset();
        self.arrivals = 0;
    }
}

/// The generator's end.
pub(crate) struct Progress {
    pub current: Box<IntervalSamples>,
    /// When the current interval ends.
    pub next_end: u64,
    every: u64,
    /// Begin of the first phase.
    from: u64,
    /// Ends of the phases.
    ends: Vec<u64>,
    full: SyncSender<Box<IntervalSamples>>,
    empty: Receiver<Box<IntervalSamples>>,
}

/// The reporting thread's end.
pub(crate) struct ProgressReader {
    full: Receiver<Box<IntervalSamples>>,
    empty: SyncSender<Box<IntervalSamples>>,
}

/// Intervals of `every` ns over these phases; the last interval of a phase is cut at its end.
pub(crate) fn channel(every: u64, stretches: &[Stretch]) -> (Progress, ProgressReader) {
    let from = stretches.first().map_or(0, |first| first.from);
    let (full, full_out) = sync_channel(2);
    let (empty_in, empty) = sync_channel(2);
    // Both channels have room for both sets: this cannot block or fail.
    let _ = empty_in.send(Box::default());
    let mut progress = Progress {
        current: Box::default(),
        next_end: from,
        every,
        from,
        ends: stretches.iter().map(|stretch| stretch.to).collect(),
        full,
        empty,
    };
    progress.current.from = from;
    progress.next_end = progress.end_after(from);
    let reader = ProgressReader {
        full: full_out,
        empty: empty_in,
    };
    (progress, reader)
}

impl Progress {
    /// Ends the interval at `now` if it is time. If the reader still holds the other set, the
    /// interval simply goes on. Fails if the reader is gone.
    pub fn tick(&mut self, now: u64) -> Result<()> {
        if now < self.next_end || self.next_end == self.end() {
            return Ok(());
        }
        self.next_end = self.end_after(now);
        match self.empty.try_recv() {
            Ok(spare) => self.flip(now.min(self.end()), spare),
            Err(TryRecvError::Empty) => Ok(()),
            Err(TryRecvError::Disconnected) => bail!(NO_READER),
        }
    }

    /// Ends the last interval at `now`, if it has begun: nothing follows that waiting for the
    /// reader could delay.
    pub fn finish(mut self, now: u64) -> Result<()> {
        let now = now.min(self.end());
        if now <= self.current.from {
            return Ok(());
        }
        let spare = self.empty.recv().context(NO_READER)?;
        self.flip(now, spare)
    }

    /// The end of the last phase.
    fn end(&self) -> u64 {
        self.ends.last().copied().unwrap_or(self.from)
    }

    /// When the interval that is under way at `now` ends.
    fn end_after(&self, now: u64) -> u64 {
        let intervals = (now.saturating_sub(self.from) / self.every).saturating_add(1);
        let by_time = self
            .from
            .saturating_add(intervals.saturating_mul(self.every));
        let phase = self.ends.iter().find(|&&end| end > now);
        phase.map_or(self.end(), |&end| end.min(by_time))
    }

    fn flip(&mut self, now: u64, spare: Box<IntervalSamples>) -> Result<()> {
        let mut done = std::mem::replace(&mut self.current, spare);
        done.to = now;
        self.current.from = now;
        self.current.phase = self.ends.iter().filter(|&&end| end <= now).count();
        self.full.send(done).context(NO_READER)
    }
}

impl ProgressReader {
    /// Reports until the generator is done or `emit` fails.
    pub fn run(self, clock: &Clock, mut emit: impl FnMut(&Interval) -> Result<()>) -> Result<()> {
        for mut samples in self.full {
            emit(&samples.report(clock))?;
            samples.reset();
            if self.empty.send(samples).is_err() {
                break;
            }
        }
        Ok(())
    }
}
