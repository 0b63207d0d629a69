//! What `batchwise doctor` looks at: this process's capabilities, the kernel's BTF, its settings.
//! Only looking: [`super::checks`] says what it means.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use batchwise_bpf::balance::BPFFS;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, Func, Typedef};
use libbpf_rs::{MapType, ProgramType};

use super::checks::{HOOKS, WANTED_ENUMERATORS, WANTED_FUNCTIONS};

/// CAP_NET_ADMIN.
pub const NET_ADMIN: u32 = 12;
/// CAP_SYS_ADMIN, which includes CAP_PERFMON and CAP_BPF.
pub const SYS_ADMIN: u32 = 21;
/// CAP_PERFMON.
pub const PERFMON: u32 = 38;
/// CAP_BPF.
pub const BPF: u32 = 39;

/// This machine and these privileges; a setting that cannot be read is `None`.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Effective capabilities, a bit each.
    pub capabilities: u64,
    /// As `uname -r` says.
    pub release: String,
    /// The wanted names that the kernel's BTF has, or why it cannot be read.
    pub btf: Result<BTreeSet<String>, String>,
    /// Whether the kernel takes the kinds of programs and maps; `None` without the privileges.
    pub loads: Option<Result<(), String>>,
    /// The same for what `passive` needs.
    pub loads_xdp: Option<Result<(), String>>,
    /// net.core.bpf_jit_enable.
    pub jit: Option<String>,
    /// kernel.bpf_stats_enabled.
    pub stats: Option<String>,
    /// net.ipv4.tcp_autocorking.
    pub autocorking: Option<String>,
    /// net.ipv4.tcp_congestion_control.
    pub congestion_control: Option<String>,
    /// Where cgroup v2 is mounted.
    pub cgroup2: Option<PathBuf>,
    /// Whether programs and maps can be pinned where `balance` does.
    pub bpffs: bool,
}

impl Facts {
    /// Looks at this machine. Nothing is changed, and nothing fails: what cannot be seen is said.
    pub fn gather() -> Self {
        let capabilities = fs::read_to_string("/proc/self/status")
            .ok()
            .and_then(|status| effective_capabilities(&status))
            .unwrap_or(0);
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let mut facts = Self {
            capabilities,
            release: setting("/proc/sys/kernel/osrelease").unwrap_or_default(),
            btf: wanted_in_btf(),
            loads: None,
            loads_xdp: None,
            jit: setting("/proc/sys/net/core/bpf_jit_enable"),
            stats: setting("/proc/sys/kernel/bpf_stats_enabled"),
            autocorking: setting("/proc/sys/net/ipv4/tcp_autocorking"),
            congestion_control: setting("/proc/sys/net/ipv4/tcp_congestion_control"),
            cgroup2: mount_of(&mounts, |_, kind| kind == "cgroup2"),
            bpffs: mount_of(&mounts, |path, kind| path == BPFFS && kind == "bpf").is_some(),
        };
        if facts.missing_capabilities().is_empty() {
            facts.loads = Some(try_loading());
            facts.loads_xdp = Some(try_loading_xdp());
        }
        facts
    }

    /// A machine of which nothing can be seen.
    #[cfg(test)]
    pub fn none() -> Self {
        Self {
            capabilities: 0,
            release: String::new(),
            btf: Err("gone".to_owned()),
            loads: None,
            loads_xdp: None,
            jit: None,
            stats: None,
            autocorking: None,
            congestion_control: None,
            cgroup2: None,
            bpffs: false,
        }
    }

    /// The capabilities that `watch` needs and this process does not have.
    pub fn missing_capabilities(&self) -> Vec<&'static str> {
        let has = |capability: u32| self.capabilities & (1 << capability) != 0;
        let admin = has(SYS_ADMIN);
        let needed = [
            ("CAP_BPF", has(BPF) || admin),
            ("CAP_PERFMON", has(PERFMON) || admin),
            ("CAP_NET_ADMIN", has(NET_ADMIN)),
        ];
        needed
            .into_iter()
            .filter(|(_, there)| !there)
            .map(|(name, _)| name)
            .collect()
    }

    /// Major and minor number of the kernel.
    pub fn kernel(&self) -> Option<(u32, u32)> {
        let mut numbers = self.release.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

fn setting(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let hex = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

fn mount_of(mounts: &str, is: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind) = (fields.next()?, fields.next()?);
        is(path, kind).then(|| path.into())
    })
}

/// Which of the wanted tracepoints, functions and enumerators the kernel's BTF has.
fn wanted_in_btf() -> Result<BTreeSet<String>, String> {
    let btf = Btf::from_vmlinux().map_err(|error| error.to_string())?;
    let mut found = BTreeSet::new();
    for hook in HOOKS {
        if btf
            .type_by_name::<Typedef>(&format!("btf_trace_{hook}"))
            .is_some()
        {
            found.insert(hook.to_owned());
        }
    }
    for function in WANTED_FUNCTIONS {
        if btf.type_by_name::<Func>(function).is_some() {
            found.insert(function.to_owned());
        }
    }
    // These enumerations have no name to look up.
    for enumeration in btf.type_by_kind::<Enum>() {
        for name in enumeration
            .iter()
            .filter_map(|member| member.name)
            .filter_map(OsStr::to_str)
        {
            if WANTED_ENUMERATORS.contains(&name) {
                found.insert(name.to_owned());
            }
        }
    }
    Ok(found)
}

/// Has the kernel load the smallest program and map of each kind: a lockdown, a security module
/// or a container's filter can forbid what the capabilities allow.
fn try_loading() -> Result<(), String> {
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

fn try_loading_xdp() -> Result<(), String> {
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
        let facts = Facts {
            capabilities: effective_capabilities(status).expect("a CapEff line"),
            ..Facts::none()
        };
        assert!(facts.missing_capabilities().is_empty());
        assert_eq!(effective_capabilities("Name:\tx\n"), None);
    }

    #[test]
    fn sys_admin_stands_for_bpf_and_perfmon_but_not_for_net_admin() {
        let facts = Facts {
            capabilities: 1 << SYS_ADMIN,
            ..Facts::none()
        };
        assert_eq!(facts.missing_capabilities(), ["CAP_NET_ADMIN"]);
    }

    #[test]
    fn the_kernel_version_is_read_from_distribution_releases() {
        for (release, version) in [
            ("6.18.44-fc-v470", Some((6, 18))),
            ("6.1.0-13-amd64", Some((6, 1))),
            ("5.15-rc1", Some((5, 15))),
            ("", None),
        ] {
            let facts = Facts {
                release: release.to_owned(),
                ..Facts::none()
            };
            assert_eq!(facts.kernel(), version, "{release}");
        }
    }

    #[test]
    fn cgroup_v2_is_found_in_a_hybrid_layout() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        let cgroup2 = |mounts| mount_of(mounts, |_, kind| kind == "cgroup2");
        let found = PathBuf::from("/sys/fs/cgroup/unified");
        assert_eq!(cgroup2(mounts), Some(found));
        assert_eq!(cgroup2("proc /proc proc rw 0 0\n"), None);
    }
}
