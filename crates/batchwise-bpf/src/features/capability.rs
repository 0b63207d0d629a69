//! The capabilities of a process that features need.

/// Its name and its number (include/uapi/linux/capability.h).
pub type Capability = (&'static str, u32);
pub(super) const NET_ADMIN: Capability = ("CAP_NET_ADMIN", 12);
pub(super) const IPC_LOCK: Capability = ("CAP_IPC_LOCK", 14);
pub(super) const SYS_PTRACE: Capability = ("CAP_SYS_PTRACE", 19);
/// It includes CAP_PERFMON and CAP_BPF.
pub(super) const SYS_ADMIN: Capability = ("CAP_SYS_ADMIN", 21);
pub(super) const SYS_NICE: Capability = ("CAP_SYS_NICE", 23);
pub(super) const SYS_RESOURCE: Capability = ("CAP_SYS_RESOURCE", 24);
pub(super) const PERFMON: Capability = ("CAP_PERFMON", 38);
pub(super) const BPF: Capability = ("CAP_BPF", 39);
/// What loading programs needs.
pub(super) const LOADING: [Capability; 3] = [BPF, PERFMON, NET_ADMIN];
