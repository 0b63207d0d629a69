//! What happened and what was decided: into the log, onto standard output and into the log of the
//! process.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use batchwise_core::balance::report::{DecisionLine, EventLine, Line};

use crate::watch::wall_clock_ns;

/// So many events are shown by `status`.
const RECENT: usize = 20;

/// Keeps the log.
pub struct Journal {
    log: Option<File>,
    /// Not shown yet.
    pending: Vec<Line>,
    recent: Vec<EventLine>,
}

/// Whom an event is about.
#[derive(Clone, Copy, Debug, Default)]
pub struct About<'a> {
    /// The service's name.
    pub service: Option<&'a str>,
    /// The backend's name.
    pub backend: Option<&'a str>,
}

impl<'a> About<'a> {
    /// A backend of a service.
    pub fn backend(service: &'a str, backend: &'a str) -> Self {
        Self {
            service: Some(service),
            backend: Some(backend),
        }
    }

    /// A service.
    pub fn service(service: &'a str) -> Self {
        Self {
            service: Some(service),
            backend: None,
        }
    }
}

impl Journal {
    /// Opens the log for appending.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(log: Option<&Path>) -> anyhow::Result<Self> {
        let open = |path: &Path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.with_context(|| {
                let path = path.display();
                format!("cannot write {path}: --log needs a folder that exists, and leave to write there")
            })
        };
        Ok(Self {
            log: log.map(open).transpose()?,
            pending: Vec::new(),
            recent: Vec::new(),
        })
    }

    /// Something happened.
    pub fn event(&mut self, what: &str, about: About<'_>, detail: impl Into<String>) {
        let line = EventLine {
            ts_ns: wall_clock_ns(),
            what: what.to_owned(),
            service: about.service.map(str::to_owned),
            backend: about.backend.map(str::to_owned),
            detail: detail.into(),
        };
        if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        self.recent.push(line.clone());
        self.write(Line::Event(line));
    }

    /// As [`Self::event`], and worth a warning.
    pub fn warn(&mut self, what: &str, about: About<'_>, detail: &str) {
        match (about.service, about.backend) {
            (Some(service), Some(backend)) => tracing::warn!("{service}/{backend}: {detail}"),
            (Some(service), None) => tracing::warn!("{service}: {detail}"),
            _ => tracing::warn!("{detail}"),
        }
        self.event(what, about, detail);
    }

    /// Something was decided.
    pub fn decision(&mut self, line: DecisionLine) {
        self.write(Line::Decision(line));
    }

    /// What was written since the last call.
    pub fn take(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.pending)
    }

    /// The last events, oldest first.
    pub fn recent(&self) -> &[EventLine] {
        &self.recent
    }

    fn write(&mut self, line: Line) {
        if let Some(log) = &mut self.log {
            let written = serde_json::to_vec(&line).map_err(std::io::Error::other);
            let written = written.and_then(|mut text| {
                text.push(b'\n');
                log.write_all(&text)
            });
            if let Err(error) = written {
                tracing::warn!(
                    "the log cannot be written any more ({error}): free space and restart"
                );
                self.log = None;
            }
        }
        self.pending.push(line);
    }
}
