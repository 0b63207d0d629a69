//! Attaching the data path to interfaces, by links that outlive us where they are pinned.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;

use super::{Change, Link, pins};
use crate::Error;
use crate::attach::interface::{Interface, index_of};
use crate::attach::pins::{detach, open, pin, replace};

/// Attaches to an interface; with a folder, the link is pinned there, and one that is there already
/// goes on with the new program.
pub(super) fn attach(
    interface: &str,
    program: BorrowedFd<'_>,
    folder: Option<&Path>,
) -> Result<OwnedFd, Error> {
    let found = Interface::find(interface)?;
    let path = folder.map(|f| pins::link(f, interface));
    let former = path.as_deref().filter(|p| p.exists());
    if let Some(path) = former {
        let link = open(path).map_err(Error::io("opening a pinned link"))?;
        if index_of(&link) == found.index().try_into().ok() {
            replace(&link, program).map_err(Error::io("replacing the program"))?;
            return Ok(link);
        }
    }
    let link = found.xdp(program).map_err(|cause| {
        let interface = interface.to_owned();
        match cause.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EBUSY | Errno::EEXIST) => Error::XdpTaken { interface },
            Some(Errno::EPERM) => Error::NoPrivilege,
            _ => Error::NoNativeXdp {
                interface,
                cause,
                remedy: "balance on an interface whose driver has XDP; on one with jumbo frames it must \
                         take those of more than one part, or have its MTU lowered",
            },
        }
    })?;
    // of an interface that is gone; until here it tells that this one was attached to
    former.map_or(Ok(()), detach)?;
    if let Some(path) = path {
        pin(&link, &path).map_err(Error::io("pinning the link"))?;
    }
    Ok(link)
}

impl Link {
    /// What has changed since the last call; see [`super::Balancer::follow_interfaces`].
    pub(super) fn follow(
        &mut self,
        program: BorrowedFd<'_>,
        folder: Option<&Path>,
    ) -> Option<Change> {
        let now = if_nametoindex(self.interface.as_str()).ok();
        let Some(now) = now else {
            return self.attached.take().map(|_| Change::Gone);
        };
        if self.attached.as_ref().and_then(index_of) == Some(now) {
            return None;
        }
        self.attached = None;
        Some(match attach(&self.interface, program, folder) {
            Ok(link) => {
                self.attached = Some(link);
                Change::Attached
            }
            Err(error) => Change::Refused(error),
        })
    }
}

/// Takes away the links of interfaces that are no longer balanced on.
pub(super) fn detach_others(folder: &Path, interfaces: &[String]) -> Result<(), Error> {
    for (interface, path) in pins::links(folder)? {
        if !interfaces.contains(&interface) {
            tracing::info!("{interface} is no longer balanced on: the program is detached");
            detach(&path)?;
        }
    }
    Ok(())
}
