//! Where programs are attached, for every loader: interfaces, their drivers, network namespaces, cgroups,
//! and what is pinned in bpffs.

pub(crate) mod cgroup;
pub(crate) mod interface;
pub(crate) mod netns;
pub(crate) mod pins;
pub mod xdp;
