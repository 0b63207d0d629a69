//! Everything that is counted during a run. A request belongs to the measured window if its
//! intended send time lies in it.

use crate::Error;
use crate::arrival_check::GapCollector;
use crate::conn::Entry;
use crate::progress::{Progress, Stopped};
use crate::samples::Samples;
use crate::schedule::Arrivals;
use crate::send_cost::SendCost;

pub(crate) struct Recorder {
    /// The window, ns since the start of the run.
    pub from: u64,
    pub to: u64,
    pub requests: u64,
    pub errors: u64,
    pub backpressure: u64,
    /// Good replies that arrived within the window, whenever their requests were due.
    pub completed: u64,
    pub intended: Samples,
    pub from_send: Samples,
    pub lateness: Samples,
    pub send_cost: SendCost,
    pub gaps: GapCollector,
    pub progress: Option<Progress>,
    last_arrival: u64,
}

impl Recorder {
    pub fn new(
        from: u64,
        to: u64,
        arrivals: Arrivals,
        progress: Option<Progress>,
    ) -> Result<Self, Error> {
        Ok(Self {
            from,
            to,
            requests: 0,
            errors: 0,
            backpressure: 0,
            completed: 0,
            intended: Samples::new()?,
            from_send: Samples::new()?,
            lateness: Samples::new()?,
            send_cost: SendCost::default(),
            gaps: GapCollector::new(arrivals),
            progress,
            last_arrival: 0,
        })
    }

    fn in_window(&self, ns: u64) -> bool {
        self.from <= ns && ns < self.to
    }

    /// A request was due at `intended`; `per_ns` is the expected rate, requests per ns.
    pub fn arrival(&mut self, intended: u64, per_ns: f64) {
        let gap = intended - self.last_arrival;
        self.last_arrival = intended;
        if self.in_window(intended) {
            self.gaps.intended_gap(gap, per_ns);
            self.counted(intended);
        }
    }

    /// A request of a closed loop, which is due when it is sent.
    pub fn counted(&mut self, intended: u64) {
        if self.in_window(intended) {
            self.requests += 1;
            if let Some(progress) = &mut self.progress {
                progress.current.arrivals += 1;
            }
        }
    }

    /// The kernel took the first byte of a request, in a call that ended at `after`.
    pub fn sent(&mut self, entry: &Entry, after: u64) {
        if self.in_window(entry.intended) {
            self.lateness.record(entry.actual - entry.intended);
            self.gaps.sent_at(entry.actual);
            self.send_cost.record(after - entry.actual);
        }
    }

    /// A request was not taken whole at the first try.
    pub fn held_back(&mut self, intended: u64) {
        self.backpressure += u64::from(self.in_window(intended));
    }

    /// A good reply arrived at `now`.
    pub fn answered(&mut self, entry: &Entry, now: u64) {
        let latency = now - entry.intended;
        if self.in_window(now) {
            self.completed += 1;
            if let Some(progress) = &mut self.progress {
                progress.current.latency.record(latency);
                progress.current.from_send.record(now - entry.actual);
            }
        }
        if self.in_window(entry.intended) {
            self.intended.record(latency);
            self.from_send.record(now - entry.actual);
        }
    }

    /// A request got an error, or will never be answered.
    pub fn failed(&mut self, intended: u64) {
        self.errors += u64::from(self.in_window(intended));
    }

    /// Ends the progress interval if it is time.
    pub fn tick(&mut self, now: u64) -> Result<(), Stopped> {
        self.progress
            .as_mut()
            .map_or(Ok(()), |progress| progress.tick(now))
    }

    /// Ends the last progress interval, at `now` or at the end of the window if that was before.
    pub fn finish(&mut self, now: u64) -> Result<(), Stopped> {
        self.progress
            .take()
            .map_or(Ok(()), |progress| progress.finish(now))
    }

    /// Cuts the window short.
    pub fn end_at(&mut self, now: u64) {
        self.to = self.to.min(now);
    }
}
