//! What can go wrong between us and the kernel, each with its remedy.

use std::io;

/// An error of the loader.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not privileged.
    #[error(
        "not allowed to load BPF programs: run as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
    )]
    NoPrivilege,
    /// No BTF.
    #[error(
        "the kernel has no BTF at /sys/kernel/btf/vmlinux: use one built with CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoBtf,
    /// What was asked for cannot be: why, and what to do.
    #[error("{0}")]
    Refused(String),
    /// No such interface.
    #[error("there is no interface {name:?} in this network namespace: give one of {known}")]
    NoInterface {
        /// What was given.
        name: String,
        /// What there is.
        known: String,
    },
    /// The interface takes no native XDP program.
    #[error(
        "{interface} takes no native XDP program ({cause}): use --attach tc, or auto, which does so by itself"
    )]
    NoNativeXdp {
        /// Its name.
        interface: String,
        /// What the kernel said.
        cause: io::Error,
    },
    /// Another XDP program is there.
    #[error(
        "another XDP program is attached to {interface}: pin it, detach it and give its path with --then, \
         or see with --attach tc what it passes"
    )]
    OtherXdp {
        /// Name of the interface.
        interface: String,
    },
    /// Another XDP program is where one of ours must be.
    #[error(
        "another XDP program is attached to {interface} (`bpftool net` shows it): end what attached it, for a load balancer of ours with \
         `batchwise balance remove --name NAME`, or detach it with `ip link set dev {interface} xdp off`"
    )]
    XdpTaken {
        /// Name of the interface.
        interface: String,
    },
    /// The kernel refused. (All that is known is in the text: no source, which would be told twice.)
    #[error("{doing}: {cause:#}")]
    Bpf {
        /// What was being done.
        doing: &'static str,
        /// What libbpf or the kernel said.
        cause: libbpf_rs::Error,
    },
    /// Reading from the kernel failed.
    #[error("{doing}: {cause}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        cause: io::Error,
    },
}

impl Error {
    pub(crate) fn bpf(doing: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Self {
        move |cause| match cause.kind() {
            // EACCES is also what the verifier says; only the unprivileged are told to be root
            libbpf_rs::ErrorKind::PermissionDenied if !nix::unistd::geteuid().is_root() => {
                Self::NoPrivilege
            }
            _ => Self::Bpf { doing, cause },
        }
    }

    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Io { doing, cause }
    }
}
