//! Cgroup v2 directories of the lab's own: who is in one is who the lab started, which is also
//! how the processes of an earlier run that was killed are found.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How often and how long to wait for a cgroup to empty after its processes were killed.
const EMPTYING: (u32, Duration) = (100, Duration::from_millis(20));

/// A cgroup v2 directory that is emptied and removed when dropped.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Makes the directory `path`, whose parent exists.
    pub fn create(path: PathBuf) -> Result<Self> {
        match fs::create_dir(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                Err(error).with_context(|| format!("making the cgroup {}", path.display()))
            }
            _ => Ok(Self { path }),
        }
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file to which a process writes to get in.
    pub fn procs_file(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.path) {
            tracing::warn!("{error:#}");
        }
    }
}

/// This process as a member of a cgroup, until dropped: a socket belongs to the cgroup of the process that
/// makes it. So does a process, and is killed with a host's: whoever starts others must wait.
#[derive(Debug)]
pub struct Membership {
    home: PathBuf,
}

impl Membership {
    /// Joins it.
    pub fn join(cgroup: &Path) -> Result<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").context("reading our cgroup")?;
        let v2 = own.lines().find_map(|l| l.strip_prefix("0::/"));
        let v2 = v2.context("this process is in no cgroup v2")?;
        let home = mount_point()?.join(v2).join("cgroup.procs");
        let joining = || format!("joining {}", cgroup.display());
        fs::write(cgroup.join("cgroup.procs"), "0").with_context(joining)?;
        Ok(Self { home })
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.home, "0") {
            tracing::warn!("back to {}: {error}", self.home.display());
        }
    }
}

/// Where cgroup v2 is mounted, also in a hybrid layout.
pub fn mount_point() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").context("reading /proc/mounts")?;
    match find_cgroup2(&mounts) {
        Some(path) => Ok(path),
        None => bail!(
            "cgroup v2 is not mounted; mount it: mkdir -p /run/cgroup2 && \
             mount -t cgroup2 none /run/cgroup2"
        ),
    }
}

fn find_cgroup2(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let path = fields.nth(1)?;
        (fields.next()? == "cgroup2").then(|| PathBuf::from(path))
    })
}

/// The processes in the cgroup `path`; empty when there is no such cgroup.
pub fn processes(path: &Path) -> Result<Vec<Pid>> {
    match fs::read_to_string(path.join("cgroup.procs")) {
        Ok(text) => Ok(text
            .lines()
            .filter_map(|l| l.parse().ok())
            .map(Pid::from_raw)
            .collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("reading who is in {}", path.display())),
    }
}

/// Kills who is in the cgroup `path` and the cgroups below it, and removes them all. Nothing to
/// do is no error.
pub fn remove_tree(path: &Path) -> Result<()> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("listing {}", path.display())),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    let (tries, pause) = EMPTYING;
    for _ in 0..tries {
        for pid in processes(path)? {
            // Gone already is as good.
            let _ = kill(pid, Signal::SIGKILL);
        }
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(_) => std::thread::sleep(pause),
        }
    }
    bail!(
        "the cgroup {} cannot be removed: processes stay in it",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup2_mount_is_found_in_a_hybrid_layout() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = PathBuf::from("/sys/fs/cgroup/unified");
        assert_eq!(find_cgroup2(mounts), Some(found));
        let (v1, _) = mounts.split_once("cgroup2").unwrap();
        assert_eq!(find_cgroup2(v1), None);
    }
}
