//! bpffs is mounted where it is not.

use std::fs;
use std::path::Path;
use std::thread;

use batchwise_bpf::balance::{BPFFS, mount_bpffs};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use crate::kernel::need_root;

/// Runs `f` where nobody else sees its mounts, and nothing is mounted for pins.
fn without_bpffs<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    need_root();
    let alone = || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
        while umount2(BPFFS, MntFlags::MNT_DETACH).is_ok() {}
        f()
    };
    thread::scope(|scope| scope.spawn(alone).join())
        .unwrap_or_else(|e| std::panic::resume_unwind(e))
}

fn mounts() -> usize {
    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap();
    let there = |line: &&str| line.contains(&format!(" {BPFFS} bpf "));
    mounts.lines().filter(there).count()
}

#[test]
fn bpffs_is_mounted_once_however_many_want_it() {
    without_bpffs(|| {
        assert_eq!(mounts(), 0);
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| mount_bpffs().unwrap());
            }
        });
        assert_eq!(mounts(), 1);
    });
}

#[test]
fn bpffs_that_is_mounted_stays_with_all_that_is_in_it() {
    without_bpffs(|| {
        mount_bpffs().unwrap();
        let folder = Path::new(BPFFS).join("bw-mounted");
        fs::create_dir(&folder).unwrap();
        mount_bpffs().unwrap();
        assert!(folder.is_dir());
    });
}
