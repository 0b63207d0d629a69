//! What can go wrong between us and the kernel, each with its remedy.

use std::io;
use std::path::PathBuf;

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
    /// The kernel has not what a subcommand cannot do without.
    #[error("`batchwise {subcommand}` needs what the kernel has not ({found}): {remedy}")]
    NoFeature {
        /// The subcommand.
        subcommand: &'static str,
        /// What is missing.
        found: String,
        /// What to do.
        remedy: String,
    },
    /// No cgroup v2.
    #[error(
        "no cgroup v2 hierarchy is mounted: mount one, e.g. `mount -t cgroup2 none /sys/fs/cgroup`"
    )]
    NoCgroup2,
    /// The path is no cgroup.
    #[error("{path} is not a cgroup v2 directory: give one below {mount}")]
    NotACgroup {
        /// What was given.
        path: PathBuf,
        /// Where cgroup v2 is mounted.
        mount: PathBuf,
    },
    /// Too many ports.
    #[error("{given} ports given, at most {most} can be watched at once")]
    TooManyPorts {
        /// How many were given.
        given: usize,
        /// How many can be.
        most: usize,
    },
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
        "{interface} takes no native XDP program ({source}): use --attach tc, or auto, which does so by itself"
    )]
    NoNativeXdp {
        /// Its name.
        interface: String,
        /// What the kernel said.
        source: io::Error,
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
    /// The interface takes no tc program by link.
    #[error(
        "{interface} takes no tc program ({source}): that needs Linux 6.6 or newer; use a driver with native XDP on an older one"
    )]
    NoTcx {
        /// Its name.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The program to go on with cannot be.
    #[error("cannot go on with {path}: {why}")]
    BadThen {
        /// Where it is pinned.
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// No bpffs.
    #[error("no bpffs is mounted at {mount}: mount one with `mount -t bpf bpf {mount}`")]
    NoBpffs {
        /// Where it should be.
        mount: &'static str,
    },
    /// Not a load balancer's name.
    #[error("{name:?} is no name: give 1 to 32 lower-case letters, digits and dashes")]
    BadName {
        /// What was given.
        name: String,
    },
    /// What is pinned does not fit.
    #[error(
        "the load balancer {name:?} that runs already has {what}: keep to it, or end it with \
         `batchwise balance remove --name {name}` (its connections are then forgotten)"
    )]
    PinnedOtherwise {
        /// Its name.
        name: String,
        /// What it has.
        what: String,
    },
    /// What is pinned is in force elsewhere.
    #[error(
        "the load balancer {name:?} runs already, at interfaces of another network namespace ({}, of those \
         `lsns -t net` lists): give this one another `name`, or end that one with `batchwise balance remove \
         --name {name}` (its connections are then forgotten)",
        network.display()
    )]
    PinnedElsewhere {
        /// Its name.
        name: String,
        /// That namespace, as in `/proc/self/ns/net`.
        network: PathBuf,
    },
    /// Too many services.
    #[error("at most {most} services can be balanced at once: remove some")]
    TooManyServices {
        /// How many can be.
        most: u16,
    },
    /// Too many interfaces.
    #[error("packets can arrive at {most} interfaces at most: give fewer")]
    TooManyInterfaces {
        /// How many can be.
        most: usize,
    },
    /// Too many backends.
    #[error("at most {most} backends can be there at once: remove some")]
    TooManyBackends {
        /// How many can be.
        most: u16,
    },
    /// Balancing needs native XDP.
    #[error(
        "{interface} takes no native XDP program ({source}): balance on an interface whose driver has \
         XDP; on one with jumbo frames it must take those of more than one part, or have its MTU lowered"
    )]
    NoXdp {
        /// Its name.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another XDP program is where one of ours must be.
    #[error(
        "another XDP program is attached to {interface}: detach it, e.g. with `ip link set dev {interface} xdp off`"
    )]
    XdpTaken {
        /// Name of the interface.
        interface: String,
    },
    /// The kernel refused.
    #[error("{doing}: {source}")]
    Bpf {
        /// What was being done.
        doing: &'static str,
        /// What libbpf or the kernel said.
        source: libbpf_rs::Error,
    },
    /// Reading from the kernel failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn bpf(doing: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Self {
        move |source| match source.kind() {
            // EACCES is also what the verifier says; only the unprivileged are told to be root
            libbpf_rs::ErrorKind::PermissionDenied if !nix::unistd::geteuid().is_root() => {
                Self::NoPrivilege
            }
            _ => Self::Bpf { doing, source },
        }
    }

    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}
