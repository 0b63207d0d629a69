//! Where programs are attached, for every loader: interfaces, network namespaces, cgroups, and what
//! is pinned in bpffs.

pub(crate) mod cgroup;
pub(crate) mod interface;
pub(crate) mod netns;
pub(crate) mod pins;
pub(crate) mod walk;
pub mod xdp;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// What a call of libbpf gave, which says errors as negative numbers.
pub(crate) fn done(result: i32) -> io::Result<i32> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(result)
}

/// The descriptor that a call of libbpf has just made.
pub(crate) fn made(result: i32) -> io::Result<OwnedFd> {
    // SAFETY: the caller says that it is new, so nobody else has it.
    done(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}
