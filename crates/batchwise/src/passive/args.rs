//! The arguments of `batchwise passive`.

use std::path::PathBuf;
use std::time::Duration;

use batchwise_bpf::passive::Attach;
use batchwise_core::passive::{Algorithm, Params};
use clap::{ArgGroup, Args, ValueEnum};

use crate::frame::args::{RunArgs, parse_duration, parse_within};
use crate::frame::clock::nanos;
use crate::frame::human;

/// Estimate response latency from the packets that clients send.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").required(true).args(["iface", "pcap"]))]
#[command(mut_arg("duration", |duration| duration.help(
    "Stop after this time; without it, at Ctrl-C or at the capture's end"
)))]
pub struct PassiveArgs {
    /// Measure what arrives at this interface
    #[arg(long, value_name = "IF")]
    pub(super) iface: Option<String>,
    /// Measure what this capture holds (pcap or pcapng; - is standard input)
    #[arg(long, value_name = "FILE")]
    pub(super) pcap: Option<PathBuf>,
    /// Only packets to this port (may be repeated)
    #[arg(long = "port", value_name = "PORT", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) ports: Vec<u16>,
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// For so long what a flow's packets say is collected before it is judged
    #[arg(long, default_value = "1s", value_parser = parse_epoch)]
    pub(super) epoch: Duration,
    /// Gaps as long as this may be idle time or timeouts rather than answers (requests in flight: 8 times this)
    #[arg(long, default_value = "200ms", value_parser = parse_idle)]
    pub(super) idle: Duration,
    /// Flows for which there is room at a time; more displace the least recently used
    #[arg(long, default_value_t = 65_536, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    pub(super) flows: u32,
    /// How packets become latency: auto (TCP: requests in flight, by acknowledgments; else modes),
    /// modes (gaps alone), fixed:DELTA (a longer gap ends an answer), or with --pcap
    /// paper[:EPSILON] (Algorithm 2 as published)
    #[arg(long, default_value = "auto", value_parser = Estimator::parse)]
    pub(super) estimator: Estimator,
    /// UDP payloads of at most so many bytes are taken for acknowledgments, as QUIC's are
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    pub(super) udp_acks: u16,
    /// Also every epoch of every flow
    #[arg(long)]
    pub(super) per_flow: bool,
    /// Write a page that shows the whole run, at its end
    #[arg(long, value_name = "FILE.html")]
    pub(super) report: Option<PathBuf>,
    /// Where at the interface: native XDP, tc (sees packets merged), or what works
    #[arg(long, value_enum, default_value_t, conflicts_with = "pcap")]
    pub(super) attach: AttachArg,
    /// An XDP program, pinned in bpffs, that decides what becomes of every packet
    #[arg(long, value_name = "PINNED_PROG", conflicts_with = "pcap")]
    pub(super) then: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum AttachArg {
    /// Native XDP, or tc where the driver has none
    #[default]
    Auto,
    /// Native XDP
    Native,
    /// tc ingress
    Tc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimator {
    Auto,
    Modes,
    /// δ, ns.
    Fixed(u64),
    /// ε, ns.
    Paper(u64),
}

/// The paper leaves ε open.
const EPSILON: Duration = Duration::from_micros(10);

impl Estimator {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, Some(parse_duration(value)?)),
            None => (text, None),
        };
        match (name, value.map(nanos)) {
            ("auto", None) => Ok(Self::Auto),
            ("modes", None) => Ok(Self::Modes),
            ("paper", epsilon) => Ok(Self::Paper(epsilon.unwrap_or(nanos(EPSILON)))),
            ("fixed", Some(delta @ 1..)) => Ok(Self::Fixed(delta)),
            ("fixed", _) => Err("say from which gap on, such as fixed:1ms".to_owned()),
            _ => Err(
                "write auto, modes, fixed:DELTA (such as fixed:1ms), or paper[:EPSILON]".to_owned(),
            ),
        }
    }

    /// As the report has it.
    pub fn describe(self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Modes => "modes".to_owned(),
            Self::Fixed(ns) => format!("fixed, δ {}", human::duration(ns)),
            Self::Paper(ns) => format!("Algorithm 2 as published, ε {}", human::duration(ns)),
        }
    }
}

fn parse_epoch(text: &str) -> Result<Duration, String> {
    parse_within(text, Duration::from_millis(1)..=Duration::from_secs(30))
}

fn parse_idle(text: &str) -> Result<Duration, String> {
    parse_within(text, Duration::from_micros(1)..=Duration::from_secs(3))
}

/// A flow without a packet for so many times as long as an epoch may last is forgotten.
const FORGET: u32 = 3;

impl PassiveArgs {
    pub fn params(&self) -> Params {
        let default = Params::default();
        let epoch_ns = nanos(self.epoch);
        Params {
            algorithm: match self.estimator {
                Estimator::Fixed(delta) => Algorithm::Fixed(delta),
                Estimator::Auto => Algorithm::Auto,
                Estimator::Modes | Estimator::Paper(_) => Algorithm::Modes,
            },
            epoch_ns,
            max_ns: default.max_ns.max(epoch_ns),
            idle_ns: nanos(self.idle),
            ..default
        }
    }

    /// A flow without a packet for so long is forgotten.
    pub fn forget(&self) -> Duration {
        Duration::from_nanos(self.params().max_ns) * FORGET
    }
}

impl From<AttachArg> for Attach {
    fn from(attach: AttachArg) -> Self {
        match attach {
            AttachArg::Auto => Self::Auto,
            AttachArg::Native => Self::Native,
            AttachArg::Tc => Self::Tc,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimators_are_named_with_their_numbers() {
        assert_eq!(Estimator::parse("modes"), Ok(Estimator::Modes));
        assert_eq!(Estimator::parse("paper"), Ok(Estimator::Paper(10_000)));
        assert_eq!(Estimator::parse("paper:50us"), Ok(Estimator::Paper(50_000)));
        assert_eq!(
            Estimator::parse("fixed:1ms"),
            Ok(Estimator::Fixed(1_000_000))
        );
        for wrong in ["", "fixed", "fixed:0s", "fixed:1", "modes:1ms", "magic"] {
            assert!(Estimator::parse(wrong).is_err(), "{wrong}");
        }
    }
}
