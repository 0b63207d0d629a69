//! What the facts mean for `batchwise watch`: a list of checks, each with its remedy.

use serde::Serialize;

use batchwise_bpf::balance::BPFFS;

use super::facts::Facts;

/// Tracepoints that `watch` attaches to or can use.
pub const HOOKS: [&str; 5] = [
    "tcp_probe",
    "tcp_rcv_space_adjust",
    "inet_sock_set_state",
    "tcp_sendmsg_locked",
    "sock_send_length",
];
/// Tracepoints without which nothing can be estimated.
pub const ESSENTIAL_HOOKS: [&str; 3] = ["tcp_probe", "tcp_rcv_space_adjust", "inet_sock_set_state"];
/// The targets of the BPF iterators, as the kernel names them.
pub const WANTED_FUNCTIONS: [&str; 2] = ["bpf_iter_tcp", "bpf_iter_bpf_sk_storage_map"];
/// Lets a sock_ops program write TCP options.
pub const HEADER_OPTIONS: &str = "BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG";
/// Lets an iterator switch sock_ops callbacks on for sockets that were there before.
pub const LATE_CALLBACKS: &str = "TCP_BPF_SOCK_OPS_CB_FLAGS";
/// Lets tc programs attach by links.
pub const TC_LINKS: &str = "BPF_TCX_INGRESS";
/// Enumerators of the kernel's interface that are looked for.
pub const WANTED_ENUMERATORS: [&str; 3] = [HEADER_OPTIONS, LATE_CALLBACKS, TC_LINKS];

/// The oldest kernel on which the programs can work: `sock_send_length` came with it.
const OLDEST_KERNEL: (u32, u32) = (6, 3);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All that is wanted.
    Ok,
    /// It works, but not as well.
    Degraded,
    /// It is not there.
    Missing,
}

/// One thing that was looked at. The field names are a contract with programs.
#[derive(Debug, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it is.
    pub status: Status,
    /// `watch` cannot run at all without it.
    pub essential: bool,
    /// What there is.
    pub found: String,
    /// What does not work without it.
    pub needed_by: &'static str,
    /// What to do about it; there is one unless the status is [`Status::Ok`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Says what the facts mean.
pub fn judge(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![privileges(facts), kernel(facts), btf(facts), loading(facts)];
    checks.extend(ESSENTIAL_HOOKS.map(|hook| {
        presence(
            facts,
            hook,
            "tracepoint",
            true,
            "watch: the queues of a socket",
        )
    }));
    checks.push(send_hook(facts));
    checks.push(Check {
        name: "iter/tcp",
        ..presence(
            facts,
            "bpf_iter_tcp",
            "iterator",
            true,
            "watch: connections that were open before it",
        )
    });
    checks.push(Check {
        name: "iter/bpf_sk_storage_map",
        ..presence(
            facts,
            "bpf_iter_bpf_sk_storage_map",
            "iterator",
            true,
            "watch: reading the counters of all sockets",
        )
    });
    checks.push(Check {
        name: "TCP header options",
        ..presence(
            facts,
            HEADER_OPTIONS,
            "flag",
            false,
            "watch --exchange: two-sided estimates",
        )
    });
    checks.push(Check {
        name: "late sock_ops callbacks",
        ..presence(
            facts,
            LATE_CALLBACKS,
            "socket option",
            false,
            "watch --exchange on listeners that were open before it",
        )
    });
    checks.extend([
        xdp(facts),
        tc_links(facts),
        bpffs(facts),
        cgroup(facts),
        jit(facts),
        stats(facts),
        autocorking(facts),
        congestion(facts),
    ]);
    checks
}

fn privileges(facts: &Facts) -> Check {
    let missing = facts.missing_capabilities();
    let fine = missing.is_empty();
    Check {
        name: "privileges",
        status: if fine { Status::Ok } else { Status::Missing },
        essential: true,
        found: if fine {
            "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN".to_owned()
        } else {
            format!("no {}", missing.join(", "))
        },
        needed_by: "watch",
        remedy: (!fine).then(|| {
            "run it with sudo, or once: sudo setcap cap_bpf,cap_perfmon,cap_net_admin,\
             cap_sys_admin,cap_sys_ptrace+ep \"$(command -v batchwise)\" (the last two only to \
             find connections that are already open in other network namespaces)"
                .to_owned()
        }),
    }
}

fn kernel(facts: &Facts) -> Check {
    let fine = facts
        .kernel()
        .is_some_and(|version| version >= OLDEST_KERNEL);
    let (major, minor) = OLDEST_KERNEL;
    Check {
        name: "kernel",
        status: if fine { Status::Ok } else { Status::Missing },
        essential: true,
        found: format!("Linux {}", facts.release),
        needed_by: "watch",
        remedy: (!fine).then(|| format!("use Linux {major}.{minor} or newer, best 6.16 or newer")),
    }
}

fn btf(facts: &Facts) -> Check {
    let (status, found, remedy) = match &facts.btf {
        Ok(_) => (Status::Ok, "/sys/kernel/btf/vmlinux".to_owned(), None),
        Err(error) => (
            Status::Missing,
            format!("/sys/kernel/btf/vmlinux cannot be read: {error}"),
            Some("use a kernel built with CONFIG_DEBUG_INFO_BTF=y, with sysfs mounted".to_owned()),
        ),
    };
    Check {
        name: "BTF",
        status,
        essential: true,
        found,
        needed_by: "watch",
        remedy,
    }
}

fn loading(facts: &Facts) -> Check {
    Check {
        name: "BPF programs",
        essential: true,
        ..taken(&facts.loads, "watch")
    }
}

/// Interfaces differ in what they allow beyond that; the commands say so themselves.
fn xdp(facts: &Facts) -> Check {
    taken(&facts.loads_xdp, "passive --iface, balance, decap")
}

fn tc_links(facts: &Facts) -> Check {
    Check {
        name: "tc links (tcx)",
        ..presence(
            facts,
            TC_LINKS,
            "attach type",
            false,
            "balance: health checks; passive --attach tc",
        )
    }
}

fn bpffs(facts: &Facts) -> Check {
    let there = facts.bpffs;
    Check {
        name: "bpffs",
        status: if there { Status::Ok } else { Status::Missing },
        essential: false,
        found: if there {
            BPFFS.to_owned()
        } else {
            format!("not mounted at {BPFFS}")
        },
        needed_by: "balance: forwarding that outlives its agent",
        remedy: (!there).then(|| format!("mount -t bpf bpf {BPFFS}")),
    }
}

fn taken(loads: &Option<Result<(), String>>, needed_by: &'static str) -> Check {
    let (status, found, remedy) = match loads {
        Some(Ok(())) => (Status::Ok, "the kernel takes them".to_owned(), None),
        Some(Err(why)) => (
            Status::Missing,
            why.clone(),
            Some(
                "look for what forbids bpf(2): /sys/kernel/security/lockdown, a security module, \
                 a container's seccomp filter or user namespace"
                    .to_owned(),
            ),
        ),
        None => (
            Status::Degraded,
            "not tried without the privileges".to_owned(),
            Some("run the doctor with the privileges too".to_owned()),
        ),
    };
    Check {
        name: "XDP programs",
        status,
        essential: false,
        found,
        needed_by,
        remedy,
    }
}

fn has(facts: &Facts, name: &str) -> bool {
    facts.btf.as_ref().is_ok_and(|names| names.contains(name))
}

fn presence(
    facts: &Facts,
    name: &'static str,
    kind: &str,
    essential: bool,
    needed_by: &'static str,
) -> Check {
    let present = has(facts, name);
    let found = match (present, &facts.btf) {
        (true, _) => format!("{kind} {name}"),
        (false, Ok(_)) => format!("this kernel has no {kind} {name}"),
        (false, Err(_)) => "not known without BTF".to_owned(),
    };
    let remedy = if facts.btf.is_err() {
        "see BTF"
    } else {
        "use a newer kernel"
    };
    Check {
        name,
        status: if present { Status::Ok } else { Status::Missing },
        essential,
        found,
        needed_by,
        remedy: (!present).then(|| remedy.to_owned()),
    }
}

fn send_hook(facts: &Facts) -> Check {
    let entry = presence(
        facts,
        "tcp_sendmsg_locked",
        "tracepoint",
        true,
        "watch: when a request or response is handed over",
    );
    let entry = Check {
        name: "send hook",
        ..entry
    };
    if entry.status == Status::Ok || facts.btf.is_err() {
        return entry;
    }
    if has(facts, "sock_send_length") {
        return Check {
            status: Status::Degraded,
            found: "tracepoint sock_send_length: send times are taken after the call".to_owned(),
            remedy: Some("use Linux 6.16 or newer for exact send times".to_owned()),
            ..entry
        };
    }
    Check {
        found: "neither tracepoint tcp_sendmsg_locked nor sock_send_length".to_owned(),
        remedy: Some("use Linux 6.3 or newer, best 6.16 or newer".to_owned()),
        ..entry
    }
}

fn cgroup(facts: &Facts) -> Check {
    let mount = facts.cgroup2.as_ref();
    Check {
        name: "cgroup v2",
        status: if mount.is_some() {
            Status::Ok
        } else {
            Status::Missing
        },
        essential: false,
        found: mount.map_or_else(
            || "not mounted".to_owned(),
            |path| path.display().to_string(),
        ),
        needed_by: "watch --exchange: two-sided estimates",
        remedy: mount.is_none().then(|| {
            "mount -t cgroup2 none /sys/fs/cgroup/unified (make the directory)".to_owned()
        }),
    }
}

fn jit(facts: &Facts) -> Check {
    let (status, remedy) = match facts.jit.as_deref() {
        Some("0") => (
            Status::Degraded,
            Some("sysctl -w net.core.bpf_jit_enable=1".to_owned()),
        ),
        Some(_) => (Status::Ok, None),
        None => {
            let remedy = if facts.missing_capabilities().is_empty() {
                "only the host's network namespace shows it: nsenter --net=/proc/1/ns/net"
            } else {
                "run the doctor as root to see it"
            };
            (Status::Degraded, Some(remedy.to_owned()))
        }
    };
    Check {
        name: "BPF JIT",
        status,
        essential: false,
        found: sysctl("net.core.bpf_jit_enable", facts.jit.as_deref()),
        needed_by: "watch: hooks that cost little",
        remedy,
    }
}

fn sysctl(name: &str, value: Option<&str>) -> String {
    format!("{name} = {}", value.unwrap_or("(not readable)"))
}

fn information(name: &'static str, found: String, needed_by: &'static str) -> Check {
    Check {
        name,
        status: Status::Ok,
        essential: false,
        found,
        needed_by,
        remedy: None,
    }
}

fn stats(facts: &Facts) -> Check {
    let found = sysctl("kernel.bpf_stats_enabled", facts.stats.as_deref());
    information(
        "BPF statistics",
        found,
        "information: 1 adds to the cost of every hook",
    )
}

fn autocorking(facts: &Facts) -> Check {
    let found = sysctl("net.ipv4.tcp_autocorking", facts.autocorking.as_deref());
    information(
        "autocorking",
        found,
        "information: batches besides Nagle's algorithm",
    )
}

fn congestion(facts: &Facts) -> Check {
    let found = sysctl(
        "net.ipv4.tcp_congestion_control",
        facts.congestion_control.as_deref(),
    );
    information("congestion control", found, "information")
}
