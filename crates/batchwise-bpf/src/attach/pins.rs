//! Programs' attachments in bpffs, which is mounted where it is not: opening, pinning, giving them another
//! program, taking them away.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use crate::Error;
use crate::error::BPFFS;
use crate::object::{done, made};

/// Whether bpffs is mounted.
pub(crate) fn bpffs_is_mounted() -> bool {
    statfs(BPFFS).is_ok_and(|s| s.filesystem_type() == BPF_FS_MAGIC)
}

/// Mounts it where it is not, as iproute2 and bpftool do.
pub fn mount_bpffs() -> Result<(), Error> {
    if bpffs_is_mounted() {
        return Ok(());
    }
    let refused = |cause| Error::NoBpffs { cause };
    // one that is mounted over another hides what is pinned there
    let below = File::open(BPFFS).map_err(refused)?;
    let lock = Flock::lock(below, FlockArg::LockExclusive);
    let _lock = lock.map_err(|(_, errno)| refused(errno.into()))?;
    if bpffs_is_mounted() {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let mounted = mount(Some("bpf"), BPFFS, Some("bpf"), flags, Some("mode=0700"));
    mounted.map_err(|errno| refused(errno.into()))?;
    tracing::warn!(
        "bpffs was not mounted: it is now, at {BPFFS}; what is pinned there lasts as long as \
         this mount namespace"
    );
    Ok(())
}

/// Opens what is pinned.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a string that lives through the call.
    made(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) })
}

/// Pins a descriptor.
pub(crate) fn pin(fd: &OwnedFd, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the descriptor is open and the path a string that lives through the call.
    done(unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// Takes an attachment away, also from processes that hold it.
pub(crate) fn detach(path: &Path) -> Result<(), Error> {
    let doing = "detaching the program";
    if let Ok(link) = open(path) {
        // SAFETY: the descriptor is open. That its interface is gone is no error.
        unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) };
    }
    fs::remove_file(path).map_err(Error::io(doing))
}

/// Has an attachment go on with another program, without a packet being missed.
pub(crate) fn replace(link: &OwnedFd, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open; no options.
    let updated = unsafe {
        libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null())
    };
    done(updated).map(drop)
}
