//! How much of its own time a process has had: what a slow machine, a CPU quota or busy neighbours take
//! from it does not count. While it is asleep or stopped all time is its own.

use std::fs;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

/// Measures from some moment on.
pub struct OwnTime {
    of: Pid,
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

impl OwnTime {
    /// Begins now.
    pub fn begin(of: Pid) -> Self {
        Self {
            of,
            begin: Instant::now(),
            at_begin: Usage::of(of),
        }
    }

    /// The process's own time since.
    pub fn passed(&self) -> Duration {
        let now = Usage::of(self.of);
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
    /// All time is its own where the kernel does not tell.
    fn of(pid: Pid) -> Self {
        let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}"));
        let (stat, schedstat) = (read("stat"), read("schedstat"));
        Self::parse(&stat.unwrap_or_default(), &schedstat.unwrap_or_default())
    }

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
    fn all_time_counts_where_the_kernel_does_not_tell() {
        let unknown = Usage::parse("7 (a) R 1", "");
        assert_eq!(own(unknown, unknown, 900 * MS), 900 * MS);
        assert_eq!(own(unknown, Usage::parse("", ""), 900 * MS), 900 * MS);
    }
}
