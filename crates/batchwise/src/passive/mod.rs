//! `batchwise passive`: the latency that clients feel, from the packets that they send, as an
//! interface on their path sees them or a capture holds them.

use std::process::ExitCode;

mod args;
pub mod capture;
mod interval;
mod live;
pub mod metrics;
mod report;
mod rows;
#[cfg(test)]
mod samples;
mod servers;
mod session;
mod summary;

pub use args::PassiveArgs;

pub const EXAMPLES: &str = "\
Examples:
  sudo batchwise passive --iface eth1 --port 443
      live on a terminal, a table when the output is piped
  sudo batchwise passive --iface eth1 --port 443 --format jsonl --metrics 127.0.0.1:9464
      for programs, and for Prometheus
  tcpdump -i eth1 -w - 'dst port 443' | batchwise passive --pcap - --report latency.html
      the same estimator over a capture, and a page that shows what came out

Only packets from clients to servers are needed, encrypted or not: answers may take another way.
What is measured is how long clients wait before they go on; docs/guide/passive.md says when that
is the latency of answers. An estimate says how far to trust it (`confidence`, 0 to 1); what is not known
is shown as –, and is null in JSON.

With --iface every packet that comes in is taken for a client's: choose the interface at which
clients' packets arrive, and --port where both directions do. In a capture the opening of a
connection (SYN) tells its client; without one, --port does; without that the end whose port is
below 32768 is the server's, else the receiver of the first packet.";

/// Runs until the duration is over, the capture is at its end, the user quits, or a signal comes.
pub fn run(args: PassiveArgs) -> anyhow::Result<ExitCode> {
    match (&args.pcap, &args.iface) {
        (Some(path), _) => capture::run(&args, path)?,
        (None, Some(interface)) => live::run(&args, interface)?,
        (None, None) => anyhow::bail!("give --iface IF or --pcap FILE"),
    }
    Ok(ExitCode::SUCCESS)
}
