//! How much of its own time a process has had: what a slow machine, a CPU quota or busy neighbours take
//! from it does not count. While it is asleep or stopped all time is its own.

use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

/// Where the kernel tells it. The files are opened and read ahead: what does so waits while a memory cgroup is
/// full, and the buffer of a file that was read once stays (seq_read_iter).
#[derive(Debug)]
pub struct Accounts {
    stat: Option<File>,
    schedstat: Option<File>,
}

/// Measures from some moment on.
pub struct OwnTime<'a> {
    of: &'a Accounts,
    begin: Instant,
    at_begin: Usage,
}

/// A process's first thread, as the scheduler accounts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Usage {
    /// It runs, or waits for a CPU.
    runnable: bool,
    /// On a CPU.
    ran: Duration,
    /// It waited for one; a wait that goes on is not in it.
    waited: Duration,
}

impl Accounts {
    /// Those of a process; all time is its own where there are none.
    pub fn open(of: Pid) -> Self {
        let open = |file| File::open(format!("/proc/{of}/{file}")).ok();
        let accounts = Self {
            stat: open("stat"),
            schedstat: open("schedstat"),
        };
        accounts.usage();
        accounts
    }

    fn usage(&self) -> Usage {
        let (mut stat, mut schedstat) = ([0; 1024], [0; 128]);
        Usage::parse(
            &read(self.stat.as_ref(), &mut stat),
            &read(self.schedstat.as_ref(), &mut schedstat),
        )
    }
}

/// What a file says now; nothing where its process is gone.
fn read<'a>(file: Option<&File>, text: &'a mut [u8]) -> Cow<'a, str> {
    let length = file.and_then(|file| file.read_at(text, 0).ok());
    // a process's name may be anything
    String::from_utf8_lossy(&text[..length.unwrap_or(0)])
}

impl<'a> OwnTime<'a> {
    /// Begins now.
    pub fn begin(of: &'a Accounts) -> Self {
        Self {
            of,
            begin: Instant::now(),
            at_begin: of.usage(),
        }
    }

    /// The process's own time since.
    pub fn passed(&self) -> Duration {
        let now = self.of.usage();
        own(self.at_begin, now, self.begin.elapsed())
    }
}

fn own(begin: Usage, now: Usage, elapsed: Duration) -> Duration {
    match now.runnable {
        // it may be waiting for a CPU since its beginning
        true => now.ran.saturating_sub(begin.ran),
        false => elapsed.saturating_sub(now.waited.saturating_sub(begin.waited)),
    }
}

impl Usage {
    fn parse(stat: &str, schedstat: &str) -> Self {
        let mut ns = schedstat.split_whitespace().map(str::parse);
        let mut next = || ns.next()?.ok().map(Duration::from_nanos);
        let (ran, waited) = (next(), next());
        // the name before the state may have anything in it
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
        Self {
            runnable: ran.is_some() && state.is_some_and(|state| state.starts_with('R')),
            ran: ran.unwrap_or_default(),
            waited: waited.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn usage(state: char, ran: u32, waited: u32) -> Usage {
        let ns = |ms: u32| u64::from(ms) * 1_000_000;
        let stat = format!("7 (a) S (b) {state} 1 7 7");
        Usage::parse(&stat, &format!("{} {} 9\n", ns(ran), ns(waited)))
    }

    #[test]
    fn waiting_for_a_cpu_does_not_count_and_all_else_does() {
        let begin = usage('S', 100, 1000);
        for (now, counts) in [
            // asleep, stopped, in the kernel: all time but what it waited
            (usage('S', 100, 1000), 900),
            (usage('T', 100, 1000), 900),
            (usage('D', 110, 1700), 200),
            // runnable: it may wait since the beginning
            (usage('R', 100, 1000), 0),
            (usage('R', 140, 1300), 40),
            // in an endless loop
            (usage('R', 950, 1050), 850),
        ] {
            assert_eq!(own(begin, now, 900 * MS), counts * MS, "{now:?}");
        }
    }

    #[test]
    fn files_that_are_open_tell_of_now_and_of_the_end() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("sh");
        let accounts = Accounts::open(Pid::from_raw(child.id() as i32));
        let first = accounts.usage().ran;
        while accounts.usage().ran < first + 20 * MS {
            std::thread::yield_now();
        }
        child.kill().expect("it is there");
        child.wait().expect("it is ours");
        assert_eq!(accounts.usage(), Usage::parse("", ""));
    }

    #[test]
    fn all_time_counts_where_the_kernel_does_not_tell() {
        let unknown = Usage::parse("7 (a) R 1", "");
        assert_eq!(own(unknown, unknown, 900 * MS), 900 * MS);
        assert_eq!(own(unknown, Usage::parse("", ""), 900 * MS), 900 * MS);
    }
}
