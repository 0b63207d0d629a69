//! Other work on the CPUs of the demo: how much CPU time was used there that neither the demo nor
//! batchwise's agents used. What the agents cause is never counted.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use batchwise_testbed::process::cpu_time;
use nix::unistd::Pid;

/// A unit of /proc/stat (USER_HZ, which is the same on all machines).
const STAT_UNIT: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Used {
    /// When it was read, ns since the Unix epoch.
    pub ts_ns: u64,
    /// By anybody, on the demo's CPUs; time that the host took counts.
    pub all: Duration,
    /// By the demo and its agents.
    pub own: Duration,
}

#[derive(Debug)]
pub struct Others {
    pub cpus: Vec<usize>,
    /// Of everything that the demo has started.
    cgroup: PathBuf,
    /// The lab itself, and the kernel's threads that process packets: of the demo, nearly always.
    own: Vec<Pid>,
}

impl Others {
    pub fn new(cpus: Vec<usize>, cgroup: &Path) -> Self {
        let names: Vec<_> = cpus.iter().map(|cpu| format!("ksoftirqd/{cpu}")).collect();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let softirq = processes.filter_map(|process| {
            let name = fs::read_to_string(process.path().join("comm")).ok()?;
            let pid = process.file_name().to_str()?.parse().ok()?;
            names.iter().any(|n| n == name.trim()).then_some(pid)
        });
        let mut own = vec![Pid::this()];
        own.extend(softirq.map(Pid::from_raw));
        Self {
            cpus,
            cgroup: cgroup.to_owned(),
            own,
        }
    }

    /// Up to now; `None` where the kernel does not tell.
    pub fn read(&self, ts_ns: u64) -> Option<Used> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let cgroup = fs::read_to_string(self.cgroup.join("cpu.stat")).ok()?;
        let usage = cgroup.lines().find_map(|l| l.strip_prefix("usage_usec "))?;
        let own = self.own.iter().filter_map(|&pid| cpu_time(pid).ok());
        Some(Used {
            ts_ns,
            all: busy(&stat, &self.cpus),
            own: Duration::from_micros(usage.trim().parse().ok()?) + own.sum::<Duration>(),
        })
    }
}

/// The time in which these CPUs were not idle, by /proc/stat.
fn busy(stat: &str, cpus: &[usize]) -> Duration {
    let of_cpu = |line: &str| -> Option<u32> {
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let cpu: usize = words.next()?.parse().ok()?;
        // user, nice, system, idle, iowait, irq, softirq, steal; the rest is in user and nice
        let times: Vec<u32> = words.take(8).filter_map(|w| w.parse().ok()).collect();
        let idle: u32 = times.get(3..5)?.iter().sum();
        cpus.contains(&cpu)
            .then(|| times.iter().sum::<u32>() - idle)
    };
    STAT_UNIT * stat.lines().filter_map(of_cpu).sum()
}

/// The share of so many CPUs that others took between two moments (ns since the Unix epoch), as far
/// as readings around these tell.
pub fn share(used: &[Used], cpus: usize, from: u64, to: u64) -> Option<f64> {
    let before = used.iter().rfind(|u| u.ts_ns <= from).or(used.first())?;
    let after = used.iter().find(|u| u.ts_ns >= to).or(used.last())?;
    let time = Duration::from_nanos(after.ts_ns.saturating_sub(before.ts_ns)) * cpus as u32;
    let all = after.all.saturating_sub(before.all);
    let others = all.saturating_sub(after.own.saturating_sub(before.own));
    (!time.is_zero()).then(|| others.as_secs_f64() / time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_idle_and_not_our_own_is_others() {
        let stat =
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 1 20 500 7 0 30 4 0 0\ncpu1 1 0 0 9 0 0 0 0 0 0\n";
        let ms = Duration::from_millis;
        assert_eq!(busy(stat, &[0]), ms(650));
        assert_eq!(busy(stat, &[0, 1]), ms(660));
        let used = |at: u64, all: u64, own: u64| Used {
            ts_ns: at * 1_000_000,
            all: ms(all),
            own: ms(own),
        };
        let read = [used(0, 0, 0), used(100, 150, 150), used(200, 350, 200)];
        let share = |from: u64, to: u64| share(&read, 2, from * 1_000_000, to * 1_000_000);
        assert_eq!(share(0, 100), Some(0.0));
        assert!((share(120, 190).unwrap() - 0.75).abs() < 1e-9);
        assert_eq!(share(250, 260), None, "nothing was read since");
    }
}
