//! What can go wrong between us and the kernel, each with its remedy.

use std::io;
use std::path::PathBuf;

use crate::subcommand::{Subcommand, Version};

/// Where bpffs is mounted.
pub const BPFFS: &str = "/sys/fs/bpf";
/// What to do where cgroup v2 is not mounted.
pub(crate) const MOUNT_CGROUP2: &str = "mount -t cgroup2 none /sys/fs/cgroup";

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
    /// The kernel lacks what a subcommand cannot do without.
    #[error("`batchwise {subcommand}` needs what the kernel has not ({found}): {remedy}")]
    MissingFeature {
        /// Who needs it.
        subcommand: Subcommand,
        /// Its name in the table of features.
        feature: &'static str,
        /// The smallest kernel that has it; none: it does not depend on the kernel's age.
        since: Option<Version>,
        /// What was found in its place.
        found: String,
        /// What to do.
        remedy: String,
    },
    /// More than there is room for.
    #[error("at most {most} {what} at once, not {given}: give fewer")]
    TooMany {
        /// Of what, and what becomes of them.
        what: &'static str,
        /// How many were given.
        given: usize,
        /// How many there can be.
        most: usize,
    },
    /// This process's clock is not that of the programs.
    #[error(
        "this time namespace has a clock of its own: run in the machine's (nsenter --time=/proc/1/ns/time)"
    )]
    OtherTimeNamespace,
    /// cgroup v2 is not there.
    #[error("no cgroup v2 hierarchy is mounted: `{MOUNT_CGROUP2}`")]
    NoCgroup2,
    /// A path that is no cgroup.
    #[error("{} is not a cgroup v2 directory: give one below {}", path.display(), mount.display())]
    NotACgroup {
        /// What was given.
        path: PathBuf,
        /// Where the hierarchy is.
        mount: PathBuf,
    },
    /// The cgroup is not the one that it was at the start.
    #[error(
        "the cgroup {} is {}: start again when its service runs",
        path.display(),
        if *replaced { "another one than at the start" } else { "gone" }
    )]
    CgroupGone {
        /// Where it was.
        path: PathBuf,
        /// Another one is there.
        replaced: bool,
    },
    /// There is no file system to pin in.
    #[error(
        "no bpffs is mounted at {BPFFS}, and mounting one failed ({cause}): as root, in the machine's \
         mount namespace, run `mount -t bpf bpf {BPFFS}`"
    )]
    NoBpffs {
        /// Why not.
        cause: io::Error,
    },
    /// A CPU that is not there, or sleeps.
    #[error("CPU {cpu} is not online: those that are: {online:?}")]
    NoCpu {
        /// What was given.
        cpu: u32,
        /// What there is.
        online: Vec<u32>,
    },
    /// CPUs may not be sampled.
    #[error("not allowed to sample CPUs: {remedy}")]
    NoSampling {
        /// What to do.
        remedy: &'static str,
    },
    /// No such interface.
    #[error("there is no interface {name:?} in this network namespace: give one of {known}")]
    NoInterface {
        /// What was given.
        name: String,
        /// What there is.
        known: String,
    },
    /// The interface takes no program in tc.
    #[error(
        "{interface} takes no tc program ({cause}): use the privileges that `batchwise doctor` names, and a \
         kernel with CONFIG_NET_CLS_ACT"
    )]
    NoTc {
        /// Its name.
        interface: String,
        /// What the kernel said.
        cause: io::Error,
    },
    /// Another agent's program of the same name is there.
    #[error(
        "another agent does the same at {interface} (its program is number {program}): end it first"
    )]
    TcTaken {
        /// Name of the interface.
        interface: String,
        /// The program's id.
        program: u32,
    },
    /// The interface takes no native XDP program.
    #[error("{interface} takes no native XDP program ({cause}): {remedy}")]
    NoNativeXdp {
        /// Its name.
        interface: String,
        /// What the kernel said.
        cause: io::Error,
        /// What to do.
        remedy: &'static str,
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
    /// The program that is to have the last word cannot be called.
    #[error("cannot go on with {}: {why}", path.display())]
    BadThen {
        /// Where it is pinned.
        path: PathBuf,
        /// Why not, and what to do.
        why: String,
    },
    /// A load balancer cannot have this name.
    #[error("{name:?} is no name: give 1 to 32 lower-case letters, digits and dashes")]
    BadName {
        /// What was given.
        name: String,
    },
    /// The load balancer of this name runs in another network namespace.
    #[error(
        "the load balancer {name:?} runs already, at interfaces of another network namespace ({}, of those \
         `lsns -t net` lists): give this one another `name`, or end that one with `batchwise balance remove \
         --name {name}` (its connections are then forgotten)",
        network.display()
    )]
    RunsElsewhere {
        /// The balancer's.
        name: String,
        /// The namespace's, as in `/proc/self/ns`.
        network: PathBuf,
    },
    /// What is pinned under this name does not fit.
    #[error(
        "the load balancer {name:?} that runs already has {what}: keep to it, or end it with `batchwise \
         balance remove --name {name}` (its connections are then forgotten)"
    )]
    PinnedOtherwise {
        /// The balancer's.
        name: String,
        /// What it has.
        what: String,
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
