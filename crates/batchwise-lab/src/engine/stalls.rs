//! Exogenous stalls: time in which the host took a CPU away. On each CPU a thread of real-time
//! priority wakes up every millisecond; when it wakes up late, whatever ran before it had no CPU
//! either. What an agent of ours causes is never cut: a gap in which one of them used CPU time is
//! no exogenous stall.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, UNIX_EPOCH};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use batchwise_testbed::process::{cpu_time, lock};
use batchwise_testbed::stop::Stop;

/// Between two wake-ups.
const PERIOD: Duration = Duration::from_millis(1);
/// A thread of real-time priority that wakes up so late had no CPU.
const LATE: Duration = Duration::from_millis(1);
/// An agent that ran for this share of a gap is its cause.
const OURS: f64 = 0.1;
/// Agents' run time is read every so many wake-ups: it costs more than the wake-up.
const READ_EVERY: u32 = 8;
/// Among real-time threads.
const PRIORITY: i32 = 50;

/// A time without a CPU, ns since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub from: u64,
    pub to: u64,
}

/// This moment on the clock of [`Gap`].
pub fn now_ns() -> u64 {
    let since = UNIX_EPOCH.elapsed();
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Watches CPUs for stalls until it is dropped.
#[derive(Debug)]
pub struct Monitor {
    gaps: Arc<Mutex<Vec<Gap>>>,
    stop: Stop,
    threads: Vec<JoinHandle<()>>,
}

impl Monitor {
    /// Watches these CPUs; `own` are the agents whose run time is never cut.
    pub fn start(cpus: &[usize], own: &[Pid]) -> Self {
        let (gaps, stop) = (Arc::new(Mutex::new(Vec::new())), Stop::default());
        let threads = cpus.iter().map(|&cpu| {
            let (gaps, stop, own) = (Arc::clone(&gaps), stop.clone(), own.to_vec());
            std::thread::spawn(move || watch(cpu, &own, &stop, &gaps))
        });
        let threads = threads.collect();
        Self {
            gaps,
            stop,
            threads,
        }
    }

    /// The gaps between two moments; those that ended before `from` are forgotten.
    pub fn gaps(&self, from: u64, to: u64) -> Vec<Gap> {
        let mut gaps = lock(&self.gaps);
        gaps.retain(|gap| gap.to > from);
        gaps.iter().copied().filter(|gap| gap.from < to).collect()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.stop.set();
        for thread in self.threads.drain(..) {
            // A panic there was printed.
            let _ = thread.join();
        }
    }
}

fn watch(cpu: usize, own: &[Pid], stop: &Stop, gaps: &Mutex<Vec<Gap>>) {
    let mut cpus = CpuSet::new();
    let pinned = cpus
        .set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &cpus));
    if pinned.is_err() || !become_real_time() {
        tracing::warn!("stalls of CPU {cpu} cannot be told: no real-time priority there");
        return;
    }
    let used = || -> Duration { own.iter().filter_map(|&pid| cpu_time(pid).ok()).sum() };
    let (mut last, mut used_before) = (Instant::now(), used());
    for wake_up in 0u32.. {
        if stop.check().is_err() {
            break;
        }
        std::thread::sleep(PERIOD);
        let now = Instant::now();
        let late = (now - std::mem::replace(&mut last, now)).saturating_sub(PERIOD);
        if late >= LATE || wake_up % READ_EVERY == 0 {
            let used_now = used();
            let ours = used_now.saturating_sub(std::mem::replace(&mut used_before, used_now));
            if is_exogenous(late, ours) {
                let to = now_ns();
                let from = to - late.as_nanos() as u64;
                lock(gaps).push(Gap { from, to });
            }
        }
    }
}

/// Whether a wake-up was late and none of our own ran meanwhile.
fn is_exogenous(late: Duration, ours: Duration) -> bool {
    late >= LATE && ours.as_secs_f64() <= OURS * late.as_secs_f64()
}

/// Gives the calling thread real-time priority.
fn become_real_time() -> bool {
    let parameter = nix::libc::sched_param {
        sched_priority: PRIORITY,
    };
    // SAFETY: the parameter lives through the call; 0 is the calling thread.
    unsafe { nix::libc::sched_setscheduler(0, nix::libc::SCHED_FIFO, &raw const parameter) == 0 }
}

/// How much of a time (ns) was lost to gaps, which may overlap, on whichever CPU: what waits for each
/// other stands still when one of them does.
pub fn lost(gaps: &[Gap], from: u64, to: u64) -> u64 {
    let within = gaps.iter().map(|gap| (gap.from.max(from), gap.to.min(to)));
    let mut within: Vec<_> = within.filter(|(from, to)| from < to).collect();
    within.sort_unstable();
    let (mut lost, mut end) = (0, from);
    for (from, to) in within {
        lost += to.saturating_sub(from.max(end));
        end = end.max(to);
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_gaps_count_once_and_only_within_the_time() {
        let gaps = [(0, 20), (30, 40), (35, 50), (90, 120)].map(|(from, to)| Gap { from, to });
        assert_eq!(lost(&gaps, 10, 100), 10 + 20 + 10);
        assert_eq!(lost(&[], 0, 5), 0);
    }

    #[test]
    fn a_late_wake_up_is_a_stall_unless_an_agent_of_ours_ran() {
        let us = Duration::from_micros;
        assert!(is_exogenous(us(5000), us(0)));
        assert!(!is_exogenous(us(5000), us(2000)));
        assert!(!is_exogenous(us(80), us(0)));
    }
}
