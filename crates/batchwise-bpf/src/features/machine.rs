//! What the feature table is held against: this process's capabilities, the kernel's BTF, its
//! settings. Only looking.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, Func, Typedef};
use libbpf_rs::{MapType, ProgramType};

use super::table::SEND_ENDED;
use super::{FEATURES, Probe, SEND_BEGINS, Version};
use crate::attach::cgroup::mount_point;
use crate::attach::pins::bpffs_is_mounted;

/// CAP_NET_ADMIN.
const NET_ADMIN: u32 = 12;
/// CAP_SYS_ADMIN, which includes CAP_PERFMON and CAP_BPF.
const SYS_ADMIN: u32 = 21;
/// CAP_PERFMON.
const PERFMON: u32 = 38;
/// CAP_BPF.
const BPF: u32 = 39;

/// This machine and these privileges.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Effective capabilities, a bit each.
    pub capabilities: u64,
    /// As `uname -r` says.
    pub release: String,
    /// The names of the table that the kernel's BTF has, or why it cannot be read.
    pub btf: Result<BTreeSet<&'static str>, String>,
    /// Whether the kernel takes the kinds of programs and maps; `None` without the privileges.
    pub loads_socket_programs: Option<Result<(), String>>,
    /// The same for programs that see packets.
    pub loads_packet_programs: Option<Result<(), String>>,
    /// The settings of the table that can be read, by sysctl(8)'s name.
    pub settings: BTreeMap<&'static str, String>,
    /// Where cgroup v2 is mounted.
    pub cgroup2: Option<PathBuf>,
    /// Whether programs and maps can be pinned where `balance` does.
    pub bpffs: bool,
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
            loads_socket_programs: None,
            loads_packet_programs: None,
            settings: settings(),
            cgroup2: mount_point().ok(),
            bpffs: bpffs_is_mounted(),
        }
    }

    /// The same, and where the privileges are there the kernel is given small programs to load.
    pub fn examine() -> Self {
        let mut machine = Self::look();
        if machine.missing_capabilities().is_empty() {
            machine.loads_socket_programs = Some(try_socket_programs());
            machine.loads_packet_programs = Some(try_packet_programs());
        }
        machine
    }

    /// Whether the kernel's BTF has this name of the table.
    pub fn has(&self, name: &str) -> bool {
        self.btf.as_ref().is_ok_and(|names| names.contains(name))
    }

    /// The capabilities that loading needs and this process does not have.
    pub fn missing_capabilities(&self) -> Vec<&'static str> {
        let has = |capability: u32| self.capabilities & (1 << capability) != 0;
        let admin = has(SYS_ADMIN);
        [
            ("CAP_BPF", has(BPF) || admin),
            ("CAP_PERFMON", has(PERFMON) || admin),
            ("CAP_NET_ADMIN", has(NET_ADMIN)),
        ]
        .into_iter()
        .filter_map(|(name, there)| (!there).then_some(name))
        .collect()
    }

    /// Whether its capabilities allow mounts.
    pub fn may_mount(&self) -> bool {
        self.capabilities & (1 << SYS_ADMIN) != 0
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
fn names_in_btf() -> Result<BTreeSet<&'static str>, String> {
    let btf = Btf::from_vmlinux().map_err(|error| error.to_string())?;
    let mut found = BTreeSet::new();
    let mut enumerators = BTreeSet::new();
    let mut look = |kind: &str, name: &'static str| {
        let there = match kind {
            "tracepoint" => {
                let name = format!("btf_trace_{name}");
                btf.type_by_name::<Typedef<'_>>(&name).is_some()
            }
            "function" | "iterator" => btf.type_by_name::<Func<'_>>(name).is_some(),
            _ => {
                enumerators.insert(name);
                false
            }
        };
        found.extend(there.then_some(name));
    };
    for feature in FEATURES {
        match feature.probe {
            Probe::InBtf(kind, name) => look(kind, name),
            Probe::SendHook => {
                look("tracepoint", SEND_BEGINS);
                look("tracepoint", SEND_ENDED.0);
            }
            _ => {}
        }
    }
    // These enumerations have no name to look up.
    for enumeration in btf.type_by_kind::<Enum<'_>>() {
        let names = enumeration.iter().filter_map(|member| member.name);
        let known = names.filter_map(OsStr::to_str);
        found.extend(known.filter_map(|name| enumerators.get(name).copied()));
    }
    Ok(found)
}

/// Has the kernel load the smallest program and map of each kind: a lockdown, a security module
/// or a container's filter can forbid what the capabilities allow.
fn try_socket_programs() -> Result<(), String> {
    taken([
        // The same privileges and the same target as tp_btf programs. The probe of those tries
        // fentry, which some kernels forbid and nothing here uses.
        (
            "tracepoint programs",
            ProgramType::RawTracepoint.is_supported(),
        ),
        ("sock_ops programs", ProgramType::SockOps.is_supported()),
        ("socket storage maps", MapType::SkStorage.is_supported()),
    ])
}

fn try_packet_programs() -> Result<(), String> {
    taken([
        ("XDP programs", ProgramType::Xdp.is_supported()),
        ("tc programs", ProgramType::SchedCls.is_supported()),
        ("ring buffers", MapType::RingBuf.is_supported()),
    ])
}

fn taken<const N: usize>(
    outcomes: [(&str, Result<bool, libbpf_rs::Error>); N],
) -> Result<(), String> {
    for (kind, outcome) in outcomes {
        match outcome {
            Ok(true) => {}
            Ok(false) => return Err(format!("the kernel takes no {kind}")),
            Err(error) => return Err(format!("{kind}: {error}")),
        }
    }
    Ok(())
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
            capabilities: 1 << SYS_ADMIN,
            ..Machine::look()
        };
        assert_eq!(machine.missing_capabilities(), ["CAP_NET_ADMIN"]);
    }

    #[test]
    fn the_kernel_version_is_read_from_distribution_releases() {
        for (release, expected) in [
            ("6.18.44-fc-v470", Some((6, 18))),
            ("6.1.0-13-amd64", Some((6, 1))),
            ("5.15-rc1", Some((5, 15))),
            ("", None),
        ] {
            assert_eq!(version(release), expected, "{release}");
        }
    }
}
