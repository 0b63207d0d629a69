//! Running something once in each network namespace that has processes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use nix::sched::{CloneFlags, setns};

/// Process ids below a cgroup, its descendants included; all processes for `None`.
fn processes(cgroup: Option<&Path>) -> Vec<String> {
    let Some(root) = cgroup else {
        return fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok())
            .filter(|n| n.bytes().all(|b| b.is_ascii_digit()))
            .collect();
    };
    let mut pids = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(dir) = folders.pop() {
        let procs = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
        pids.extend(procs.lines().map(str::to_owned));
        let below = fs::read_dir(&dir).into_iter().flatten().flatten();
        folders.extend(below.map(|e| e.path()).filter(|p| p.is_dir()));
    }
    pids
}

/// Which namespace it is.
pub(crate) fn inode(ns: &fs::Metadata) -> u32 {
    ns.ino() as u32
}

/// One open namespace file per distinct network namespace but our own. Processes that vanish while
/// we look are passed over, as are those that we may not look at (other users', without
/// CAP_SYS_PTRACE).
pub(crate) fn others(cgroup: Option<&Path>) -> Vec<File> {
    let own = fs::metadata("/proc/self/ns/net").map(|m| m.ino());
    let mut seen = BTreeSet::from_iter(own);
    processes(cgroup)
        .into_iter()
        .filter_map(|pid| File::open(format!("/proc/{pid}/ns/net")).ok())
        .filter(|f| f.metadata().is_ok_and(|m| seen.insert(m.ino())))
        .collect()
}

/// A network namespace, which stays as long as this is.
#[derive(Debug)]
pub struct Namespace(Option<File>);

impl Namespace {
    /// That of whichever process has it with this inode.
    ///
    /// # Errors
    /// `NotFound`: none has.
    pub fn find(inode: u32) -> io::Result<Self> {
        let is_it = |ns: fs::Metadata| ns.ino() == u64::from(inode);
        if is_it(fs::metadata("/proc/self/ns/net")?) {
            return Ok(Self(None));
        }
        let mut others = others(None).into_iter();
        let found = others.find(|ns| ns.metadata().is_ok_and(is_it));
        let none = || {
            let why = format!("no process is in network namespace {inode}");
            io::Error::new(io::ErrorKind::NotFound, why)
        };
        found.map(|ns| Self(Some(ns))).ok_or_else(none)
    }

    /// Runs `f` in it; needs CAP_SYS_ADMIN where it is not our own.
    ///
    /// # Errors
    /// What `f` returns, or that it cannot be entered.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        match &self.0 {
            None => f(),
            Some(ns) => within(ns, f),
        }
    }
}

/// Runs `f` on a thread of its own that has entered `ns`; needs CAP_SYS_ADMIN.
pub(crate) fn within<T: Send>(
    ns: &File,
    f: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            setns(ns, CloneFlags::CLONE_NEWNET)?;
            f()
        });
        worker
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the worker thread panicked")))
    })
}
