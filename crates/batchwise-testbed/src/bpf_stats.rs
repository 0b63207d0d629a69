//! What the kernel says about a process's BPF programs: which it has attached, and how long they
//! ran.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use libbpf_rs::query::{MapInfoIter, ProgInfoIter};
use nix::unistd::Pid;

use crate::process::Process;
use crate::stop::Stop;

const STATS_SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// How long a process may take to attach its programs.
const ATTACH_LIMIT: Duration = Duration::from_secs(30);
/// For how long a process must be seen asleep, while the number of its attached programs does not grow,
/// before all are taken to be there. Time in which it waits for a CPU or the kernel says nothing.
const ATTACH_SETTLE: Duration = Duration::from_millis(250);
/// What one look at a process that is asleep tells at most.
const ATTACH_LOOK: Duration = Duration::from_millis(50);

/// Keeps `kernel.bpf_stats_enabled` on; gives back what it was when dropped.
#[derive(Debug)]
pub struct StatsEnabled {
    before: String,
}

impl StatsEnabled {
    /// Switches it on.
    pub fn new() -> Result<Self> {
        let before =
            fs::read_to_string(STATS_SWITCH).with_context(|| format!("reading {STATS_SWITCH}"))?;
        fs::write(STATS_SWITCH, "1").with_context(|| format!("writing 1 to {STATS_SWITCH}"))?;
        Ok(Self { before })
    }
}

impl Drop for StatsEnabled {
    fn drop(&mut self) {
        if let Err(error) = fs::write(STATS_SWITCH, self.before.trim()) {
            tracing::warn!("{STATS_SWITCH} stays 1: {error}");
        }
    }
}

/// Runs of one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// How often it ran.
    pub count: u64,
    /// For how long, ns.
    pub time_ns: u64,
}

/// How often the programs of these processes ran, by name. Counts only while [`StatsEnabled`].
pub fn runs_of(pids: &[Pid]) -> Result<BTreeMap<String, Runs>> {
    let mut owned = BTreeSet::new();
    for &pid in pids {
        owned.extend(programs_of(pid)?);
    }
    let mut runs: BTreeMap<String, Runs> = BTreeMap::new();
    for program in ProgInfoIter::default().filter(|p| owned.contains(&u64::from(p.id))) {
        let sum = runs
            .entry(program.name.to_string_lossy().into_owned())
            .or_default();
        sum.count += program.run_cnt;
        sum.time_ns += program.run_time_ns;
    }
    Ok(runs)
}

/// Ids of the programs that a process holds, its own or through links.
pub fn programs_of(pid: Pid) -> Result<BTreeSet<u64>> {
    Ok(fd_fields(pid, "prog_id")?.into_iter().collect())
}

/// Names of those of these programs that the kernel has not freed.
pub fn programs_left(ids: &BTreeSet<u64>) -> Vec<String> {
    let left = ProgInfoIter::default().filter(|program| ids.contains(&u64::from(program.id)));
    left.map(|program| program.name.to_string_lossy().into_owned())
        .collect()
}

/// Memory of the BPF maps that this process holds, as the kernel accounts it, bytes by name.
pub fn map_memory() -> Result<BTreeMap<String, u64>> {
    let mut maps: BTreeMap<u64, u64> = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/fdinfo")?.flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        maps.extend(numeric_field(&text, "map_id").zip(numeric_field(&text, "memlock")));
    }
    let mut memory = BTreeMap::new();
    for map in MapInfoIter::default() {
        if let Some(bytes) = maps.get(&u64::from(map.id)) {
            let name = map.name.to_string_lossy().into_owned();
            *memory.entry(name).or_default() += bytes;
        }
    }
    Ok(memory)
}

/// How many BPF links a process holds.
pub fn attached_links(pid: Pid) -> Result<usize> {
    Ok(fd_fields(pid, "link_id")?.len())
}

/// Whether all threads of a process sleep until something happens.
fn is_asleep(pid: Pid) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    tasks.flatten().all(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // proc_pid_stat(5): the state comes after the name, which may hold anything
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('S'))
    })
}

/// Waits until a process has attached its programs: it sleeps, and the number of its links no longer
/// grows. Messages call it `name`.
pub fn wait_attached(process: &mut Process, name: &str, stop: &Stop) -> Result<()> {
    let (mut seen, mut settled, mut looked) = (0, Duration::ZERO, Instant::now());
    let attached = stop.wait_until(ATTACH_LIMIT, || {
        process.check_alive()?;
        let now = attached_links(process.pid())
            .with_context(|| format!("looking at what {name} has attached"))?;
        let since = std::mem::replace(&mut looked, Instant::now()).elapsed();
        // fewer later is no news: an agent that tunes detaches some whenever it is asleep
        if now > seen {
            (seen, settled) = (now, Duration::ZERO);
        } else if is_asleep(process.pid()) {
            settled += since.min(ATTACH_LOOK);
        }
        Ok((now > 0 && settled >= ATTACH_SETTLE).then_some(()))
    })?;
    match attached {
        Some(()) => Ok(()),
        None => bail!(
            "{name} attached nothing within {ATTACH_LIMIT:?}; see `batchwise doctor`{}",
            process.quote()
        ),
    }
}

/// The distinct values of a numeric field in the descriptions of a process's descriptors.
fn fd_fields(pid: Pid, field: &str) -> Result<BTreeSet<u64>> {
    let dir = format!("/proc/{pid}/fdinfo");
    let entries = fs::read_dir(Path::new(&dir)).with_context(|| format!("listing {dir}"))?;
    // A descriptor may be closed between listing and reading it.
    let texts = entries
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path()).ok());
    Ok(texts
        .filter_map(|text| numeric_field(&text, field))
        .collect())
}

fn numeric_field(fdinfo: &str, field: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| {
        let value = line.strip_prefix(field)?.strip_prefix(':')?;
        value.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_a_descriptor_is_read_by_its_whole_name() {
        let fdinfo = "pos:\t0\nlink_type:\ttracing\nlink_id:\t41\nprog_id:\t107\n";
        assert_eq!(numeric_field(fdinfo, "link_id"), Some(41));
        assert_eq!(numeric_field(fdinfo, "prog_id"), Some(107));
        assert_eq!(numeric_field(fdinfo, "id"), None);
    }
}
