//! How much of a while a process had to itself: what a slow machine, a CPU quota or busy neighbours take from
//! it does not count. While it is asleep or stopped all time is its own, in an endless loop what it runs.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use nix::unistd::Pid;

/// In which the kernel tells CPU time to user space (USER_HZ).
const TICK: Duration = Duration::from_millis(10);

/// Of a process's first thread.
pub struct OwnTime {
    /// Opened and read ahead: what does so waits while a memory cgroup is full, and the buffer of a file that was
    /// read once stays (seq_read_iter).
    stat: Option<File>,
    /// CPU time that it had when it was last looked at, ticks.
    ran: u32,
}

impl OwnTime {
    pub fn open(of: Pid) -> Self {
        let stat = File::open(format!("/proc/{of}/task/{of}/stat")).ok();
        let mut own_time = Self { stat, ran: 0 };
        own_time.of(Duration::ZERO);
        own_time
    }

    /// How much of this time, which has just passed, was its own; all where the kernel does not tell.
    pub fn of(&mut self, time: Duration) -> Duration {
        let mut text = [0; 1024];
        let read = self.stat.as_ref().map(|stat| stat.read_at(&mut text, 0));
        let length = read.and_then(Result::ok).unwrap_or(0);
        // a process's name may be anything
        let usage = usage(&String::from_utf8_lossy(&text[..length]));
        let Some((runnable, ran)) = usage else {
            return time;
        };
        let since = ran.saturating_sub(std::mem::replace(&mut self.ran, ran));
        match runnable {
            true => (TICK * since).min(time),
            false => time,
        }
    }
}

/// Whether it runs or waits for a CPU, and the CPU time that it had, in ticks (proc_pid_stat(5)).
fn usage(stat: &str) -> Option<(bool, u32)> {
    // the name before the state may have anything in it
    let mut fields = stat.rsplit_once(") ")?.1.split_whitespace();
    let runnable = fields.next()? == "R";
    let mut ticks = fields.skip(10).map(str::parse::<u32>);
    Some((runnable, ticks.next()?.ok()? + ticks.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use nix::sys::signal::{Signal, kill};

    use super::*;

    const LOOK: Duration = Duration::from_millis(100);

    #[test]
    fn state_and_cpu_time_are_found_behind_any_name() {
        let stat = |state| format!("7 (a) S (b) {state} 1 7 7 0 -1 4194560 9 0 0 0 12 30 0 0 39");
        assert_eq!(usage(&stat('R')), Some((true, 42)));
        for asleep in ['S', 'T', 'D', 'Z'] {
            assert_eq!(usage(&stat(asleep)), Some((false, 42)), "{asleep}");
        }
        for unknown in ["", "7 (a) R 1", "7 (a"] {
            assert_eq!(usage(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn what_a_process_runs_is_its_own_time_and_all_time_while_it_is_stopped_or_gone() {
        let mut child = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("sh");
        let pid = Pid::from_raw(child.id() as i32);
        let mut own_time = OwnTime::open(pid);
        while own_time.ran == 0 {
            own_time.of(LOOK);
        }
        // from now on it runs, or waits for a CPU: however often it is looked at, no time counts twice
        let (begin, mut had) = (Instant::now(), Duration::ZERO);
        while had < 5 * TICK {
            had += own_time.of(LOOK);
        }
        assert!(had <= begin.elapsed() + 2 * TICK, "{had:?}");
        kill(pid, Signal::SIGSTOP).expect("it is there");
        while own_time.of(LOOK) < LOOK {}
        child.kill().expect("it is there");
        child.wait().expect("it is ours");
        assert_eq!(own_time.of(LOOK), LOOK);
    }
}
