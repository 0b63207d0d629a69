//! The table itself: each thing that a subcommand needs of the kernel, the machine or the process.
//!
//! The smallest kernels are those of the upstream commits that brought the feature; what a
//! distribution ported back is found by looking, never by version.

use super::Probe::{
    Bpffs, Btf, Cgroup2, Enumerator, Function, Iterator, Jit, Kernel, LoadsPacketPrograms,
    LoadsSocketPrograms, Privileges, Setting, Tracepoint,
};
use super::Subcommand::{Balance, Decap, Passive, Tune, Watch};
use super::{Feature, Need, User};

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

/// The hook at a send call's beginning, the best there is.
pub const SEND_BEGINS: &str = "tcp_sendmsg_locked";

/// Every feature, in the order in which `doctor` shows them.
pub const FEATURES: &[Feature] = &[
    Feature {
        name: "privileges",
        since: None,
        probe: Privileges,
        users: &[
            needs(Watch, ""),
            needs(Tune, ""),
            needs(Passive, "--iface"),
            needs(Balance, ""),
            needs(Decap, ""),
        ],
    },
    Feature {
        name: "kernel",
        since: None,
        probe: Kernel,
        users: &[
            needs(Watch, ""),
            needs(Tune, ""),
            needs(Passive, "--iface"),
            needs(Balance, ""),
            needs(Decap, ""),
        ],
    },
    Feature {
        name: "BTF",
        since: Some((5, 5)),
        probe: Btf,
        users: &[needs(Watch, ""), needs(Tune, "")],
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
        probe: Function("bpf_rdonly_cast"),
        users: &[
            needs(Watch, "reading a socket's sequence numbers"),
            needs(Tune, "the same"),
        ],
    },
    Feature {
        name: "tcp_probe",
        since: Some((5, 5)),
        probe: Tracepoint {
            name: "tcp_probe",
            stand_in: None,
        },
        users: &[
            needs(Watch, "the queues of a socket"),
            needs(Tune, "the same"),
        ],
    },
    Feature {
        name: "tcp_rcv_space_adjust",
        since: Some((5, 5)),
        probe: Tracepoint {
            name: "tcp_rcv_space_adjust",
            stand_in: None,
        },
        users: &[
            needs(Watch, "the queues of a socket"),
            needs(Tune, "the same"),
        ],
    },
    Feature {
        name: "inet_sock_set_state",
        since: Some((5, 5)),
        probe: Tracepoint {
            name: "inet_sock_set_state",
            stand_in: None,
        },
        users: &[
            needs(Watch, "the queues of a socket"),
            needs(Tune, "the same"),
        ],
    },
    Feature {
        name: "send hook",
        since: Some((6, 16)),
        probe: Tracepoint {
            name: SEND_BEGINS,
            stand_in: Some((
                "sock_send_length",
                (6, 3),
                "send times are taken after the call, and estimates are trusted less",
            )),
        },
        users: &[
            needs(Watch, "when a request or response is handed over"),
            needs(Tune, "the same"),
        ],
    },
    Feature {
        name: "iter/tcp",
        since: Some((5, 15)),
        probe: Iterator("bpf_iter_tcp"),
        users: &[
            needs(Watch, "connections that were open before it"),
            needs(Tune, "switching sockets"),
        ],
    },
    Feature {
        name: "iter/bpf_sk_storage_map",
        since: Some((5, 9)),
        probe: Iterator("bpf_iter_bpf_sk_storage_map"),
        users: &[
            needs(Watch, "reading the counters of all sockets"),
            needs(Tune, "the same"),
        ],
    },
    Feature {
        name: "TCP header options",
        since: Some((5, 10)),
        probe: Enumerator {
            kind: "flag",
            name: "BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG",
        },
        users: &[
            uses(Watch, "--exchange: two-sided estimates"),
            needs(Tune, "what the other end knows"),
        ],
    },
    Feature {
        name: "late sock_ops callbacks",
        since: Some((6, 14)),
        probe: Enumerator {
            kind: "socket option",
            name: "TCP_BPF_SOCK_OPS_CB_FLAGS",
        },
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
        since: Some((6, 6)),
        probe: Enumerator {
            kind: "attach type",
            name: "BPF_TCX_INGRESS",
        },
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
