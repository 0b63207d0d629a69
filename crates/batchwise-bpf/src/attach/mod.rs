//! Where programs are attached, for every loader: interfaces, network namespaces (and which ports are listened on
//! there), cgroups, clocks of CPUs, and what is pinned in bpffs.

pub(crate) mod cgroup;
pub(crate) mod clock;
pub(crate) mod interface;
pub(crate) mod listeners;
pub(crate) mod netns;
pub(crate) mod pins;
pub(crate) mod walk;
pub mod xdp;
