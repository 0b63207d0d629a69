//! Finding a cgroup v2 directory and what identifies it to a BPF program.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

use crate::Error;

/// A cgroup as the programs compare it: its id (the directory's inode) and depth below the root.
#[derive(Clone, Debug)]
pub(crate) struct Cgroup {
    pub path: PathBuf,
    pub id: u64,
    pub level: u32,
}

/// Where cgroup v2 is mounted: `/sys/fs/cgroup`, or a folder of it where v1 is in use as well.
pub(crate) fn mount_point() -> Result<PathBuf, Error> {
    let mounts = fs::read_to_string("/proc/mounts").map_err(Error::io("reading /proc/mounts"))?;
    find_cgroup2(&mounts).ok_or(Error::NoCgroup2)
}

/// The directory that was asked for, which must be a cgroup's; without one, where cgroup v2 is mounted.
pub fn find(dir: Option<&Path>) -> Result<PathBuf, Error> {
    dir.map_or_else(mount_point, |dir| Ok(Cgroup::open(dir)?.path))
}

fn find_cgroup2(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let path = fields.next()?;
        (fields.next()? == "cgroup2").then(|| path.into())
    })
}

impl Cgroup {
    pub fn open(path: &Path) -> Result<Self, Error> {
        let mount = mount_point()?;
        let not_a_cgroup = || Error::NotACgroup {
            path: path.to_owned(),
            mount: mount.clone(),
        };
        let real = path.canonicalize().map_err(|_| not_a_cgroup())?;
        let is_cgroup2 = statfs(&real).is_ok_and(|s| s.filesystem_type() == CGROUP2_SUPER_MAGIC);
        let below = real
            .strip_prefix(&mount)
            .ok()
            .filter(|_| is_cgroup2)
            .ok_or_else(not_a_cgroup)?;
        let level = below.components().count() as u32;
        let id = fs::metadata(&real).map_err(|_| not_a_cgroup())?.ino();
        Ok(Self {
            path: real,
            id,
            level,
        })
    }

    /// Whether the path still is this cgroup: a service that is started again may have another one.
    pub fn check(&self) -> Result<(), Error> {
        let now = fs::metadata(&self.path).map(|folder| folder.ino());
        match now {
            Ok(id) if id == self.id => Ok(()),
            now => Err(Error::CgroupGone {
                path: self.path.clone(),
                replaced: now.is_ok(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_v2_is_found_in_a_hybrid_layout() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        let found = PathBuf::from("/sys/fs/cgroup/unified");
        assert_eq!(find_cgroup2(mounts), Some(found));
        assert_eq!(find_cgroup2("proc /proc proc rw 0 0\n"), None);
    }
}
