//! A command that prints lines of JSON while it runs: started in a host, its lines parsed as they
//! come.

use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;

use crate::host::{Host, Place};
use crate::process::{Process, Reader, lock};
use crate::stop::Stop;

/// A running command and the lines that it printed. Dropping it ends it.
#[derive(Debug)]
pub struct Printing<T> {
    name: String,
    process: Process,
    printed: Arc<Mutex<Printed<T>>>,
    reader: Option<Reader>,
}

#[derive(Debug)]
struct Printed<T> {
    lines: Vec<T>,
    unreadable: Option<String>,
}

impl<T: DeserializeOwned + Send + 'static> Printing<T> {
    /// Starts `command` in `host`; messages call it `name`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(host: &Host, name: &str, command: Command, place: Place) -> Result<Self> {
        let mut process = host.spawn(name, command, place)?;
        let printed = Arc::new(Mutex::new(Printed {
            lines: Vec::new(),
            unreadable: None,
        }));
        let sink = printed.clone();
        let reader = process.on_line(move |text| {
            let mut sink = lock(&sink);
            match serde_json::from_str(&text) {
                Ok(line) => sink.lines.push(line),
                Err(error) => {
                    sink.unreadable
                        .get_or_insert_with(|| format!("{text:?}: {error}"));
                }
            }
        });
        Ok(Self {
            name: name.to_owned(),
            process,
            printed,
            reader: Some(reader),
        })
    }

    /// The process itself.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// The end of its standard error, as the second half of a message.
    pub fn quote(&self) -> String {
        self.process.quote()
    }

    /// Fails when it has ended, or printed something else than its lines.
    ///
    /// # Errors
    /// Says what.
    pub fn check(&mut self) -> Result<()> {
        self.process.check_alive()?;
        self.check_lines()
    }

    fn check_lines(&self) -> Result<()> {
        match &lock(&self.printed).unreadable {
            Some(what) => bail!("{} printed something that is no line: {what}", self.name),
            None => Ok(()),
        }
    }

    /// What `look` sees in the lines so far.
    pub fn with_lines<R>(&self, look: impl FnOnce(&[T]) -> R) -> R {
        look(&lock(&self.printed).lines)
    }

    /// The lines so far; they are forgotten here.
    pub fn take_lines(&self) -> Vec<T> {
        std::mem::take(&mut lock(&self.printed).lines)
    }

    /// Asks it to end, and waits for that and its last line; kills it after `grace`.
    pub fn terminate(&mut self, grace: Duration) {
        self.process.terminate(grace);
        self.finish_reading();
    }

    /// Sends a signal that ends it, and waits for that and its last line; after `limit` it is killed
    /// and that is an error.
    ///
    /// # Errors
    /// It did not end by itself, or printed something else than its lines.
    pub fn end(&mut self, signal: Signal, limit: Duration) -> Result<ExitStatus> {
        kill(self.pid(), signal)?;
        let status = self.process.wait(&Stop::default(), limit)?;
        self.finish_reading();
        self.check_lines()?;
        Ok(status)
    }

    fn finish_reading(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.finish();
        }
    }
}
