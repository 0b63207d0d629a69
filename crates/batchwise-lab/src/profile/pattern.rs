//! Traffic patterns, and what carries them.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::lines::Printing;
use batchwise_testbed::topology::{LINK, TwoHosts};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::END;
use crate::Context;

/// What the client sends to the server, and how. Ends have one CPU each here, so that flows are spread over
/// threads, not cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One long flow, all that the kernel has switched on.
    Single,
    /// The same without TSO, GSO and GRO, …
    Plain,
    /// … and with a MTU of 9000.
    Jumbo,
    /// Eight flows, a thread each at both ends.
    OneToOne,
    /// From eight threads to one.
    Incast,
    /// From one to eight.
    Outcast,
    /// From each of eight to each of eight.
    AllToAll,
    /// Sixteen clients that ask one server, a request of this size and its response at a time.
    Rpc4k,
    Rpc16k,
    Rpc64k,
    /// A long flow and sixteen that ask 4 KiB.
    Mixed,
    /// A long flow without TSO, GSO, of which nothing is lost, …
    Loss0,
    /// … 0.015 % of the packets, …
    Loss015,
    /// … 0.15 %, …
    Loss15,
    /// … or 1.5 %.
    Loss150,
}

impl Pattern {
    pub const ALL: [Self; 15] = [
        Self::Single,
        Self::Plain,
        Self::Jumbo,
        Self::OneToOne,
        Self::Incast,
        Self::Outcast,
        Self::AllToAll,
        Self::Rpc4k,
        Self::Rpc16k,
        Self::Rpc64k,
        Self::Mixed,
        Self::Loss0,
        Self::Loss015,
        Self::Loss15,
        Self::Loss150,
    ];

    pub fn label(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Plain => "no offloads",
            Self::Jumbo => "jumbo",
            Self::OneToOne => "one-to-one",
            Self::Incast => "incast",
            Self::Outcast => "outcast",
            Self::AllToAll => "all-to-all",
            Self::Rpc4k => "RPC 4 KiB",
            Self::Rpc16k => "RPC 16 KiB",
            Self::Rpc64k => "RPC 64 KiB",
            Self::Mixed => "mixed",
            Self::Loss0 => "loss 0",
            Self::Loss015 => "loss 0.015 %",
            Self::Loss15 => "loss 0.15 %",
            Self::Loss150 => "loss 1.5 %",
        }
    }

    /// Connections, threads of the client, threads of the server, bytes of a request.
    fn shape(self) -> (usize, u16, u16, Option<u64>) {
        match self {
            Self::OneToOne => (8, 8, 8, None),
            Self::Incast => (8, 8, 1, None),
            Self::Outcast => (8, 1, 8, None),
            Self::AllToAll => (64, 8, 8, None),
            Self::Rpc4k => (16, 16, 1, Some(4 << 10)),
            Self::Rpc16k => (16, 16, 1, Some(16 << 10)),
            Self::Rpc64k => (16, 16, 1, Some(64 << 10)),
            _ => (1, 1, 1, None),
        }
    }

    /// Packets lost of 100,000.
    fn loss(self) -> u32 {
        match self {
            Self::Loss015 => 15,
            Self::Loss15 => 150,
            Self::Loss150 => 1_500,
            _ => 0,
        }
    }

    /// Has the network as the pattern wants it.
    pub fn prepare(self, hosts: &TwoHosts) -> Result<()> {
        for host in [&hosts.client, &hosts.server] {
            let network = host.namespace();
            match self {
                Self::Plain => {
                    network.set_offloads(LINK, &["tso", "gso", "gro"], false)?;
                    // veth polls nothing without GRO
                    host.receive_on_own_cpu(LINK)?;
                }
                Self::Jumbo => network.ip(&format!("link set {LINK} mtu 9000"))?,
                // a packet is lost, not a burst of them
                Self::Loss0 | Self::Loss015 | Self::Loss15 | Self::Loss150 => {
                    network.set_offloads(LINK, &["tso", "gso"], false)?;
                }
                _ => {}
            }
        }
        match self.loss() {
            0 => Ok(()),
            // to an address that is nobody's: TCP knows of a packet that this host drops, and counts it as not sent
            of_100_000 => filter(
                &hosts.client,
                &format!(
                    "table netdev bw-loss {{\nchain out {{\n\
                     type filter hook egress device {LINK} priority 0\n\
                     tcp dport {} numgen random mod 100000 < {of_100_000} ether daddr set {NOBODY}\n}}\n}}\n",
                    super::PORT
                ),
            ),
        }
    }

    /// Has it as before.
    pub fn undo(self, hosts: &TwoHosts) -> Result<()> {
        if self.loss() > 0 {
            filter(&hosts.client, "delete table netdev bw-loss\n")?;
        }
        for host in [&hosts.client, &hosts.server] {
            let network = host.namespace();
            network.set_offloads(LINK, &["tso", "gso"], true)?;
            host.poll_on_own_cpu(LINK)?;
            host.receive_where_it_comes(LINK)?;
            network.ip(&format!("link set {LINK} mtu 1500"))?;
        }
        Ok(())
    }
}

/// Locally administered, and no host's.
const NOBODY: &str = "02:00:00:00:77:99";

fn filter(host: &Host, rules: &str) -> Result<()> {
    let rules = rules.to_owned();
    host.inside(move || {
        let mut command = Command::new("nft");
        command.args(["-f", "-"]).stdin(Stdio::piped());
        let mut nft = command.spawn().context("starting nft")?;
        let stdin = nft.stdin.take().context("nft has no standard input")?;
        { stdin }.write_all(rules.as_bytes())?;
        ensure!(nft.wait()?.success(), "nft did not take: {rules}");
        Ok(())
    })
}

/// Bytes that the host's link has received.
pub fn received(host: &Host) -> Result<u64> {
    let text = host.inside(|| Ok(fs::read_to_string("/proc/thread-self/net/dev")?))?;
    let line = text
        .lines()
        .find_map(|l| l.trim().strip_prefix(LINK)?.strip_prefix(':'));
    let bytes = line.and_then(|line| line.split_whitespace().next());
    Ok(bytes.context("the link counts nothing")?.parse()?)
}

/// The traffic while it goes on.
pub struct Streams {
    server: Printing<Value>,
    clients: Vec<Printing<Value>>,
}

/// Longer than any measurement: traffic is ended.
const WHOLE: &str = "600s";

impl Streams {
    pub fn start(context: &Context, hosts: &TwoHosts, pattern: Pattern, port: u16) -> Result<Self> {
        let (connections, threads, served_by, size) = pattern.shape();
        let address = hosts.server_address(port).to_string();
        let load = |workload: &str| {
            let mut command = Command::new(&context.command);
            command.args(["load", workload, "--format", "json", "--addr", &address]);
            command.args(["--duration", WHOLE]);
            command
        };
        let mut command = load("streams-server");
        command.args(["--threads", &served_by.to_string()]);
        let server = Printing::start(&hosts.server, "the server", command, Role::Workload)?;
        context.stop.sleep(Duration::from_millis(300))?;
        let client = |connections: usize, threads: u16, size: Option<u64>| {
            let mut command = load("streams");
            command.args(["--connections", &connections.to_string()]);
            command.args(["--threads", &threads.to_string()]);
            if let Some(size) = size {
                command.args(["--size", &size.to_string()]);
            }
            Printing::start(&hosts.client, "the client", command, Role::Workload)
        };
        let mut clients = vec![client(connections, threads, size)?];
        if pattern == Pattern::Mixed {
            clients.push(client(16, 16, Some(4 << 10))?);
        }
        Ok(Self { server, clients })
    }

    /// Ends it.
    pub fn end(mut self) {
        for client in &mut self.clients {
            client.terminate(END);
        }
        self.server.terminate(END);
    }
}
