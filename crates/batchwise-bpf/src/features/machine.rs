//! What the feature table is held against: this process's capabilities, the kernel's BTF, its
//! settings. Only looking.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, OsStr};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use batchwise_core::profile::report::Clock;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, Func, Typedef};
use serde::Serialize;

use super::capability::{BPF, Capability, LOADING, PERFMON, SYS_ADMIN};
use super::table::FRAGS;
use super::{FEATURES, Name, Probe, SendHook, Subcommand, Version};
use crate::attach::cgroup::mount_point;
use crate::attach::clock::best_clock;
use crate::attach::pins::bpffs_is_mounted;
use crate::object::smallest;

/// This machine and these privileges.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Effective capabilities, a bit each.
    pub capabilities: u64,
    /// As `uname -r` says.
    pub release: String,
    /// The names of the table that the kernel's BTF has, or why it cannot be read.
    pub btf: Result<BTreeSet<Name>, String>,
    /// Whether the kernel took the programs of a subcommand, if it was tried.
    pub loads: BTreeMap<Subcommand, Result<Vec<Program>, String>>,
    /// The settings of the table that can be read, by sysctl(8)'s name.
    pub settings: BTreeMap<&'static str, String>,
    /// Where cgroup v2 is mounted.
    pub cgroup2: Option<PathBuf>,
    /// Whether programs and maps can be pinned where `balance` does.
    pub bpffs: bool,
    /// Tries what CPUs can be sampled by, or says why by nothing. Only `profile` has it tried.
    pub clock: fn() -> Result<Clock, String>,
    /// Whether the kernel tells the addresses of its functions.
    pub symbols: bool,
    /// Tries whether the kernel takes the iterator of all sockets with a storage; hardened kernels do not.
    pub storage_iterator: fn() -> bool,
    /// Whether this PID namespace is the machine's, which has all processes.
    pub all_processes: bool,
}

/// What the kernel's verifier looks at, at most, before it gives up: `BPF_COMPLEXITY_LIMIT_INSNS`.
pub const LIMIT: u32 = 1_000_000;

/// A program that the kernel took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Program {
    /// Its name, as in the kernel.
    pub name: String,
    /// How many instructions the verifier looked at, out of [`LIMIT`]. Absent: the kernel does not say
    /// (before Linux 5.16).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u32>,
    /// Which hook for what is sent it is for.
    #[serde(skip)]
    pub hook: Option<SendHook>,
}

/// PROC_PID_INIT_INO (include/linux/proc_ns.h).
const MACHINES_PIDS: u64 = 0xefff_fffc;

/// Whether this process is in the machine's PID namespace, where processes have the numbers that the kernel has.
///
/// # Errors
/// When /proc does not tell.
pub fn in_machines_pids() -> std::io::Result<bool> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino() == MACHINES_PIDS)
}

impl Machine {
    /// Looks at what costs nothing: no program is loaded. Nothing fails: what cannot be seen is said.
    pub fn look() -> Self {
        let capabilities = fs::read_to_string("/proc/self/status")
            .ok()
            .and_then(|status| effective_capabilities(&status))
            .unwrap_or(0);
        Self {
            capabilities,
            release: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            btf: names_in_btf(),
            loads: BTreeMap::new(),
            settings: settings(),
            cgroup2: mount_point().ok(),
            bpffs: bpffs_is_mounted(),
            clock: || {
                best_clock()
                    .map(|(clock, _)| clock)
                    .map_err(|error| error.to_string())
            },
            symbols: shows_symbols(),
            storage_iterator: || takes_iterator(c"bpf_sk_storage_map"),
            all_processes: in_machines_pids().unwrap_or(false),
        }
    }

    /// Whether the kernel's BTF has this name of the table.
    pub fn has(&self, name: Name) -> bool {
        self.btf.as_ref().is_ok_and(|names| names.contains(&name))
    }

    /// The hooks for what is sent that this machine may take, best first. Which of them it takes, is known
    /// once programs were loaded.
    pub fn send_hooks(&self) -> impl Iterator<Item = SendHook> {
        let loaded = self.loads.values().flatten().flatten();
        let hooks: Vec<_> = loaded.filter_map(|p| p.hook).collect();
        SendHook::ALL.into_iter().filter(move |hook| {
            self.has(hook.place()) && (hooks.is_empty() || hooks.contains(hook))
        })
    }

    /// Whether XDP programs may take frames of more than one part; where nothing is known, it is tried.
    pub(crate) fn takes_frags(&self) -> bool {
        self.btf.is_err() || self.has(FRAGS)
    }

    /// The capabilities that loading needs and this process does not have.
    pub fn missing_capabilities(&self) -> Vec<&'static str> {
        self.missing_of(&LOADING)
    }

    /// The names of those of these that this process does not have.
    pub(super) fn missing_of(&self, wanted: &[Capability]) -> Vec<&'static str> {
        let stands_in = |one: &Capability| self.may(SYS_ADMIN) && [BPF, PERFMON].contains(one);
        let missing = wanted
            .iter()
            .filter(|one| !self.may(**one) && !stands_in(one));
        missing.map(|(name, _)| *name).collect()
    }

    fn may(&self, (_, number): Capability) -> bool {
        self.capabilities & (1 << number) != 0
    }

    /// Whether its capabilities allow mounts.
    pub fn may_mount(&self) -> bool {
        self.may(SYS_ADMIN)
    }

    /// Major and minor number of the kernel.
    pub fn version(&self) -> Option<Version> {
        version(&self.release)
    }
}

/// Major and minor number of a release.
fn version(release: &str) -> Option<Version> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// All addresses are 0 where they are hidden.
fn shows_symbols() -> bool {
    let Ok(file) = fs::File::open("/proc/kallsyms") else {
        return false;
    };
    // the first are addresses within a CPU's own memory, which begin at 0
    let mut first = BufReader::new(file).lines().take(1_000).flatten();
    first.any(|line| {
        let address = line.split(' ').next().unwrap_or_default();
        address.bytes().any(|digit| digit != b'0')
    })
}

/// Whether the kernel takes an iterator of these.
fn takes_iterator(of: &CStr) -> bool {
    let kind = libbpf_sys::BPF_TRACE_ITER;
    // SAFETY: the name ends with a 0, and is only read.
    let id = unsafe { libbpf_sys::libbpf_find_vmlinux_btf_id(of.as_ptr(), kind) };
    let program = libbpf_sys::BPF_PROG_TYPE_TRACING;
    u32::try_from(id).is_ok_and(|id| smallest(program, kind, id).is_ok())
}

fn settings() -> BTreeMap<&'static str, String> {
    let names = FEATURES.iter().filter_map(|f| match f.probe {
        Probe::Jit => Some(super::JIT),
        Probe::Setting { name, .. } => Some(name),
        _ => None,
    });
    let value = |name: &'static str| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        Some((name, read(&path)?))
    };
    names.filter_map(value).collect()
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let hex = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

/// Which tracepoints, functions and enumerators of the table the kernel's BTF has.
fn names_in_btf() -> Result<BTreeSet<Name>, String> {
    let btf = Btf::from_vmlinux().map_err(|error| error.to_string())?;
    let named = FEATURES.iter().filter_map(|feature| match feature.probe {
        Probe::InBtf(name) => Some(name),
        _ => None,
    });
    let (direct, enumerators): (Vec<_>, Vec<_>) = named
        .chain(SendHook::ALL.map(SendHook::place))
        .partition(|(kind, _)| ["tracepoint", "function", "iterator"].contains(kind));
    let mut found: BTreeSet<_> = direct
        .into_iter()
        .filter(|(kind, name)| match *kind {
            "tracepoint" => {
                let name = format!("btf_trace_{name}");
                btf.type_by_name::<Typedef<'_>>(&name).is_some()
            }
            _ => btf.type_by_name::<Func<'_>>(name).is_some(),
        })
        .collect();
    // These enumerations have no name to look up.
    for enumeration in btf.type_by_kind::<Enum<'_>>() {
        let names = enumeration.iter().filter_map(|member| member.name);
        for known in names.filter_map(OsStr::to_str) {
            found.extend(enumerators.iter().filter(|(_, name)| *name == known));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_process_status() {
        let status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t000000c000001000\n";
        let machine = Machine {
            capabilities: effective_capabilities(status).expect("a CapEff line"),
            ..Machine::look()
        };
        assert!(machine.missing_capabilities().is_empty());
        assert_eq!(effective_capabilities("Name:\tx\n"), None);
    }

    #[test]
    fn sys_admin_stands_for_bpf_and_perfmon_but_not_for_net_admin() {
        let machine = Machine {
            capabilities: 1 << SYS_ADMIN.1,
            ..Machine::look()
        };
        assert_eq!(machine.missing_capabilities(), ["CAP_NET_ADMIN"]);
    }

    #[test]
    fn the_kernel_version_is_read_from_distribution_releases() {
        for (release, expected) in [
            ("6.12.107+deb13-amd64", Some((6, 12))),
            ("6.1.0-13-amd64", Some((6, 1))),
            ("5.15-rc1", Some((5, 15))),
            ("", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
    }
}
