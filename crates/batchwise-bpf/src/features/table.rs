//! The table itself: each thing that a subcommand needs of the kernel, the machine or the process.
//!
//! The smallest kernels are those of the upstream commits that brought the feature; what a
//! distribution ported back is found by looking, never by version.

use super::Probe::{
    Bpffs, Btf, Capabilities, Cgroup2, Clock, InBtf, Jit, Kernel, Loads, Privileges, Send, Setting,
    StorageIterator, Symbols,
};
use super::Subcommand::{Balance, Burst, Decap, Passive, Profile, Tune, Watch, Window};
use super::capability::{IPC_LOCK, SYS_ADMIN, SYS_NICE, SYS_PTRACE, SYS_RESOURCE};
use super::{Feature, Name, Need, User};

/// Without it the subcommand cannot run.
const fn needs(subcommand: super::Subcommand, purpose: &'static str) -> User {
    User {
        subcommand,
        need: Need::Essential,
        purpose,
    }
}

/// Without it the subcommand does less, or less well.
const fn uses(subcommand: super::Subcommand, purpose: &'static str) -> User {
    User {
        subcommand,
        need: Need::Optional,
        purpose,
    }
}

/// What sees that bytes are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendHook {
    /// A tracepoint at the beginning of a send call.
    Tracepoint,
    /// The entry of the kernel's function, where fentry programs are allowed.
    Entry,
    /// A tracepoint behind the call: send times are late.
    Ended,
}

impl SendHook {
    /// In order of preference. That fentry would be cheaper was not measured: where it was to be had, time
    /// was not.
    pub const ALL: [Self; 3] = [Self::Tracepoint, Self::Entry, Self::Ended];

    /// What it is, and its name in the kernel's type information.
    pub const fn place(self) -> Name {
        match self {
            Self::Tracepoint => ("tracepoint", "tcp_sendmsg_locked"),
            Self::Entry => ("function", "tcp_sendmsg_locked"),
            Self::Ended => ("tracepoint", "sock_send_length"),
        }
    }
}

/// The socket option that sets a socket's callbacks from a walk.
pub(crate) const LATE_CALLBACKS: Name = ("socket option", "TCP_BPF_SOCK_OPS_CB_FLAGS");
/// A function for queueing disciplines in BPF.
pub(crate) const OWN_QUEUE: Name = ("function", "bpf_qdisc_bstats_update");
/// The helper that came with XDP frames of more than one part.
pub(super) const FRAGS: Name = ("helper", "BPF_FUNC_xdp_get_buff_len");

/// Whoever loads programs.
const LOADERS: &[User] = &[
    needs(Watch, ""),
    needs(Tune, ""),
    needs(Passive, "--iface"),
    needs(Balance, ""),
    needs(Decap, ""),
    needs(Window, ""),
    needs(Profile, ""),
    needs(Burst, ""),
];
const QUEUES: &[User] = &[
    needs(Watch, "the queues of a socket"),
    needs(Tune, "the same"),
];

/// Every feature, in the order in which `doctor` shows them.
pub const FEATURES: &[Feature] = &[
    Feature {
        name: "privileges",
        since: None,
        probe: Privileges,
        users: LOADERS,
    },
    Feature {
        name: "other namespaces",
        since: None,
        probe: Capabilities(&[SYS_ADMIN, SYS_PTRACE]),
        users: &[
            uses(
                Watch,
                "connections that are open already in other network namespaces",
            ),
            uses(Tune, "sockets of other network namespaces and processes"),
        ],
    },
    Feature {
        name: "maps by number",
        since: None,
        probe: Capabilities(&[SYS_ADMIN]),
        users: &[needs(Balance, "services' tables, which are maps in a map")],
    },
    Feature {
        name: "a guard that outlives",
        since: None,
        probe: Capabilities(&[SYS_RESOURCE, IPC_LOCK, SYS_NICE]),
        users: &[uses(
            Tune,
            "sockets are given back where memory runs out or CPUs are busy",
        )],
    },
    Feature {
        name: "other processes",
        since: None,
        probe: Capabilities(&[SYS_PTRACE]),
        users: &[uses(Profile, "--port")],
    },
    Feature {
        name: "kernel",
        since: None,
        probe: Kernel,
        users: LOADERS,
    },
    Feature {
        name: "BTF",
        since: Some((5, 5)),
        probe: Btf,
        users: &[
            needs(Watch, ""),
            needs(Tune, ""),
            needs(Window, ""),
            needs(Burst, ""),
            uses(Profile, "to know what the kernel has"),
            uses(Passive, "the same"),
            uses(Balance, "the same"),
            uses(Decap, "the same"),
        ],
    },
    Feature {
        name: "BPF programs",
        since: Some((5, 12)),
        probe: Loads,
        users: &[
            needs(Watch, ""),
            needs(Tune, ""),
            needs(Window, ""),
            needs(Profile, ""),
            needs(Burst, ""),
        ],
    },
    Feature {
        name: "tcp_probe",
        since: Some((5, 5)),
        probe: InBtf(("tracepoint", "tcp_probe")),
        users: QUEUES,
    },
    Feature {
        name: "tcp_rcv_space_adjust",
        since: Some((5, 5)),
        probe: InBtf(("tracepoint", "tcp_rcv_space_adjust")),
        users: QUEUES,
    },
    Feature {
        name: "inet_sock_set_state",
        since: Some((5, 5)),
        probe: InBtf(("tracepoint", "inet_sock_set_state")),
        users: QUEUES,
    },
    Feature {
        name: "send hook",
        since: Some((6, 16)),
        probe: Send,
        users: &[
            needs(Watch, "when a request or response is handed over"),
            needs(Tune, "the same"),
        ],
    },
    Feature {
        name: "iter/tcp",
        since: Some((5, 15)),
        probe: InBtf(("iterator", "bpf_iter_tcp")),
        users: &[
            needs(Watch, "connections that were open before it"),
            needs(Tune, "switching sockets"),
        ],
    },
    Feature {
        name: "TCP_NODELAY from BPF",
        since: Some((6, 1)),
        // came with it, and is exported: of what is not, a compiler may leave nothing
        probe: InBtf(("function", "sockopt_lock_sock")),
        users: &[needs(Tune, "switching sockets")],
    },
    Feature {
        name: "iter/bpf_sk_storage_map",
        since: Some((5, 9)),
        probe: StorageIterator,
        users: &[
            uses(Watch, "reading the counters at little cost"),
            uses(Tune, "the same"),
        ],
    },
    Feature {
        name: "TCP header options",
        since: Some((5, 10)),
        probe: InBtf(("flag", "BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG")),
        users: &[uses(Watch, "--exchange: two-sided estimates")],
    },
    Feature {
        name: "late sock_ops callbacks",
        since: Some((6, 14)),
        probe: InBtf(LATE_CALLBACKS),
        users: &[
            uses(Watch, "--exchange on listeners that were open before it"),
            needs(Window, "sockets that are registered"),
        ],
    },
    Feature {
        name: "XDP programs",
        since: Some((5, 14)),
        probe: Loads,
        users: &[
            needs(Passive, "--iface"),
            needs(Balance, ""),
            needs(Decap, ""),
        ],
    },
    Feature {
        name: "XDP frames of several parts",
        since: Some((5, 18)),
        probe: InBtf(FRAGS),
        users: &[
            uses(Passive, "interfaces with jumbo frames"),
            uses(Balance, "the same"),
            uses(Decap, "the same"),
        ],
    },
    Feature {
        name: "tc links (tcx)",
        since: Some((6, 6)),
        probe: InBtf(("attach type", "BPF_TCX_INGRESS")),
        users: &[
            uses(
                Passive,
                "--attach tc that ends with its agent, even a killed one",
            ),
            uses(Balance, "health checks that do"),
            uses(Burst, "mark and admit that do"),
        ],
    },
    Feature {
        name: "kernel's view of a packet",
        since: Some((6, 2)),
        probe: InBtf(("function", "bpf_cast_to_kern_ctx")),
        users: &[uses(Burst, "admit: to read the queue at little cost")],
    },
    Feature {
        name: "queues in BPF",
        since: Some((6, 16)),
        probe: InBtf(OWN_QUEUE),
        users: &[uses(Burst, "admit --own-queue: an exact queue")],
    },
    Feature {
        name: "bpffs",
        since: Some((4, 4)),
        probe: Bpffs,
        users: &[needs(Balance, "forwarding that outlives its agent")],
    },
    Feature {
        name: "cgroup v2",
        since: Some((4, 15)),
        probe: Cgroup2,
        users: &[
            uses(Watch, "--exchange: two-sided estimates"),
            needs(Tune, "the sockets of a service"),
            needs(Window, "the sockets that may be registered"),
            uses(Profile, "--cgroup"),
        ],
    },
    Feature {
        name: "clock of a CPU",
        since: None,
        probe: Clock,
        users: &[needs(Profile, "")],
    },
    Feature {
        name: "kernel symbols",
        since: None,
        probe: Symbols,
        users: &[needs(Profile, "")],
    },
    Feature {
        name: "BPF JIT",
        since: None,
        probe: Jit,
        users: &[
            uses(Watch, "hooks that cost little"),
            uses(Tune, "the same"),
            uses(Passive, "the same"),
            uses(Balance, "the same"),
            uses(Decap, "the same"),
            uses(Burst, "the same"),
        ],
    },
    Feature {
        name: "BPF statistics",
        since: None,
        probe: Setting {
            name: "kernel.bpf_stats_enabled",
            meaning: "information: 1 adds to the cost of every hook",
        },
        users: &[],
    },
    Feature {
        name: "autocorking",
        since: None,
        probe: Setting {
            name: "net.ipv4.tcp_autocorking",
            meaning: "information: batches besides Nagle's algorithm",
        },
        users: &[],
    },
    Feature {
        name: "delayed ACKs",
        since: Some((6, 7)),
        probe: Setting {
            name: "net.ipv4.tcp_pingpong_thresh",
            meaning: "information: `tune --scope namespace` raises it; where there is none, sockets and routes remain",
        },
        users: &[],
    },
    Feature {
        name: "MPTCP",
        since: None,
        probe: Setting {
            name: "net.mptcp.enabled",
            meaning: "information: of connections of MPTCP `watch` and `tune` see nothing, and say how many there are",
        },
        users: &[],
    },
    Feature {
        name: "congestion control",
        since: None,
        probe: Setting {
            name: "net.ipv4.tcp_congestion_control",
            meaning: "information",
        },
        users: &[],
    },
];
