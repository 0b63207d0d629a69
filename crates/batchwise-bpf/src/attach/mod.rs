//! Where programs are attached, for every loader: interfaces, network namespaces, cgroups, clocks of CPUs,
//! and what is pinned in bpffs.

pub(crate) mod cgroup;
pub(crate) mod clock;
pub(crate) mod interface;
pub(crate) mod netns;
pub(crate) mod pins;
pub(crate) mod walk;
pub mod xdp;
