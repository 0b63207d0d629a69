//! Everything that is counted during a run. A request belongs to the measured window, and to the
//! phase of it, in which its intended send time lies.

use anyhow::Result;

use crate::arrival_check::GapCollector;
use crate::conn::Entry;
use crate::phase::Stretch;
use crate::progress::Progress;
use crate::rate::Arrivals;
use crate::tally::Tally;

pub(crate) struct Recorder {
    /// The window, ns since the start of the run.
    pub from: u64,
    pub to: u64,
    /// One for each phase; together they are the window.
    pub phases: Vec<Tally>,
    /// Good replies that arrived within the window, whenever their requests were due.
    pub completed: u64,
    pub gaps: GapCollector,
    pub progress: Option<Progress>,
    last_arrival: u64,
}

impl Recorder {
    pub fn new(stretches: &[Stretch], arrivals: Arrivals, progress: Option<Progress>) -> Self {
        let phases = stretches.iter().map(|s| Tally::new(s.from, s.to));
        Self {
            from: stretches.first().map_or(0, |first| first.from),
            to: stretches.last().map_or(0, |last| last.to),
            phases: phases.collect(),
            completed: 0,
            gaps: GapCollector::new(arrivals),
            progress,
            last_arrival: 0,
        }
    }

    fn in_window(&self, ns: u64) -> bool {
        self.from <= ns && ns < self.to
    }

    /// The phase of a request that was due at `ns`; none outside of the window.
    fn phase(&mut self, ns: u64) -> Option<&mut Tally> {
        if !self.in_window(ns) {
            return None;
        }
        self.phases.iter_mut().find(|phase| ns < phase.to)
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
        if let Some(phase) = self.phase(intended) {
            phase.requests += 1;
            if let Some(progress) = &mut self.progress {
                progress.current.arrivals += 1;
            }
        }
    }

    /// The kernel took the first byte of a request, in a call that ended at `after`.
    pub fn sent(&mut self, entry: &Entry, after: u64) {
        if let Some(phase) = self.phase(entry.intended) {
            phase.lateness.record(entry.actual - entry.intended);
            phase.send_cost.record(after - entry.actual);
            self.gaps.sent_at(entry.actual);
        }
    }

    /// A request was not taken whole at the first try.
    pub fn held_back(&mut self, intended: u64) {
        if let Some(phase) = self.phase(intended) {
            phase.backpressure += 1;
        }
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
        if let Some(phase) = self.phase(entry.intended) {
            phase.completed += u64::from(now < phase.to);
            phase.intended.record(latency);
            phase.from_send.record(now - entry.actual);
        }
    }

    /// A request got an error, or will never be answered.
    pub fn failed(&mut self, intended: u64) {
        if let Some(phase) = self.phase(intended) {
            phase.errors += 1;
        }
    }

    /// Ends the progress interval if it is time.
    pub fn tick(&mut self, now: u64) -> Result<()> {
        self.progress
            .as_mut()
            .map_or(Ok(()), |progress| progress.tick(now))
    }

    /// Ends the last progress interval, at `now` or at the end of the window if that was before.
    pub fn finish(&mut self, now: u64) -> Result<()> {
        self.progress
            .take()
            .map_or(Ok(()), |progress| progress.finish(now))
    }

    /// Cuts the window short, and with it the phases; those that had not begun are gone.
    pub fn end_at(&mut self, now: u64) {
        self.to = self.to.min(now);
        self.phases.retain(|phase| phase.from < now);
        if let Some(last) = self.phases.last_mut() {
            last.to = last.to.min(now);
        }
    }
}
