//! `batchwise passive`: the latency that clients feel, from the packets that they send, as an
//! interface on their path sees them or a capture holds them.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use batchwise_bpf::passive::Attach;
use batchwise_core::passive::{Algorithm, Params};
use clap::{ArgGroup, Args, ValueEnum};

mod capture;
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

use crate::frame::args::{parse_duration, parse_interval, parse_within};
use crate::frame::clock::nanos;
use crate::frame::human;
use crate::frame::rows::{Form, Format, waiting};
use crate::frame::signals::stop_flag;
use crate::frame::stdout::Bond;
use capture::Capture;
use report::Origin;
use session::{Session, Wanted};

/// What the long help adds.
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

/// Estimate response latency from the packets that clients send.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").required(true).args(["iface", "pcap"]))]
pub struct PassiveArgs {
    /// Measure what arrives at this interface
    #[arg(long, value_name = "IF")]
    iface: Option<String>,
    /// Measure what this capture holds (pcap or pcapng; - is standard input)
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Only packets to this port (may be repeated)
    #[arg(long = "port", value_name = "PORT", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    ports: Vec<u16>,
    /// Time between two reports
    #[arg(long, default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
    /// Stop after this time; without it, at Ctrl-C or at the capture's end
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// For so long what a flow's packets say is collected before it is judged
    #[arg(long, default_value = "1s", value_parser = parse_epoch)]
    epoch: Duration,
    /// Gaps as long as this may be idle time or timeouts rather than answers (requests in flight: 8 times this)
    #[arg(long, default_value = "200ms", value_parser = parse_idle)]
    idle: Duration,
    /// Flows for which there is room at a time; more displace the least recently used
    #[arg(long, default_value_t = 65_536, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    flows: u32,
    /// How packets become latency: auto (TCP: requests in flight, by acknowledgments; else modes),
    /// modes (gaps alone), fixed:DELTA (a longer gap ends an answer), or with --pcap
    /// paper[:EPSILON] (Algorithm 2 as published)
    #[arg(long, default_value = "auto", value_parser = Estimator::parse)]
    estimator: Estimator,
    /// UDP payloads of at most so many bytes are taken for acknowledgments, as QUIC's are
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    udp_acks: u16,
    /// Also every epoch of every flow
    #[arg(long)]
    per_flow: bool,
    /// How to show it
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Serve Prometheus metrics here, at /metrics
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<String>,
    /// Write a page that shows the whole run, at its end
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Where at the interface: native XDP, tc (sees packets merged), or what works
    #[arg(long, value_enum, default_value_t, conflicts_with = "pcap")]
    attach: AttachArg,
    /// An XDP program, pinned in bpffs, that decides what becomes of every packet
    #[arg(long, value_name = "PINNED_PROG", conflicts_with = "pcap")]
    then: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum AttachArg {
    /// Native XDP, or tc where the driver has none
    #[default]
    Auto,
    /// Native XDP
    Native,
    /// tc ingress
    Tc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Estimator {
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
    fn params(&self) -> Params {
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

    fn forget(&self) -> Duration {
        Duration::from_nanos(self.params().max_ns) * FORGET
    }

    fn wanted(&self, form: Form, place: String) -> Wanted {
        Wanted {
            form,
            bond: match self.iface {
                Some(_) => Bond::Ends,
                None => Bond::Waits,
            },
            waiting: match self.iface {
                Some(_) => waiting(&self.ports),
                None => String::new(),
            },
            per_flow: self.per_flow,
            metrics: self.metrics.clone(),
            report: self.report.clone(),
            origin: Origin {
                place,
                ports: self.ports.clone(),
                estimator: match self.estimator {
                    Estimator::Auto => "auto".to_owned(),
                    Estimator::Modes => "modes".to_owned(),
                    Estimator::Fixed(ns) => format!("fixed, δ {}", human::duration(ns)),
                    Estimator::Paper(ns) => {
                        format!("Algorithm 2 as published, ε {}", human::duration(ns))
                    }
                },
                epoch: self.epoch,
                idle: self.idle,
            },
        }
    }
}

/// Runs until the duration is over, the capture is at its end, the user quits, or a signal comes.
///
/// # Errors
/// The program cannot be attached, the capture cannot be read, or the output is gone.
pub fn run(args: PassiveArgs) -> anyhow::Result<ExitCode> {
    let stop = stop_flag()?;
    let form = args.format.resolve()?;
    match (&args.pcap, &args.iface) {
        (Some(path), _) => {
            // a capture may pass in a moment: there is nothing to look at while it does
            anyhow::ensure!(
                args.format != Format::Live,
                "the live view needs --iface; use --format text or --format jsonl for a capture"
            );
            let form = if form == Form::Live { Form::Text } else { form };
            let capture = Capture::open(path, &stop)?;
            let mut session = Session::open(args.wanted(form, capture.name().to_owned()))?;
            let run = capture::Run {
                ports: &args.ports,
                interval: args.interval,
                duration: args.duration,
                settings: capture::Settings {
                    params: args.params(),
                    paper: match args.estimator {
                        Estimator::Paper(epsilon) => Some(epsilon),
                        Estimator::Auto | Estimator::Modes | Estimator::Fixed(_) => None,
                    },
                    flows: NonZeroUsize::new(args.flows as usize).unwrap_or(NonZeroUsize::MIN),
                    udp_acks: args.udp_acks.into(),
                    forget_ns: nanos(args.forget()),
                },
            };
            capture::run(&run, capture, &mut session)?;
        }
        (None, Some(interface)) => {
            anyhow::ensure!(
                !matches!(args.estimator, Estimator::Paper(_)),
                "--estimator paper needs --pcap: the kernel runs auto, modes and fixed:DELTA"
            );
            let run = live::Run {
                interface: interface.clone(),
                attach: match args.attach {
                    AttachArg::Auto => Attach::Auto,
                    AttachArg::Native => Attach::Native,
                    AttachArg::Tc => Attach::Tc,
                },
                then: args.then.clone(),
                ports: args.ports.clone(),
                flows: args.flows,
                params: args.params(),
                udp_acks: args.udp_acks,
                forget: args.forget(),
                interval: args.interval,
                duration: args.duration,
            };
            let sensor = live::attach(&run)?;
            let mut session = Session::open(args.wanted(form, live::place(&sensor, &run)))?;
            live::run(&run, sensor, &mut session, stop)?;
        }
        (None, None) => anyhow::bail!("give --iface IF or --pcap FILE"),
    }
    Ok(ExitCode::SUCCESS)
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
