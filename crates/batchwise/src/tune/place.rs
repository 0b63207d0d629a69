//! An agent's place: the lock that keeps other agents off its cgroup, the records of what the applications
//! asked for and of what was set beyond sockets, which outlive agent and guard, and what was in force, for the next
//! agent. All are in the run folder, root's alone.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use batchwise_core::sense::connection::ServiceKey;
use batchwise_core::tune::{InForce, Knob};
use nix::fcntl::Flock;
use serde::{Deserialize, Serialize};

use crate::frame::control::{lock, run_folder};
use crate::frame::whole::replace;

/// For the guard of an agent that has just died to give the sockets back. Where their memory cgroup is full and
/// what the kernel kills cannot end, it frees that one's memory after two seconds (OOM_REAPER_DELAY).
const PATIENCE: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(5);

/// By socket cookie, which is unique until reboot.
pub type Settings = BTreeMap<u64, Asked>;

/// What an application asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// The server's.
    pub port: u16,
}

/// A service whose sockets had another setting than their applications asked for.
#[derive(Serialize, Deserialize)]
pub struct Kept {
    pub service: ServiceKey,
    pub knob: Knob,
    pub in_force: InForce,
}

/// What was in force so long ago is out of date.
const OUTDATED: Duration = Duration::from_secs(120);

pub struct Place {
    lock: Flock<File>,
    record: PathBuf,
    in_force: PathBuf,
    levers: PathBuf,
    written: Settings,
    /// Of an earlier agent, and not given back yet.
    left: Settings,
}

impl Place {
    /// Takes the cgroup, and all below it. Two agents would take each other's settings for the
    /// applications' own. Where one has just died its guard keeps the lock until all sockets are given
    /// back.
    pub fn take(cgroup: &Path) -> anyhow::Result<Self> {
        let name = || format!("cannot open {}", cgroup.display());
        let cgroup = fs::canonicalize(cgroup).with_context(name)?;
        let inode = fs::metadata(&cgroup).with_context(name)?.ino();
        let folder = run_folder("the lock")?;
        let end = Instant::now() + PATIENCE;
        let other = loop {
            if let Some(lock) = try_take(&folder, inode, &cgroup)? {
                let record = folder.join(format!("tune-{inode}.settings"));
                let left = read(&record);
                return Ok(Self {
                    lock,
                    record,
                    in_force: folder.join(format!("tune-{inode}.in-force")),
                    levers: folder.join(format!("tune-{inode}.levers")),
                    written: left.clone(),
                    left,
                });
            }
            if Instant::now() >= end {
                break cgroup.display();
            }
            std::thread::sleep(POLL);
        };
        bail!(
            "another `batchwise tune` runs for {other}, or for a cgroup above or below it: stop it first, or give it --cgroup"
        )
    }

    /// Before sockets are set to something else: what their applications asked for.
    pub fn remember(&mut self, mut settings: Settings) -> anyhow::Result<()> {
        settings.extend(&self.left);
        if settings == self.written {
            return Ok(());
        }
        write(&self.record, &settings)?;
        self.written = settings;
        Ok(())
    }

    /// For the next agent. It can do without: it tests anew.
    pub fn keep(&self, kept: &[Kept]) {
        if kept.is_empty() {
            // one that is not there was never needed
            let _ = fs::remove_file(&self.in_force);
            return;
        }
        let text = serde_json::to_string(&(boot_id(), kept)).map_err(Into::into);
        let done = text.and_then(|text| replace(&self.in_force, &text));
        if let Err(error) = done {
            tracing::debug!("what is in force is not kept: {error}");
        }
    }

    /// What the agent before this one kept a moment ago.
    pub fn kept(&self) -> Vec<Kept> {
        let age = fs::metadata(&self.in_force).and_then(|file| file.modified());
        let is_new = age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < OUTDATED));
        let text = fs::read_to_string(&self.in_force).unwrap_or_default();
        match serde_json::from_str::<(String, Vec<Kept>)>(&text) {
            Ok((boot, kept)) if is_new && boot == boot_id() => kept,
            _ => Vec::new(),
        }
    }

    /// Where that is written down.
    pub fn record(&self) -> &Path {
        &self.record
    }

    /// Where what is set beyond sockets is.
    pub fn levers(&self) -> &Path {
        &self.levers
    }

    /// What an agent left behind that ended together with its guard, as far as it is to be given back.
    pub fn left(&mut self) -> &mut Settings {
        &mut self.left
    }

    /// All sockets of this agent were given back.
    pub fn forget(&mut self) -> anyhow::Result<()> {
        if !self.left.is_empty() {
            return self.remember(Settings::new());
        }
        self.written.clear();
        // one that is not there was never needed
        let _ = fs::remove_file(&self.record);
        Ok(())
    }
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }
}

/// `None`: another agent has it, or part of it.
fn try_take(folder: &Path, inode: u64, cgroup: &Path) -> anyhow::Result<Option<Flock<File>>> {
    // one at a time looks for others
    let Some(_looking) = lock(&folder.join("tune.lock"))? else {
        return Ok(None);
    };
    let own = folder.join(format!("tune-{inode}.lock"));
    for file in fs::read_dir(folder)?.flatten().map(|entry| entry.path()) {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if !(name.starts_with("tune-") && name.ends_with(".lock")) || file == own {
            continue;
        }
        if lock(&file)?.is_some() {
            // of an agent that is gone; who takes a place makes its file anew
            let _ = fs::remove_file(&file);
            continue;
        }
        let theirs = PathBuf::from(fs::read_to_string(&file).unwrap_or_default());
        if theirs.starts_with(cgroup) || cgroup.starts_with(&theirs) {
            return Ok(None);
        }
    }
    let Some(mut taken) = lock(&own)? else {
        return Ok(None);
    };
    taken.set_len(0)?;
    taken.write_all(cgroup.as_os_str().as_encoded_bytes())?;
    Ok(Some(taken))
}

/// Of this boot; nothing if there is none.
fn read(record: &Path) -> Settings {
    let text = fs::read_to_string(record).unwrap_or_default();
    let mut lines = text.lines();
    if lines.next() != Some(boot_id().as_str()) {
        return Settings::new();
    }
    let parse = |line: &str| {
        let mut fields = line.split(' ');
        let mut next = || fields.next()?.parse::<u64>().ok();
        let (cookie, port, nodelay) = (next()?, next()?.try_into().ok()?, next()? == 1);
        Some((cookie, Asked { nodelay, port }))
    };
    lines.filter_map(parse).collect()
}

fn write(record: &Path, settings: &Settings) -> anyhow::Result<()> {
    let mut text = boot_id();
    for (cookie, Asked { nodelay, port }) in settings {
        // to a string: that cannot fail
        let _ = write!(text, "\n{cookie} {port} {}", u8::from(*nodelay));
    }
    replace(record, &text).with_context(|| format!("cannot write {}", record.display()))
}

/// The same as pairs: cookie, TCP_NODELAY.
pub fn asked(record: &Path) -> Vec<(u64, bool)> {
    let settings = read(record).into_iter();
    settings
        .map(|(cookie, asked)| (cookie, asked.nodelay))
        .collect()
}

/// These sockets have what their applications asked for, and what these ask for from now on is theirs.
pub fn strike(record: &Path, back: &HashSet<u64>) -> anyhow::Result<()> {
    let mut settings = read(record);
    settings.retain(|cookie, _| !back.contains(cookie));
    match settings.is_empty() {
        // one that is not there was never needed
        true => drop(fs::remove_file(record)),
        false => write(record, &settings)?,
    }
    Ok(())
}

pub fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn take(folder: &TempDir, inode: u64, cgroup: &str) -> Option<Flock<File>> {
        try_take(folder.path(), inode, Path::new(cgroup)).expect("a lock or none")
    }

    #[test]
    fn a_place_is_taken_with_all_above_and_below_it() {
        let folder = TempDir::new().expect("a folder");
        let own = take(&folder, 7, "/a/b");
        assert!(own.is_some());
        for other in ["/a", "/a/b/c", "/"] {
            assert!(take(&folder, 8, other).is_none(), "{other}");
        }
        assert!(take(&folder, 7, "/a/b").is_none());
        assert!(take(&folder, 9, "/a/bb").is_some());
        drop(own);
        assert!(take(&folder, 8, "/a").is_some());
    }

    #[test]
    fn agents_that_are_gone_leave_no_lock_files() {
        let folder = TempDir::new().expect("a folder");
        for inode in 1..20 {
            assert!(take(&folder, inode, &format!("/gone-{inode}")).is_some());
        }
        let held = take(&folder, 100, "/held");
        let taken = take(&folder, 200, "/own");
        let files = fs::read_dir(folder.path()).expect("it is there");
        let mut files: Vec<_> = files.flatten().map(|f| f.file_name()).collect();
        files.sort();
        assert_eq!(files, ["tune-100.lock", "tune-200.lock", "tune.lock"]);
        assert!(held.is_some() && taken.is_some());
    }
}
