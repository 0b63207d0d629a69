//! What happened and what was decided: into the log, onto standard output and into the log of the
//! process.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use batchwise_core::balance::Why;
use batchwise_core::balance::report::{DecisionLine, EventLine, Line};

use crate::frame::clock::wall_clock_ns;
use crate::frame::log::LogFile;

/// So many events are shown by `status`.
const RECENT: usize = 20;
/// A decision that decides nothing new is in the log so often at most, for each service.
const SAME_EVERY: Duration = Duration::from_secs(60);

pub struct Journal {
    log: Option<LogFile>,
    /// The last decisions in the log, by service.
    logged: BTreeMap<String, DecisionLine>,
    /// Not shown yet.
    pending: Vec<Line>,
    recent: Vec<EventLine>,
}

/// Whether `next` tells nothing that the `last` one in the log does not. Slots that only would move,
/// would again in each interval.
fn is_told(last: &DecisionLine, next: &DecisionLine) -> bool {
    let moved = if next.applied { 0 } else { last.moved_slots };
    let recent = u128::from(next.ts_ns.abs_diff(last.ts_ns)) < SAME_EVERY.as_nanos();
    let whys = |line: &DecisionLine| -> Vec<(String, Why)> {
        let backends = line.backends.iter();
        backends.map(|b| (b.backend.clone(), b.why)).collect()
    };
    recent && next.moved_slots == moved && whys(next) == whys(last)
}

impl Journal {
    pub fn open(log: Option<&Path>) -> anyhow::Result<Self> {
        Ok(Self {
            log: log.map(LogFile::open).transpose()?,
            logged: BTreeMap::new(),
            pending: Vec::new(),
            recent: Vec::new(),
        })
    }

    /// Opens the log anew, which may have been moved away.
    pub fn reopen(&self) {
        if let Some(log) = &self.log {
            log.reopen();
        }
    }

    pub fn dropped(&self) -> u64 {
        self.log.as_ref().map_or(0, LogFile::dropped)
    }

    /// Something happened; `about`: a service, or a service and its backend, or nobody in particular.
    pub fn event(&mut self, what: &str, about: &[&str], detail: impl Into<String>) {
        let mut about = about.iter().copied().map(str::to_owned);
        let line = EventLine {
            ts_ns: wall_clock_ns(),
            what: what.to_owned(),
            service: about.next(),
            backend: about.next(),
            detail: detail.into(),
        };
        if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        self.recent.push(line.clone());
        let line = Line::Event(line);
        self.log(&line);
        self.pending.push(line);
    }

    /// As [`Self::event`], and worth a warning.
    pub fn warn(&mut self, what: &str, about: &[&str], detail: &str) {
        match about {
            [] => tracing::warn!("{detail}"),
            _ => tracing::warn!("{}: {detail}", about.join("/")),
        }
        self.event(what, about, detail);
    }

    /// Something was decided, or nothing: that is shown each time, and in the log now and then.
    pub fn decision(&mut self, line: DecisionLine) {
        let last = self.logged.get(&line.service);
        if last.is_none_or(|last| !is_told(last, &line)) {
            self.logged.insert(line.service.clone(), line.clone());
            self.log(&Line::Decision(line.clone()));
        }
        self.pending.push(Line::Decision(line));
    }

    pub fn take(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.pending)
    }

    /// The last events, oldest first.
    pub fn recent(&self) -> &[EventLine] {
        &self.recent
    }

    fn log(&mut self, line: &Line) {
        if let Some(log) = &mut self.log {
            log.line(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::path::PathBuf;

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    fn decision(second: u64, moved_slots: u64, why: Why) -> DecisionLine {
        let line = json!({
            "ts_ns": second * 1_000_000_000,
            "service": "web", "policy": "latency", "applied": true, "moved_slots": moved_slots,
            "backends": [{
                "backend": "s1", "latency_ns": null, "samples": 0, "connections": 0,
                "freshness": null, "before": 100_000, "after": 100_000, "why": why,
            }],
        });
        serde_json::from_value(line).expect("a decision")
    }

    /// A journal, and where its log is.
    fn journal() -> (TempDir, PathBuf, Journal) {
        let folder = TempDir::new().expect("a folder");
        let path = folder.path().join("a.jsonl");
        let journal = Journal::open(Some(&path)).expect("a log");
        (folder, path, journal)
    }

    fn lines(path: &Path, journal: &Journal) -> usize {
        journal.log.as_ref().expect("a log").flush();
        fs::read_to_string(path).expect("a log").lines().count()
    }

    #[test]
    fn decisions_that_decide_nothing_new_are_all_shown_and_once_a_minute_in_the_log() {
        let (_folder, path, mut journal) = journal();
        let mut logged = 0;
        for (second, moved, why, new) in [
            (100, 0, Why::Steady, 1),
            (101, 0, Why::Steady, 0),
            (159, 0, Why::Steady, 0),
            (160, 0, Why::Steady, 1),
            (161, 5, Why::Steady, 1),
            (162, 5, Why::Steady, 1),
            (163, 0, Why::Steady, 0),
            (164, 0, Why::Slow, 1),
            (165, 0, Why::Steady, 1),
            // the clock was set
            (5, 0, Why::Steady, 1),
        ] {
            journal.decision(decision(second, moved, why));
            logged += new;
            assert_eq!(lines(&path, &journal), logged, "after {second}");
        }
        let mut other = decision(6, 0, Why::Steady);
        other.service = "dns".to_owned();
        journal.decision(other);
        assert_eq!(lines(&path, &journal), logged + 1);
        assert_eq!(journal.take().len(), 11);
    }

    #[test]
    fn what_observing_would_do_is_in_the_log_when_it_changes() {
        let (_folder, path, mut journal) = journal();
        for (second, would_move, logged) in [(1, 7, 1), (2, 7, 1), (3, 8, 2), (4, 0, 3), (5, 0, 3)]
        {
            let line = decision(second, would_move, Why::Slow);
            journal.decision(DecisionLine {
                applied: false,
                ..line
            });
            assert_eq!(lines(&path, &journal), logged, "after {second}");
        }
    }

    #[test]
    fn a_log_goes_on_after_it_was_copied_and_truncated() {
        let (_folder, path, mut journal) = journal();
        journal.event("reload", &[], "one");
        assert_eq!(lines(&path, &journal), 1);
        let file = OpenOptions::new().write(true).open(&path);
        file.and_then(|f| f.set_len(0)).expect("truncated");
        journal.event("reload", &[], "two");
        assert_eq!(lines(&path, &journal), 1);
        let text = fs::read_to_string(&path).expect("a log");
        assert!(text.starts_with("{\"kind\":\"event\""), "{text:?}");
    }
}
