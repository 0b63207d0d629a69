//! A command that prints lines while it runs, most often of JSON: started in a host, its lines parsed
//! as they come.

use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;

use crate::host::{Host, Role};
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
    /// Starts `command` in `host`, which prints a `T` as JSON on each line; messages call it `name`.
    pub fn start(host: &Host, name: &str, command: Command, role: Role) -> Result<Self> {
        let process = host.spawn(name, command, role)?;
        Ok(Self::read(name, process, json))
    }
}

impl Printing<String> {
    /// The same for lines of any text.
    pub fn start_text(host: &Host, name: &str, command: Command, role: Role) -> Result<Self> {
        let process = host.spawn(name, command, role)?;
        Ok(Self::read(name, process, Ok))
    }

    /// All that it printed.
    pub fn text(&self) -> String {
        self.with_lines(|lines| lines.join("\n"))
    }
}

impl<T: Send + 'static> Printing<T> {
    fn read(
        name: &str,
        mut process: Process,
        parse: impl Fn(String) -> Result<T, String> + Send + 'static,
    ) -> Self {
        let printed = Arc::new(Mutex::new(Printed {
            lines: Vec::new(),
            unreadable: None,
        }));
        let sink = printed.clone();
        let reader = process.on_line(move |text| {
            let line = parse(text);
            let mut sink = lock(&sink);
            match line {
                Ok(line) => sink.lines.push(line),
                Err(why) => {
                    sink.unreadable.get_or_insert(why);
                }
            }
        });
        Self {
            name: name.to_owned(),
            process,
            printed,
            reader: Some(reader),
        }
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

    /// Waits until it has ended by itself and its last line is read; after `limit` it is killed and that
    /// is an error.
    ///
    /// # Errors
    /// It did not end, or the wait was stopped.
    pub fn wait(&mut self, stop: &Stop, limit: Duration) -> Result<ExitStatus> {
        let status = self.process.wait(stop, limit)?;
        self.finish_reading();
        Ok(status)
    }

    /// Sends a signal that ends it, and waits for that.
    ///
    /// # Errors
    /// It did not end within `limit`, or printed something else than its lines.
    pub fn end(&mut self, signal: Signal, limit: Duration) -> Result<ExitStatus> {
        kill(self.pid(), signal)?;
        let status = self.wait(&Stop::default(), limit)?;
        self.check_lines()?;
        Ok(status)
    }

    /// Asks it to end, waits for that and its last line, and kills it after `grace`.
    pub fn terminate(&mut self, grace: Duration) {
        self.process.terminate(grace);
        self.finish_reading();
    }

    /// Ends a command that must still run and has printed nothing else than its lines: asks it to, and
    /// kills it after `grace`. Gives the lines that were not taken yet.
    ///
    /// # Errors
    /// See [`Self::check`].
    pub fn finish(mut self, grace: Duration) -> Result<Vec<T>> {
        self.process.check_alive()?;
        self.terminate(grace);
        self.check_lines()?;
        Ok(self.take_lines())
    }

    fn finish_reading(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.finish();
        }
    }
}

fn json<T: DeserializeOwned>(text: String) -> Result<T, String> {
    serde_json::from_str(&text).map_err(|error| format!("{text:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    /// A script whose lines are numbers.
    fn numbers(script: &str) -> Printing<u32> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = Process::start("the script", command).unwrap();
        Printing::read("the script", process, json)
    }

    fn until_first_line(printing: &Printing<u32>) {
        let some = || Ok(printing.with_lines(|lines| lines.first().copied()));
        let line = Stop::default().wait_until(LIMIT, some).unwrap();
        assert!(line.is_some());
    }

    const LIMIT: Duration = Duration::from_secs(10);
    /// Prints a number, and another one when it is asked to end.
    const POLITE: &str = "trap 'echo 2; exit 0' TERM; echo 1; while :; do sleep 0.01; done";

    #[test]
    fn lines_are_parsed_and_the_first_that_is_none_is_an_error_that_shows_it() {
        let mut printing = numbers("echo 1; echo Segmentation fault; echo 2; echo oh");
        assert!(printing.wait(&Stop::default(), LIMIT).unwrap().success());
        assert_eq!(printing.take_lines(), [1, 2]);
        let error = printing.check_lines().unwrap_err().to_string();
        assert!(error.contains("Segmentation fault"), "{error}");
    }

    #[test]
    fn what_it_prints_on_its_way_out_is_read_before_its_end_is_told() {
        let mut signalled = numbers(POLITE);
        until_first_line(&signalled);
        assert!(signalled.end(Signal::SIGTERM, LIMIT).unwrap().success());
        assert_eq!(signalled.take_lines(), [1, 2]);
        let finished = numbers(POLITE);
        until_first_line(&finished);
        assert_eq!(finished.finish(LIMIT).unwrap(), [1, 2]);
    }

    #[test]
    fn one_that_ended_by_itself_was_not_finished() {
        let mut ended = numbers("echo 1");
        ended.wait(&Stop::default(), LIMIT).unwrap();
        assert!(ended.finish(LIMIT).is_err());
    }
}
