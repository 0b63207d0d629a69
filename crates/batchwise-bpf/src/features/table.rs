//! The table itself: each thing that a subcommand needs of the kernel, the machine or the process.
//!
//! The smallest kernels are those of the upstream commits that brought the feature; what a
//! distribution ported back is found by looking, never by version.

use super::Probe::{
    Bpffs, Btf, Cgroup2, InBtf, Jit, Kernel, LoadsPacketPrograms, LoadsSocketPrograms, Privileges,
    SendHook, Setting,
};
use super::Subcommand::{Balance, Decap, Passive, Tune, Watch};
use super::{Feature, Need, User, Version};

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

/// The tracepoint at a send call's beginning, the best there is.
pub const SEND_BEGINS: &str = "tcp_sendmsg_locked";
/// The one behind the call, which stands in for it, and its smallest kernel.
pub(super) const SEND_ENDED: (&str, Version) = ("sock_send_length", (6, 3));

/// The first kernel with tc links.
pub(crate) const TCX_SINCE: Version = (6, 6);

/// Whoever loads programs.
const LOADERS: &[User] = &[
    needs(Watch, ""),
    needs(Tune, ""),
    needs(Passive, "--iface"),
    needs(Balance, ""),
    needs(Decap, ""),
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
            uses(Passive, "to know whether there are tc links"),
            uses(Balance, "the same"),
        ],
    },
    Feature {
        name: "BPF programs",
        since: Some((5, 5)),
        probe: LoadsSocketPrograms,
        users: &[needs(Watch, ""), needs(Tune, "")],
    },
    Feature {
        name: "bpf_rdonly_cast",
        since: Some((6, 2)),
        probe: InBtf("function", "bpf_rdonly_cast"),
        users: &[
            needs(Watch, "reading a socket's sequence numbers"),
            needs(Tune, "the same"),
        ],
    },
    Feature {
        name: "tcp_probe",
        since: Some((5, 5)),
        probe: InBtf("tracepoint", "tcp_probe"),
        users: QUEUES,
    },
    Feature {
        name: "tcp_rcv_space_adjust",
        since: Some((5, 5)),
        probe: InBtf("tracepoint", "tcp_rcv_space_adjust"),
        users: QUEUES,
    },
    Feature {
        name: "inet_sock_set_state",
        since: Some((5, 5)),
        probe: InBtf("tracepoint", "inet_sock_set_state"),
        users: QUEUES,
    },
    Feature {
        name: "send hook",
        since: Some((6, 16)),
        probe: SendHook,
        users: &[
            needs(Watch, "when a request or response is handed over"),
            needs(Tune, "the same"),
        ],
    },
    Feature {
        name: "iter/tcp",
        since: Some((5, 15)),
        probe: InBtf("iterator", "bpf_iter_tcp"),
        users: &[
            needs(Watch, "connections that were open before it"),
            needs(Tune, "switching sockets"),
        ],
    },
    Feature {
        name: "iter/bpf_sk_storage_map",
        since: Some((5, 9)),
        probe: InBtf("iterator", "bpf_iter_bpf_sk_storage_map"),
        users: &[
            needs(Watch, "reading the counters of all sockets"),
            needs(Tune, "the same"),
        ],
    },
    Feature {
        name: "TCP header options",
        since: Some((5, 10)),
        probe: InBtf("flag", "BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG"),
        users: &[
            uses(Watch, "--exchange: two-sided estimates"),
            needs(Tune, "what the other end knows"),
        ],
    },
    Feature {
        name: "late sock_ops callbacks",
        since: Some((6, 14)),
        probe: InBtf("socket option", "TCP_BPF_SOCK_OPS_CB_FLAGS"),
        users: &[
            uses(Watch, "--exchange on listeners that were open before it"),
            uses(Tune, "services that were started before it"),
        ],
    },
    Feature {
        name: "XDP programs",
        since: Some((5, 18)),
        probe: LoadsPacketPrograms,
        users: &[
            needs(Passive, "--iface"),
            needs(Balance, ""),
            needs(Decap, ""),
        ],
    },
    Feature {
        name: "tc links (tcx)",
        since: Some(TCX_SINCE),
        probe: InBtf("attach type", "BPF_TCX_INGRESS"),
        users: &[
            uses(Passive, "--attach tc"),
            needs(Balance, "health checks"),
        ],
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
        ],
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
        name: "congestion control",
        since: None,
        probe: Setting {
            name: "net.ipv4.tcp_congestion_control",
            meaning: "information",
        },
        users: &[],
    },
];
