//! `batchwise decap`: takes the outer header off what a balancer sends through IP-in-IP tunnels to
//! this host, and counts what it lets through and why.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use batchwise_bpf::decap::{Decap, DecapConfig, Fates};
use clap::Args;
use nix::ifaddrs::getifaddrs;
use serde::Serialize;

use crate::frame::args::StayArgs;
use crate::frame::clock::wall_clock_ns;
use crate::frame::metrics::{Family, Metrics};
use crate::frame::rows::{Column, JsonLines, View, plain};
use crate::frame::run::Runner;
use crate::frame::stdout::WhenUnread;
use crate::frame::ticks::Turn;

/// What the long help adds.
pub const EXAMPLES: &str = "\
Examples:
  sudo batchwise decap --iface eth0 --from 10.79.0.10
      for a server behind `batchwise balance` with method = \"ipip\": the balancer is 10.79.0.10
  sudo batchwise decap --iface eth0 --from 10.79.0.0/24 --from fd79::/64 --format jsonl
      a line of JSON each second, and one at the end

The service's address must be an address of this host (on lo, not answered for by ARP), and so must
the one that the balancer sends to. Only whole packets without options are taken out of a tunnel, only
from these sources; everything else goes its way unchanged. Addresses that this host gets or loses are
noticed within a second. Frames with a VLAN tag are left alone.";

/// Take the outer header off IP-in-IP packets for this host.
#[derive(Debug, Args)]
#[command(mut_arg("format", |format| format.help(
    "How to show what became of the packets: a table at the end, or a line of JSON each second"
)))]
pub struct DecapArgs {
    /// Where the tunnels arrive
    #[arg(long, value_name = "IF")]
    iface: String,
    /// Accept tunnels from here (may be repeated; ::/0 is all of IPv6 and none of IPv4); without it,
    /// from everywhere
    #[arg(long, value_name = "ADDR/PREFIX", value_delimiter = ',', value_parser = parse_prefix)]
    from: Vec<Prefix>,
    #[command(flatten)]
    stay: StayArgs,
}

type Prefix = (IpAddr, u8);

fn parse_prefix(text: &str) -> Result<Prefix, String> {
    let split = text.split_once('/');
    let (address, bits) = split.map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address
        .parse()
        .map_err(|_| "write an address or a prefix, such as 10.79.0.10 or fd79::/64".to_owned())?;
    let (most, mapped): (u8, _) = match address {
        IpAddr::V4(_) => (32, None),
        IpAddr::V6(v6) => (128, v6.to_ipv4_mapped()),
    };
    match bits.map_or(Ok(most), str::parse) {
        Ok(bits) if bits <= most => match (mapped, bits.checked_sub(96)) {
            // outer IPv6 headers have no such sources
            (Some(v4), Some(bits)) => Err(format!(
                "this is an IPv4 address in IPv6's form: write {v4}/{bits}"
            )),
            _ => Ok((address, bits)),
        },
        _ => Err(format!("the length of the prefix is 0 to {most}")),
    }
}

/// Where tunnels are accepted from without bounds, if they are.
fn open_to(from: &[Prefix]) -> Option<&'static str> {
    let all = |v4: bool| {
        let mut of_version = from.iter().filter(|(address, _)| address.is_ipv4() == v4);
        from.is_empty() || of_version.any(|(_, bits)| *bits == 0)
    };
    match (all(true), all(false)) {
        (true, true) => Some("everywhere"),
        (true, false) => Some("every IPv4 address"),
        (false, true) => Some("every IPv6 address"),
        (false, false) => None,
    }
}

/// Addresses are read and lines are written so often.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct DecapMetrics(Fates);

impl Metrics for DecapMetrics {
    const FAMILIES: &'static [Family<Self>] = &[Family::counter(
        "decap_packets",
        "Packets by what became of them; all but those decapsulated went their way unchanged",
        |m| {
            let fates = m.0.named().into_iter();
            fates
                .map(|(fate, n)| (vec![("fate", fate.to_owned())], n))
                .collect()
        },
    )];
}

/// Runs until the duration is over or a signal comes.
pub fn run(args: DecapArgs) -> anyhow::Result<ExitCode> {
    let form = args.stay.format.without_live()?;
    let every = args.stay.every(EVERY);
    let mut runner = Runner::open(&every, form, WhenUnread::GoOn, String::new())?;
    let mut local = local_addresses()?;
    let config = DecapConfig {
        interface: args.iface.clone(),
        from: args.from.clone(),
        local: local.iter().copied().collect(),
    };
    let mut decap = Decap::attach(&config).with_context(|| {
        let interface = &args.iface;
        format!("cannot decapsulate on {interface} (`batchwise doctor` checks what is needed)")
    })?;
    if let Some(sources) = open_to(&args.from) {
        tracing::warn!(
            "tunnels are accepted from {sources}: whoever can reach this host can get packets past \
             filters that stand before it; name the balancers with --from ADDR/PREFIX"
        );
    }
    let hook = if decap.native() {
        "native XDP"
    } else {
        "generic XDP: the driver has no native one"
    };
    let outputs = &mut runner.outputs;
    outputs.say(&format!("decapsulating on {} ({hook})\n", args.iface))?;
    let close = |turn: Turn| {
        if !decap.is_attached() {
            bail!(
                "{} is gone, and the decapsulating with it: start again when it is back",
                args.iface
            );
        }
        let now = local_addresses()?;
        if now != local {
            decap.set_local(&now.iter().copied().collect::<Vec<_>>())?;
            local = now;
        }
        let fates = decap.counters()?;
        let line = Line {
            kind: "decap",
            ts_ns: wall_clock_ns(),
            interface: args.iface.clone(),
            native: decap.native(),
            fates,
        };
        Ok(Some(Report {
            line,
            rows: fates.named().into(),
            over: turn.is_last(),
        }))
    };
    runner.run_intervals(close, |report, metrics: &mut DecapMetrics| {
        metrics.0 = report.line.fates;
    })?;
    Ok(ExitCode::SUCCESS)
}

/// All addresses of this network namespace's interfaces at which others may reach it: what listens on loopback alone
/// has no reason to trust them.
fn local_addresses() -> anyhow::Result<BTreeSet<IpAddr>> {
    let all = getifaddrs().context("reading the addresses of this host")?;
    let ip = |address: nix::sys::socket::SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::from(a.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::from(a.ip())))
    };
    let all = all.filter_map(|a| a.address.and_then(ip));
    Ok(all.filter(|ip| !ip.is_loopback()).collect())
}

/// The line for programs. The field names are a contract.
#[derive(Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Line {
    /// Always `decap`.
    kind: &'static str,
    /// When it was counted, ns since the Unix epoch.
    ts_ns: u64,
    /// Where the tunnels arrive.
    interface: String,
    /// Whether the driver runs the program itself (native XDP).
    native: bool,
    /// Packets since the start, each in one of these.
    #[serde(flatten)]
    fates: Fates,
}

/// What became of the packets so far.
#[derive(Clone)]
struct Report {
    line: Line,
    rows: Vec<(&'static str, u64)>,
    /// It is the last: people see only this one.
    over: bool,
}

impl View for Report {
    type Row = (&'static str, u64);

    const COLUMNS: &'static [Column<Self::Row>] = &[
        Column::right("packets", 12, |(_, packets)| plain(packets.to_string())),
        Column::left("what became of them", 0, |(fate, _)| {
            plain(fate.replace('_', " "))
        }),
    ];
    const NAME: &'static str = "decap";

    fn rows(&self) -> Vec<&Self::Row> {
        self.rows.iter().filter(|_| self.over).collect()
    }

    fn json(&self, lines: &mut JsonLines) -> serde_json::Result<()> {
        lines.push(&self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::metrics::testing::Example;

    impl Example for DecapMetrics {
        fn example() -> Self {
            Self::default()
        }
    }

    #[test]
    fn services_on_loopback_are_not_reached_through_tunnels() {
        let local = local_addresses().expect("addresses");
        assert!(local.iter().all(|ip| !ip.is_loopback()), "{local:?}");
    }

    #[test]
    fn an_address_alone_is_a_whole_prefix() {
        assert_eq!(parse_prefix("10.79.0.10"), Ok(([10, 79, 0, 10].into(), 32)));
        assert_eq!(
            parse_prefix("10.79.0.0/24"),
            Ok(([10, 79, 0, 0].into(), 24))
        );
        let v6 = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert_eq!(parse_prefix("fd79::1"), Ok((v6("fd79::1"), 128)));
        assert_eq!(parse_prefix("::/0"), Ok((v6("::"), 0)));
    }

    #[test]
    fn what_is_no_prefix_is_refused_with_an_example_or_the_bounds() {
        for (wrong, word) in [
            ("server", "10.79.0.10"),
            ("10.79.0.0/33", "0 to 32"),
            ("10.79.0.0/", "0 to 32"),
            ("fd79::/129", "0 to 128"),
            ("::ffff:10.79.0.10", "10.79.0.10/32"),
            ("::ffff:10.79.0.0/120", "10.79.0.0/24"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
        ] {
            assert!(
                parse_prefix(wrong).is_err_and(|e| e.contains(word)),
                "{wrong}"
            );
        }
    }

    #[test]
    fn sources_without_bounds_are_warned_of_by_their_ip_version() {
        let open = |from: &[&str]| {
            let from: Result<Vec<Prefix>, _> = from.iter().map(|p| parse_prefix(p)).collect();
            open_to(&from.expect("prefixes"))
        };
        assert_eq!(open(&["10.79.0.0/16", "fd79::/64"]), None);
        assert_eq!(
            open(&["fd79::/64", "0.0.0.0/0"]),
            Some("every IPv4 address")
        );
        assert_eq!(open(&["10.79.0.10", "::/0"]), Some("every IPv6 address"));
        assert_eq!(open(&["0.0.0.0/0", "::/0"]), Some("everywhere"));
        assert_eq!(open(&[]), Some("everywhere"));
    }

    #[test]
    fn every_fate_has_its_sample() {
        let exporter = crate::frame::metrics::Exporter::<DecapMetrics>::bind("127.0.0.1:0")
            .expect("a free port");
        exporter.update(|m| m.0.decapsulated = 7);
        let text = crate::frame::metrics::testing::scrape(&exporter);
        assert!(
            text.contains("batchwise_decap_packets_total{fate=\"decapsulated\"} 7"),
            "{text}"
        );
        assert!(text.contains("{fate=\"malformed\"} 0"), "{text}");
    }
}
