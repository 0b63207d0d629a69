//! Child processes that cannot outlive the lab: started inside a host, killed when dropped, and
//! by the kernel when the lab itself dies.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::stop::Stop;

/// How many lines of standard error are kept for error messages.
const TAIL_LINES: usize = 12;
/// For what a process that has ended wrote last to be read.
const LAST_LINES: Duration = Duration::from_secs(1);

/// A running child and the last lines that it wrote to standard error.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    tail: Arc<Mutex<VecDeque<String>>>,
    errors: Reader,
}

impl Process {
    /// Starts `command`, which the messages call `name`. Pipe its standard error for the messages
    /// to quote it.
    pub fn start(name: &str, mut command: Command) -> Result<Self> {
        let mut child = command.spawn().with_context(|| {
            format!(
                "starting {name} ({})",
                command.get_program().to_string_lossy()
            )
        })?;
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let mut errors = Reader(None);
        if let Some(stderr) = child.stderr.take() {
            let tail = tail.clone();
            errors = read_lines(stderr, move |line| {
                let mut tail = lock(&tail);
                if tail.len() == TAIL_LINES {
                    tail.pop_front();
                }
                tail.push_back(line);
            });
        }
        Ok(Self {
            name: name.to_owned(),
            child,
            tail,
            errors,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        // The kernel's ids fit: they are positive i32s.
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Reads each line of its standard output, in a thread of its own, until it closes it.
    pub fn on_line(&mut self, each: impl FnMut(String) + Send + 'static) -> Reader {
        match self.child.stdout.take() {
            Some(stdout) => read_lines(stdout, each),
            None => Reader(None),
        }
    }

    /// Nobody reads its standard output from now on.
    pub fn close_output(&mut self) {
        drop(self.child.stdout.take());
    }

    /// Fails, quoting standard error, when the process has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!(
                "{} ended unexpectedly ({status}){}",
                self.name,
                self.quote()
            ),
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end; after `limit` it is killed and that is an error.
    pub fn wait(&mut self, stop: &Stop, limit: Duration) -> Result<ExitStatus> {
        let child = &mut self.child;
        match stop.wait_until(limit, || Ok(child.try_wait()?))? {
            Some(status) => {
                // a child of its own may keep the pipe open
                let read = || Ok(self.errors.is_done().then_some(()));
                stop.wait_until(LAST_LINES, read)?;
                Ok(status)
            }
            None => {
                self.kill();
                bail!(
                    "{} did not end within {limit:?} and was killed{}",
                    self.name,
                    self.quote()
                )
            }
        }
    }

    /// Asks it to end with SIGTERM, and kills it when it has not after `grace`.
    pub fn terminate(&mut self, grace: Duration) {
        let _ = kill(self.pid(), Signal::SIGTERM);
        let child = &mut self.child;
        let ended = Stop::default().wait_until(grace, || Ok(child.try_wait()?));
        if !matches!(ended, Ok(Some(_))) {
            self.kill();
        }
    }

    /// The end of its standard error, as the second half of a message.
    pub fn quote(&self) -> String {
        let tail = lock(&self.tail);
        if tail.is_empty() {
            return String::from("; it wrote nothing to standard error");
        }
        let lines: Vec<_> = tail.iter().map(String::as_str).collect();
        format!("; it wrote: {}", lines.join(" / "))
    }

    fn kill(&mut self) {
        // It may have ended by itself; it is reaped either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.kill();
        }
    }
}

/// A thread that reads lines until the pipe is closed.
#[derive(Debug)]
pub struct Reader(Option<JoinHandle<()>>);

impl Reader {
    fn is_done(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until every line was handed over: the writer has closed its end.
    pub fn finish(mut self) {
        if let Some(thread) = self.0.take() {
            // A panic in the thread was printed there already.
            let _ = thread.join();
        }
    }
}

fn read_lines(
    from: impl Read + Send + 'static,
    mut each: impl FnMut(String) + Send + 'static,
) -> Reader {
    Reader(Some(std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { break };
            each(line);
        }
    })))
}

/// CPU time that a process has used, user and system, in threads that live and that ended.
pub fn cpu_time(pid: Pid) -> Result<Duration> {
    let used = clock_getcpuclockid(pid).and_then(clock_gettime);
    Ok(used
        .with_context(|| format!("reading the CPU clock of process {pid}"))?
        .into())
}

/// Memory of a process in bytes, as a field of its status says: `VmRSS`, `RssAnon`.
pub fn memory(pid: Pid, field: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = status.lines().find_map(|line| {
        let value = line.strip_prefix(field)?.strip_prefix(':')?;
        value.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    Ok(kib.with_context(|| format!("no {field} in: {status}"))? << 10)
}

/// The processes that this one has started.
pub fn children(pid: Pid) -> Vec<Pid> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.unwrap_or_default();
    let pids = text.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.map(Pid::from_raw).collect()
}

/// Wall-clock time, ns since 1970.
pub fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a clock after 1970").as_nanos() as u64
}

/// Locks, also after a panic elsewhere: the data are lines, valid one by one.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::time::ClockId;
    use std::process::Stdio;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .stderr(Stdio::piped())
            .stdout(Stdio::piped());
        Process::start("the script", command).unwrap()
    }

    #[test]
    fn a_process_that_ends_too_early_is_an_error_that_quotes_it() {
        let mut process = shell("echo no such port >&2; exit 3");
        process.child.wait().unwrap();
        let stop = Stop::default();
        let quoted = stop.wait_until(Duration::from_secs(10), || {
            let error = process.check_alive().unwrap_err().to_string();
            Ok(error.contains("no such port").then_some(error))
        });
        assert!(quoted.unwrap().unwrap().contains("exit status: 3"));
    }

    #[test]
    fn a_process_that_takes_too_long_is_killed() {
        let mut process = shell("exec sleep 3600");
        let pid = process.pid();
        let error = process
            .wait(&Stop::default(), Duration::from_millis(50))
            .unwrap_err();
        assert!(error.to_string().contains("was killed"));
        assert!(kill(pid, None).is_err(), "it is still there");
    }

    #[test]
    fn the_cpu_time_of_a_thread_that_ended_counts() {
        let before = cpu_time(Pid::this()).unwrap();
        let spent = std::thread::spawn(|| {
            let clock = ClockId::CLOCK_THREAD_CPUTIME_ID;
            loop {
                let spent: Duration = clock_gettime(clock).unwrap().into();
                if spent > Duration::from_millis(5) {
                    break spent;
                }
            }
        });
        let spent = spent.join().unwrap();
        assert!(cpu_time(Pid::this()).unwrap() >= before + spent);
    }

    #[test]
    fn the_cpu_time_of_a_process_grows_while_it_works() {
        let before = cpu_time(Pid::this()).unwrap();
        while cpu_time(Pid::this()).unwrap() == before {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn every_line_of_standard_output_is_handed_over() {
        let mut process = shell("echo a; echo b");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        let reader = process.on_line(move |line| lock(&sink).push(line));
        process
            .wait(&Stop::default(), Duration::from_secs(10))
            .unwrap();
        reader.finish();
        assert_eq!(*lock(&lines), ["a", "b"]);
    }
}
