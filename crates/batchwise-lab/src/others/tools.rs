//! The tools: how each is started, when it is ready, what it says, and what that tells.

use std::path::Path;
use std::process::Command;

use serde::Serialize;

use super::says::Says;

/// The server's port and its link stand as these in a command, the product's own command as this.
const PORT: &str = "PORT";
const LINK: &str = "LINK";
const BATCHWISE: &str = "BATCHWISE";

/// A tool that is attached to a busy server.
#[derive(Debug)]
pub struct Tool {
    pub name: &'static str,
    /// Debian's package that has it.
    pub package: &'static str,
    command: &'static [&'static str],
    /// It is attached once it holds a BPF program; else once it has printed something.
    pub has_programs: bool,
    /// It works once a second: less time with it would show nothing, or too much.
    pub is_periodic: bool,
    /// How its output is read.
    pub says: Says,
    pub tells: Tells,
}

/// What a tool tells, in words.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tells {
    /// What its number is.
    pub number: &'static str,
    pub per_service: &'static str,
    pub request_latency: &'static str,
    pub both_ends: &'static str,
    pub p99: &'static str,
    pub app_change: &'static str,
    pub coverage: &'static str,
}

const SRTT: &str = "the kernel's smoothed round-trip time: until the ACK, which rides on the \
                    answer or comes at once";
const EVERY_SEGMENT: &str = "every segment that arrives";
const OF_CONNECTIONS: Tells = Tells {
    number: "how long a connection was open, and its bytes",
    per_service: "yes, by port",
    request_latency: "no",
    both_ends: "no",
    p99: "of connections",
    app_change: "no",
    coverage: "connections that begin and end while it runs",
};
const OF_ACKS: Tells = Tells {
    number: SRTT,
    per_service: "yes, by port",
    request_latency: "no",
    both_ends: "no",
    p99: "of smoothed values, in powers of two",
    app_change: "no",
    coverage: EVERY_SEGMENT,
};
const OF_WATCH: Tells = Tells {
    number: "mean latency of a request by the queues of its sockets, with its parts",
    per_service: "yes, each listener",
    request_latency: "yes, from the client's send to its read where both ends are seen",
    both_ends: "yes, on one machine as here, or with --exchange",
    p99: "yes, of requests that are matched with their responses",
    app_change: "no",
    coverage: "one window in each second, as long as the budget allows",
};

/// All of them, and `nothing`, which shows how far the method itself is off.
pub const TOOLS: &[Tool] = &[
    Tool {
        name: "nothing",
        package: "coreutils",
        command: &["sh", "-c", "echo; exec sleep 3600"],
        has_programs: false,
        is_periodic: false,
        says: Says::Nothing,
        tells: Tells {
            number: "none",
            per_service: "no",
            request_latency: "no",
            both_ends: "no",
            p99: "no",
            app_change: "no",
            coverage: "none",
        },
    },
    Tool {
        name: "watch",
        package: "batchwise",
        command: &[BATCHWISE, "watch", "--port", PORT, "--format", "jsonl"],
        has_programs: true,
        is_periodic: true,
        says: Says::Watch,
        tells: OF_WATCH,
    },
    Tool {
        name: "watch-all",
        package: "batchwise",
        command: &[
            BATCHWISE, "watch", "--port", PORT, "--format", "jsonl", "--cost", "off",
        ],
        has_programs: true,
        is_periodic: false,
        says: Says::Watch,
        tells: Tells {
            coverage: "everything",
            ..OF_WATCH
        },
    },
    Tool {
        name: "bpftrace-srtt",
        package: "bpftrace",
        command: &[
            "bpftrace",
            "-e",
            "tracepoint:tcp:tcp_probe /args->sport == PORT/ { @us = hist(args->srtt); }",
        ],
        has_programs: true,
        is_periodic: false,
        says: Says::Histogram,
        tells: OF_ACKS,
    },
    Tool {
        name: "bpftrace-request",
        package: "bpftrace",
        command: &[
            "bpftrace",
            "-e",
            "tracepoint:tcp:tcp_probe /args->sport == PORT && args->data_len > 0/ {
               @arrived[args->skaddr] = nsecs;
             }
             tracepoint:sock:sock_send_length /@arrived[args->sk]/ {
               @us = hist((nsecs - @arrived[args->sk]) / 1000);
               delete(@arrived[args->sk]);
             }",
        ],
        has_programs: true,
        is_periodic: false,
        says: Says::Histogram,
        tells: Tells {
            number: "from a segment's arrival at a socket to the next send from it",
            per_service: "yes, by port",
            request_latency: "the server's part, of one request in flight a connection",
            both_ends: "no",
            p99: "yes, in powers of two",
            app_change: "no",
            coverage: "everything",
        },
    },
    Tool {
        name: "bpftrace-syscalls",
        package: "bpftrace",
        command: &[
            "bpftrace",
            "-e",
            "tracepoint:syscalls:sys_enter_read /comm == \"redis-server\"/ { @fd[tid] = args->fd; }
             tracepoint:syscalls:sys_exit_read /comm == \"redis-server\" && args->ret > 0/ {
               @read[@fd[tid]] = nsecs;
             }
             tracepoint:syscalls:sys_enter_write /comm == \"redis-server\" && @read[args->fd]/ {
               @us = hist((nsecs - @read[args->fd]) / 1000);
               delete(@read[args->fd]);
             }",
        ],
        has_programs: true,
        is_periodic: false,
        says: Says::Histogram,
        tells: Tells {
            number: "from read() to write() of the same descriptor",
            per_service: "by the name of the program, which must use these calls",
            request_latency: "the application's part only: not the wait until it reads",
            both_ends: "no",
            p99: "yes, in powers of two",
            app_change: "no",
            coverage: "everything",
        },
    },
    Tool {
        name: "tcprtt",
        package: "libbpf-tools",
        command: &["tcprtt", "-i", "1", "-p", PORT],
        has_programs: true,
        is_periodic: false,
        says: Says::Nothing,
        tells: OF_ACKS,
    },
    Tool {
        name: "tcplife",
        package: "libbpf-tools",
        command: &["tcplife", "-L", PORT],
        has_programs: true,
        is_periodic: false,
        says: Says::Nothing,
        tells: OF_CONNECTIONS,
    },
    Tool {
        name: "tcptop",
        package: "libbpf-tools",
        command: &["tcptop", "-C", "1"],
        has_programs: true,
        is_periodic: false,
        says: Says::Nothing,
        tells: Tells {
            number: "bytes a second of each connection",
            per_service: "by connection",
            request_latency: "no",
            both_ends: "no",
            p99: "no",
            app_change: "no",
            coverage: "everything",
        },
    },
    Tool {
        name: "tcprtt-bpfcc",
        package: "bpfcc-tools",
        command: &["tcprtt-bpfcc", "-i", "1", "-p", PORT],
        has_programs: true,
        is_periodic: false,
        says: Says::Nothing,
        tells: OF_ACKS,
    },
    Tool {
        name: "tcplife-bpfcc",
        package: "bpfcc-tools",
        command: &["tcplife-bpfcc", "-L", PORT],
        has_programs: true,
        is_periodic: false,
        says: Says::Nothing,
        tells: OF_CONNECTIONS,
    },
    Tool {
        name: "ss",
        package: "iproute2",
        command: &[
            "sh",
            "-c",
            "while ss -tinH 'sport = :PORT'; do sleep 1 >/dev/null 2>&1; done",
        ],
        has_programs: false,
        is_periodic: true,
        says: Says::Ss,
        tells: Tells {
            number: SRTT,
            per_service: "yes, by port",
            request_latency: "no",
            both_ends: "no",
            p99: "no",
            app_change: "no",
            coverage: "one look a second at the last value",
        },
    },
    Tool {
        name: "tcpdump",
        package: "tcpdump",
        command: &[
            "tcpdump",
            "-ni",
            LINK,
            "-s",
            "128",
            "-w",
            "/dev/null",
            "port PORT",
        ],
        has_programs: false,
        is_periodic: false,
        says: Says::Nothing,
        tells: Tells {
            number: "none by itself: packets, for another tool to match",
            per_service: "yes, by port",
            request_latency: "after analysis, from the link on: not the client's wait before it",
            both_ends: "no",
            p99: "after analysis",
            app_change: "no",
            coverage: "every packet that it does not drop",
        },
    },
];

/// Tools for the same job that no package registry had when this was written.
pub const ELSEWHERE: &[(&str, &str)] = &[
    (
        "obi",
        "OpenTelemetry eBPF Instrumentation: the Go module proxy has no module \
         go.opentelemetry.io/obi (404) and does not give its repository's (403)",
    ),
    (
        "beyla",
        "Grafana Beyla: the Go module proxy does not give github.com/grafana/beyla, /v2 or /v3 (403)",
    ),
    (
        "epping",
        "ePPing of xdp-project/bpf-examples: in neither Debian 12 nor crates.io; to be built from source",
    ),
];

/// Mounts what tracers need, where nobody else sees it, and becomes the tool: its process id stays.
const WRAPPER: &str = "[ -e /sys/kernel/debug/tracing/events ] || \
                       mount -t debugfs debugfs /sys/kernel/debug; exec \"$0\" \"$@\" 2>&1";

impl Tool {
    /// The program that must be installed.
    pub fn program(&self) -> &'static str {
        self.command[0]
    }

    /// Starts it, with all of its output on standard output.
    pub fn command(&self, batchwise: &Path, port: u16, link: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", WRAPPER]);
        for word in self.command {
            match *word {
                BATCHWISE => command.arg(batchwise),
                LINK => command.arg(link),
                word => command.arg(word.replace(PORT, &port.to_string())),
            };
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn find(name: &str) -> &'static Tool {
        TOOLS.iter().find(|tool| tool.name == name).unwrap()
    }

    #[test]
    fn each_tool_has_a_name_of_its_own() {
        let names = TOOLS.iter().map(|tool| tool.name);
        let all = names.chain(ELSEWHERE.iter().map(|(name, _)| *name));
        let different: BTreeSet<_> = all.collect();
        assert_eq!(different.len(), TOOLS.len() + ELSEWHERE.len());
    }

    #[test]
    fn a_command_names_the_port_the_link_and_the_product() {
        let line = |name| {
            let command = find(name).command(Path::new("/opt/batchwise"), 6379, "bw-veth");
            let words = command.get_args().skip(4);
            let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
            words.join(" ")
        };
        assert_eq!(
            line("tcpdump"),
            "tcpdump -ni bw-veth -s 128 -w /dev/null port 6379"
        );
        assert!(line("watch").starts_with("/opt/batchwise watch --port 6379"));
        assert!(line("bpftrace-srtt").contains("sport == 6379"));
    }
}
