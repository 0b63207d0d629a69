//! A server whose CPU share changes over time: a cgroup's quota, v1 or v2, driven by a trace.

pub mod trace;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use nix::unistd::Pid;

use crate::cgroup::{self, Cgroup};
use crate::host::Host;
use crate::process::{lock, now_ns};
use crate::stop::{Background, Stop};
use trace::Trace;

/// Over which a share is kept. Short, so that a share is a speed and not a pause; the kernel takes no
/// quota below 1 ms, so that the smallest share is a fifth.
const PERIOD: Duration = Duration::from_millis(5);
/// The smallest share that there is.
const SMALLEST: f64 = 0.2;

/// The quota of a server's processes. Dropping it ends these, unless it is [released](Self::release).
#[derive(Debug)]
pub struct CpuShare {
    control: Control,
}

#[derive(Debug)]
enum Control {
    /// A cgroup of its own in the v1 hierarchy of the CPU controller.
    V1(Cgroup),
    /// The server's own cgroup.
    V2(PathBuf),
}

/// A share that came into force.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Applied {
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    /// Of one CPU.
    pub share: f64,
}

impl CpuShare {
    /// Of the processes `pids`, which run in `host`.
    pub fn of(host: &Host, pids: &[Pid]) -> Result<Self> {
        let control = match v1_hierarchy(&fs::read_to_string("/proc/mounts")?) {
            Some(hierarchy) => {
                let path = hierarchy.join(host.namespace().name());
                cgroup::remove_tree(&path)?;
                let group = Cgroup::create(path)?;
                for pid in pids {
                    write(&group.procs_file(), &pid.to_string())?;
                }
                write(&group.path().join("cpu.cfs_period_us"), &period())?;
                Control::V1(group)
            }
            None => {
                let mount = cgroup::mount_point()?;
                let above = host.cgroup().ancestors().skip(1);
                let mut above: Vec<_> = above.take_while(|dir| dir.starts_with(&mount)).collect();
                above.reverse();
                for dir in above {
                    write(&dir.join("cgroup.subtree_control"), "+cpu")
                        .context("the cpu controller is needed, for quotas")?;
                }
                Control::V2(host.cgroup().to_owned())
            }
        };
        let share = Self { control };
        share.set(1.0)?;
        Ok(share)
    }

    /// Ends quotas: what runs under one goes back to where it was.
    pub fn release(self) -> Result<()> {
        self.set(1.0)?;
        if let Control::V1(group) = &self.control {
            let above = group.path().parent().unwrap_or(group.path());
            for pid in cgroup::processes(group.path())? {
                write(&above.join("cgroup.procs"), &pid.to_string())?;
            }
        }
        Ok(())
    }

    /// Gives the processes this share of one CPU; all of it is no quota.
    pub fn set(&self, share: f64) -> Result<()> {
        let quota = quota(share);
        match &self.control {
            Control::V1(group) => {
                let quota = quota.map_or_else(|| "-1".into(), |us| us.to_string());
                write(&group.path().join("cpu.cfs_quota_us"), &quota)
            }
            Control::V2(group) => {
                let quota = quota.map_or_else(|| "max".into(), |us| us.to_string());
                write(&group.join("cpu.max"), &format!("{quota} {}", period()))
            }
        }
    }

    /// Follows `trace` from now on, in a thread of its own.
    pub fn follow(self, trace: Trace) -> Follower {
        let applied = Arc::<Mutex<Vec<_>>>::default();
        let sink = applied.clone();
        let following = Background::start(move |stop| self.apply(&trace, stop, &sink));
        Follower { following, applied }
    }

    fn apply(self, trace: &Trace, stop: &Stop, applied: &Mutex<Vec<Applied>>) -> Result<Self> {
        let began = Instant::now();
        for step in trace.steps() {
            if stop.sleep(step.at.saturating_sub(began.elapsed())).is_err() {
                break;
            }
            self.set(step.share)?;
            lock(applied).push(Applied {
                at_ns: now_ns(),
                share: step.share,
            });
        }
        Ok(self)
    }
}

/// A share that follows a trace. Dropping it ends the processes that it is of.
#[derive(Debug)]
pub struct Follower {
    following: Background<CpuShare>,
    applied: Arc<Mutex<Vec<Applied>>>,
}

impl Follower {
    /// What came into force so far, and when.
    pub fn applied(&self) -> Vec<Applied> {
        lock(&self.applied).clone()
    }

    /// Ends following; gives the quota back, and what came into force when.
    pub fn finish(self) -> Result<(CpuShare, Vec<Applied>)> {
        let share = self.following.finish()?;
        let applied = lock(&self.applied).clone();
        Ok((share, applied))
    }
}

/// Microseconds a period; `None` for no limit.
fn quota(share: f64) -> Option<u64> {
    let period = PERIOD.as_micros() as f64;
    (share < 1.0).then(|| (share.max(SMALLEST) * period).round() as u64)
}

fn period() -> String {
    PERIOD.as_micros().to_string()
}

fn v1_hierarchy(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, path, "cgroup", options, ..] = fields[..] else {
            return None;
        };
        let cpu = options.split(',').any(|option| option == "cpu");
        cpu.then(|| PathBuf::from(path))
    })
}

fn write(file: &Path, value: &str) -> Result<()> {
    fs::write(file, value)
        .map_err(|error| anyhow!("writing {value} to {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_quota_of_a_short_period_and_all_of_it_is_none() {
        assert_eq!(quota(0.5), Some(2500));
        assert_eq!(quota(0.01), Some(1000), "the least that the kernel takes");
        assert_eq!(quota(1.0), None);
    }

    #[test]
    fn the_v1_controller_is_found_where_it_is_mounted_and_only_there() {
        let hybrid = "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,nosuid,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(
            v1_hierarchy(hybrid),
            Some(PathBuf::from("/sys/fs/cgroup/cpu"))
        );
        assert_eq!(
            v1_hierarchy("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"),
            None
        );
    }
}
