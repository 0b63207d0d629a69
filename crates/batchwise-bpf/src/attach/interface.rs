//! Attaching programs to an interface: by links, which end with their descriptor, and where the kernel
//! has none for tc, by filters, which we take away.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use libbpf_rs::query::{ProgInfoIter, ProgramInfo};
use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};
use nix::errno::Errno;
use nix::net::if_::{if_indextoname, if_nameindex, if_nametoindex};

use crate::Error;
use crate::object::{info, made};

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

/// Whether there is an interface of this name.
///
/// # Errors
/// [`Error::NoInterface`], which says what there is.
pub fn check(name: &str) -> Result<(), Error> {
    Interface::find(name).map(drop)
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
        link.map_err(|cause| match cause.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EBUSY | Errno::EEXIST) => Error::OtherXdp {
                interface: self.name.clone(),
            },
            Some(Errno::EPERM) => Error::NoPrivilege,
            _ => Error::NoNativeXdp {
                interface: self.name.clone(),
                cause,
                remedy: "use --attach tc, or auto, which does so by itself",
            },
        })
    }

    /// Attaches to generic XDP, which every driver has.
    pub(crate) fn generic(&self, program: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
        let link = self.link(program, libbpf_sys::BPF_XDP, XDP_GENERIC);
        link.map_err(Error::io("attaching to generic XDP"))
    }

    /// Attaches to tc, unless a program of the same name is there: both would act on what passes.
    pub(crate) fn tc_once(&self, program: BorrowedFd<'_>, at: Tc) -> Result<Attachment, Error> {
        let (own, there) = (info(program).name, self.at_tc(at));
        let own = own.map(|byte| byte.to_ne_bytes()[0]);
        let own = own.split(|byte| *byte == 0).next();
        let is_own = |p: &ProgramInfo| own == Some(p.name.as_bytes());
        match ProgInfoIter::default().find(|p| there.contains(&p.id) && is_own(p)) {
            None => self.tc(program, at),
            Some(other) => Err(Error::TcTaken {
                interface: self.name.clone(),
                program: other.id,
            }),
        }
    }

    /// The programs at tc, by links; before Linux 6.6 there are none.
    fn at_tc(&self, at: Tc) -> Vec<u32> {
        let mut ids = [0; MOST_AT_TC];
        let mut opts = libbpf_sys::bpf_prog_query_opts {
            sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as _,
            prog_ids: ids.as_mut_ptr(),
            ..Default::default()
        };
        opts.__bindgen_anon_1.count = MOST_AT_TC as u32;
        // SAFETY: `opts` is valid for the call and says its size, and how many ids there is room for.
        let error =
            unsafe { libbpf_sys::bpf_prog_query_opts(self.index, at.kind(), &raw mut opts) };
        // SAFETY: the call has set it, or it is as it was.
        let count = unsafe { opts.__bindgen_anon_1.count } as usize;
        match error {
            0 => ids[..count.min(MOST_AT_TC)].to_vec(),
            _ => Vec::new(),
        }
    }

    /// Attaches to tc.
    pub(crate) fn tc(&self, program: BorrowedFd<'_>, at: Tc) -> Result<Attachment, Error> {
        match self.link(program, at.kind(), 0) {
            Ok(link) => Ok(Attachment::Link(link)),
            // before Linux 6.6
            Err(e) if e.raw_os_error() == Some(Errno::EINVAL as i32) => self.filter(program, at),
            Err(e) => Err(self.no_tc(e)),
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
        let hook = attached.map_err(|e| self.no_tc(io::Error::other(e)))?;
        let gone = || self.no_tc(io::Error::other("its filter is gone"));
        Ok(Attachment::Filter {
            program: program_at(&hook).ok_or_else(gone)?,
            hook,
            ifindex: self.index.cast_unsigned(),
        })
    }

    fn no_tc(&self, cause: io::Error) -> Error {
        Error::NoTc {
            interface: self.name.clone(),
            cause,
        }
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

/// BPF_MPROG_MAX of the kernel.
const MOST_AT_TC: usize = 64;

/// A side of tc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tc {
    /// What arrives.
    Ingress,
    /// What leaves.
    Egress,
}

impl Tc {
    const fn kind(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Self::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Self::Egress => libbpf_sys::BPF_TCX_EGRESS,
        }
    }
}

/// A program at an interface, until this is dropped.
#[derive(Debug)]
pub(crate) enum Attachment {
    /// By XDP or tcx.
    Link(OwnedFd),
    /// By a filter of tc, as long as it is this program's: another agent may have replaced it.
    Filter {
        hook: TcHook,
        program: u32,
        ifindex: u32,
    },
}

/// The id of the program of a filter.
fn program_at(hook: &TcHook) -> Option<u32> {
    let mut hook = *hook; // a query fills it
    hook.query().ok()
}

impl Attachment {
    /// The index of the interface; none: it is gone, and the program with it.
    pub(crate) fn ifindex(&self) -> Option<u32> {
        match self {
            Self::Link(link) => index_of(link),
            Self::Filter {
                hook,
                program,
                ifindex,
            } => (program_at(hook) == Some(*program)).then_some(*ifindex),
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Self::Filter { hook, program, .. } = self
            && program_at(hook) == Some(*program)
        {
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::thread;

    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::object::smallest;

    /// What stands in for tcx before Linux 6.6; the running kernel takes it, too.
    #[test]
    fn a_filter_that_was_replaced_takes_nothing_away_and_says_that_it_is_gone() {
        let in_own_network = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("run as root");
            let kind = libbpf_sys::BPF_PROG_TYPE_SCHED_CLS;
            let programs = [(); 2].map(|()| smallest(kind, 0, 0).expect("a program"));
            let lo = Interface::find("lo").expect("every network has it");
            let filter = |i: usize| {
                lo.filter(programs[i].as_fd(), Tc::Egress)
                    .expect("a filter")
            };

            let replaced = filter(0);
            assert_eq!(replaced.ifindex(), Some(1));
            let second = filter(1);
            assert_eq!((replaced.ifindex(), second.ifindex()), (None, Some(1)));
            drop(replaced);
            assert_eq!(second.ifindex(), Some(1));
            drop(second);
            let again = filter(1);
            assert_eq!(again.ifindex(), Some(1));
        };
        thread::spawn(in_own_network).join().expect("no panic");
    }
}
