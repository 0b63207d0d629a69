//! Attaching programs to an interface: by links, which end with their descriptor, and where the kernel
//! has none for tc, by filters, which we take away.

use std::fmt::Display;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};
use nix::errno::Errno;
use nix::net::if_::{if_indextoname, if_nameindex, if_nametoindex};

use super::made;
use crate::Error;

/// `XDP_FLAGS_DRV_MODE`: without it the kernel would silently take generic XDP, which sees
/// super-packets.
const XDP_NATIVE: u32 = 1 << 2;
/// `XDP_FLAGS_SKB_MODE`.
const XDP_GENERIC: u32 = 1 << 1;

/// An interface of our network namespace.
#[derive(Debug)]
pub(crate) struct Interface {
    name: String,
    index: i32,
}

impl Interface {
    /// By its name.
    pub(crate) fn find(name: &str) -> Result<Self, Error> {
        let index = if_nametoindex(name).ok().and_then(|i| i.try_into().ok());
        let index = index.ok_or_else(|| Error::NoInterface {
            name: name.into(),
            known: known(),
        })?;
        Ok(Self {
            name: name.into(),
            index,
        })
    }

    /// By its index.
    pub(crate) fn at(index: u32) -> Result<Self, Error> {
        let name = if_indextoname(index).map_err(io::Error::from);
        let name = name.map_err(Error::io("looking for the interface"))?;
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            index: index.cast_signed(),
        })
    }

    /// Its index.
    pub(crate) fn index(&self) -> i32 {
        self.index
    }

    /// Attaches to native XDP; what the kernel says to it.
    pub(crate) fn xdp(&self, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        self.link(program, libbpf_sys::BPF_XDP, XDP_NATIVE)
    }

    /// Attaches to native XDP.
    pub(crate) fn native(&self, program: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
        let link = self.xdp(program);
        link.map_err(|source| match source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EBUSY | Errno::EEXIST) => Error::OtherXdp {
                interface: self.name.clone(),
            },
            Some(Errno::EPERM) => Error::NoPrivilege,
            _ => Error::NoNativeXdp {
                interface: self.name.clone(),
                source,
            },
        })
    }

    /// Attaches to generic XDP, which every driver has.
    pub(crate) fn generic(&self, program: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
        let link = self.link(program, libbpf_sys::BPF_XDP, XDP_GENERIC);
        link.map_err(Error::io("attaching to generic XDP"))
    }

    /// Attaches to tc.
    pub(crate) fn tc(&self, program: BorrowedFd<'_>, at: Tc) -> Result<Attachment, Error> {
        let kind = match at {
            Tc::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Tc::Egress => libbpf_sys::BPF_TCX_EGRESS,
        };
        match self.link(program, kind, 0) {
            Ok(link) => Ok(Attachment::Link(link)),
            // before Linux 6.6
            Err(e) if e.raw_os_error() == Some(Errno::EINVAL as i32) => self.filter(program, at),
            Err(e) => Err(self.no_tc(&e)),
        }
    }

    /// Attaches to tc by a filter. It outlives a process that is killed, and the next one takes its place.
    pub(crate) fn filter(&self, program: BorrowedFd<'_>, at: Tc) -> Result<Attachment, Error> {
        let mut builder = TcHookBuilder::new(program);
        builder.ifindex(self.index).replace(true);
        builder.handle(FILTER_HANDLE).priority(FILTER_PRIORITY);
        let mut hook = builder.hook(match at {
            Tc::Ingress => TC_INGRESS,
            Tc::Egress => TC_EGRESS,
        });
        if hook.query().is_ok() {
            tracing::warn!(
                "a tc filter of batchwise is at {} already and is replaced: its agent was killed, or sees \
                 nothing from now on",
                self.name
            );
        }
        let attached = hook.create().and_then(|mut hook| hook.attach());
        Ok(Attachment::Filter {
            hook: attached.map_err(|e| self.no_tc(&e))?,
            ifindex: self.index.cast_unsigned(),
        })
    }

    fn no_tc(&self, why: &dyn Display) -> Error {
        Error::Refused(format!(
            "{} takes no tc program ({why}): use the privileges that `batchwise doctor` names, a kernel \
             with CONFIG_NET_CLS_ACT, or a driver with native XDP",
            self.name
        ))
    }

    fn link(
        &self,
        program: BorrowedFd<'_>,
        kind: libbpf_sys::bpf_attach_type,
        flags: u32,
    ) -> io::Result<OwnedFd> {
        let opts = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
            flags,
            ..Default::default()
        };
        // SAFETY: the descriptor is open, and `opts` is valid for the call and says its size.
        made(unsafe {
            libbpf_sys::bpf_link_create(program.as_raw_fd(), self.index, kind, &raw const opts)
        })
    }
}

/// What tc calls filters of ours by, so that one that was left behind is replaced.
const FILTER_HANDLE: u32 = 0x6277;
const FILTER_PRIORITY: u32 = 0x6277;

/// A side of tc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tc {
    /// What arrives.
    Ingress,
    /// What leaves.
    Egress,
}

/// A program at an interface, until this is dropped.
#[derive(Debug)]
pub(crate) enum Attachment {
    /// By XDP or tcx.
    Link(OwnedFd),
    /// By a filter of tc.
    Filter { hook: TcHook, ifindex: u32 },
}

impl Attachment {
    /// The index of the interface; none: it is gone, and the program with it.
    pub(crate) fn ifindex(&self) -> Option<u32> {
        match self {
            Self::Link(link) => index_of(link),
            Self::Filter { hook, ifindex } => {
                let mut hook = *hook;
                hook.query().is_ok().then_some(*ifindex)
            }
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Self::Filter { hook, .. } = self {
            drop(hook.detach()); // the interface may be gone
        }
    }
}

/// The index of the interface that an XDP or tcx link is attached to; none: the interface is gone.
pub(crate) fn index_of(link: &OwnedFd) -> Option<u32> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut len = size_of::<libbpf_sys::bpf_link_info>() as u32;
    // SAFETY: `info` is as long as `len` says.
    let error = unsafe {
        libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut len)
    };
    if error < 0 {
        return None;
    }
    // SAFETY: the type says which of the variants it is.
    let index = unsafe {
        match info.type_ {
            libbpf_sys::BPF_LINK_TYPE_XDP => info.__bindgen_anon_1.xdp.ifindex,
            libbpf_sys::BPF_LINK_TYPE_TCX => info.__bindgen_anon_1.tcx.ifindex,
            _ => 0,
        }
    };
    (index > 0).then_some(index)
}

fn known() -> String {
    let names: Vec<_> = if_nameindex()
        .iter()
        .flatten()
        .map(|i| i.name().to_string_lossy().into_owned())
        .collect();
    names.join(", ")
}
