//! The BPF programs of a process, as the kernel knows them.

use std::collections::BTreeSet;
use std::fs;

use libbpf_rs::query::ProgInfoIter;
use nix::unistd::Pid;

use crate::stage::eventually;

/// Ids of the programs that a process holds, its own or through links.
pub fn programs_of(pid: Pid) -> BTreeSet<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("its descriptors");
    let texts = entries
        .flatten()
        .filter_map(|e| fs::read_to_string(e.path()).ok());
    texts
        .flat_map(|text| {
            let ids = text.lines().filter_map(|l| l.strip_prefix("prog_id:"));
            ids.filter_map(|id| id.trim().parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Waits until the kernel has freed all these programs.
pub fn until_freed(programs: &BTreeSet<u32>) {
    let left = || ProgInfoIter::default().filter(|p| programs.contains(&p.id));
    eventually(
        "the kernel to free its programs",
        || left().next().is_none().then_some(()),
        || format!("left: {:?}", left().map(|p| p.name).collect::<Vec<_>>()),
    );
}
