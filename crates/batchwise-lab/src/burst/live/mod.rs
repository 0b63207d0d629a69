//! Bursts through a real queue: senders, a router and a receiver, which are network namespaces; `batchwise burst
//! mark` at the senders, `admit` at the router. This file owns that site, and what its parts count.

pub(crate) mod abuse;
pub(crate) mod incast;
pub(crate) mod jumbo;
pub(crate) mod mixed;
mod summary;

use std::fmt;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use batchwise_testbed::bpf_stats::runs_of;
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::lines::Printing;
use batchwise_testbed::triangle::{
    BACK_LINK, CLIENT_LINK, SERVER_IP, Triangle, TriangleSpec, VANTAGE_SERVER_LINK,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;

/// Bytes that a full segment carries: an MTU of 1500, with time stamps.
const SEGMENT: u64 = 1_448;
/// Packets of the queue, and bytes of the longest.
const QUEUE: u32 = 100;
const PACKET: u32 = 1_514;
/// The first sender's address.
const SENDERS: &str = "10.79.0.1:7090";
const PORT: u16 = 7090;
/// Where endless flows go.
const ENDLESS_PORT: u16 = 7091;
/// Their server listens by then.
const LISTENING: Duration = Duration::from_millis(150);
/// Before what is measured: endless flows have left slow start.
const WARM_UP: Duration = Duration::from_millis(300);
/// No agent and no load takes longer to begin or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Who decides what the queue takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// The queue alone.
    DropTail,
    /// `burst admit`; what is asked for is marked.
    Bursts,
    /// The same; all that the senders send is marked.
    AllMark,
}

/// Senders, which share a host, a router, a receiver. What the receiver sends does not come by the router.
pub(crate) struct Site {
    triangle: Triangle,
}

impl Site {
    pub(crate) fn build(tag: &str) -> Result<(Self, Value)> {
        let triangle = Triangle::build(tag, &TriangleSpec::default())?;
        let (senders, receiver) = (triangle.client.namespace(), triangle.server.namespace());
        // each address of the network is a sender
        senders.ip("route add local 10.79.0.0/24 dev lo")?;
        // a new connection begins as if it were the first
        senders.set_sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
        receiver.ip(&format!(
            "route add 10.79.0.0/24 via 10.78.3.2 dev {BACK_LINK} src 10.78.0.1 congctl cubic"
        ))?;
        let network = serde_json::to_value(triangle.settings()?)?;
        Ok((Self { triangle }, network))
    }

    pub(crate) fn senders(&self) -> &Host {
        &self.triangle.client
    }

    pub(crate) fn receiver(&self) -> &Host {
        &self.triangle.server
    }

    /// Makes the router's queue one of 100 packets that empties at this rate.
    fn set_queue(&self, mbit: u32) -> Result<()> {
        let limit = QUEUE * PACKET;
        let set = format!(
            "qdisc replace dev {VANTAGE_SERVER_LINK} root handle 1: tbf rate {mbit}mbit burst 16kb limit {limit}"
        );
        self.triangle.vantage.namespace().tc(&set)
    }

    /// Makes that queue one of 100 packets of any length.
    fn count_packets(&self) -> Result<()> {
        let inner =
            format!("qdisc replace dev {VANTAGE_SERVER_LINK} parent 1: pfifo limit {QUEUE}");
        self.triangle.vantage.namespace().tc(&inner)
    }

    /// Packets that the router's queue has dropped, whoever decided that.
    fn dropped(&self) -> Result<u64> {
        let mut command = Command::new("tc");
        let name = self.triangle.vantage.namespace().name();
        command.args(["-n", name, "-j", "-s", "qdisc", "show"]);
        command.args(["dev", VANTAGE_SERVER_LINK]);
        let output = command.output().context("running tc")?;
        let shown: Value =
            serde_json::from_slice(&output.stdout).context("reading what tc says")?;
        let drops = |queue: &Value| queue["drops"].as_u64();
        let all = shown.as_array().into_iter().flatten();
        Ok(all.filter_map(drops).max().unwrap_or_default())
    }

    /// The agents of this way, at work.
    fn agents(&self, context: &Context, way: Way) -> Result<Option<Agents>> {
        if way == Way::DropTail {
            return Ok(None);
        }
        let mut mark = format!("mark --interface {CLIENT_LINK}");
        if way == Way::Bursts {
            mark += &format!(" --port {PORT}");
        }
        let mark = agent(context, self.senders(), &mark)?;
        let admit = format!("admit --interface {VANTAGE_SERVER_LINK}");
        let admit = agent(context, &self.triangle.vantage, &admit)?;
        Ok(Some(Agents { mark, admit }))
    }

    /// Starts a load in a host; it prints a line at its end.
    fn load(&self, context: &Context, host: &Host, args: &str) -> Result<Printing<Value>> {
        let mut command = Command::new(&context.command);
        command.arg("load").args(args.split(' '));
        Printing::start(host, args, command, Role::Workload)
    }
}

fn agent(context: &Context, host: &Host, args: &str) -> Result<Printing<Value>> {
    let mut command = Command::new(&context.command);
    command.arg("burst").args(args.split(' '));
    command.args(["--interval", "50ms", "--format", "jsonl"]);
    let agent = Printing::start(host, args, command, Role::Observer)?;
    let says = || Ok(agent.with_lines(|lines| (!lines.is_empty()).then_some(())));
    let first = context.stop.wait_until(PATIENCE, says)?;
    ensure!(first.is_some(), "{args} does not begin{}", agent.quote());
    Ok(agent)
}

struct Agents {
    mark: Printing<Value>,
    admit: Printing<Value>,
}

/// What became of bursts, as the agents count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fates {
    /// Bursts that senders marked.
    pub(crate) begun: u64,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    /// Packets whose marks were not heard: the source's credit is used up.
    pub(crate) ignored: u64,
    /// Packets that were dropped at the door.
    pub(crate) denied: u64,
    /// Packets that the queue itself dropped.
    pub(crate) queue_drops: u64,
    /// Time of a packet in the programs at the router and at the senders, ns, while the kernel counts it.
    pub(crate) admit_ns: Option<f64>,
    pub(crate) mark_ns: Option<f64>,
}

impl fmt::Display for Fates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "bursts: {} marked, {} admitted, {} refused; packets: {} ignored, {} dropped by the queue",
            self.begun, self.admitted, self.refused, self.ignored, self.queue_drops
        )?;
        let ns = self.admit_ns.zip(self.mark_ns);
        ns.map_or(Ok(()), |(admit, mark)| {
            write!(
                f,
                "; {admit:.0} ns a packet at the router, {mark:.0} at the senders"
            )
        })
    }
}

/// To be put behind what else a point says.
fn told(fates: Option<Fates>) -> String {
    fates.map_or_else(String::new, |fates| format!("; {fates}"))
}

impl Agents {
    fn finish(self) -> Result<Fates> {
        let ran = runs_of(&[self.admit.pid(), self.mark.pid()])?;
        let ns = |name: &str| {
            let ran = ran.get(name).filter(|ran| ran.count > 0)?;
            Some(ran.time_ns as f64 / ran.count as f64)
        };
        let last = |agent: Printing<Value>, kind: &str| {
            let lines = agent.finish(PATIENCE)?;
            let mut lines = lines.into_iter().rev();
            let last = lines.find(|line| line["kind"] == kind);
            last.with_context(|| format!("burst {kind} said nothing"))
        };
        let mark = last(self.mark, "mark")?;
        let admit = last(self.admit, "admit")?;
        let of = |field: &str| admit[field].as_u64().unwrap_or_default();
        Ok(Fates {
            begun: mark["bursts"].as_u64().unwrap_or_default(),
            admitted: of("bursts_admitted"),
            refused: of("bursts_refused"),
            ignored: of("ignored"),
            denied: ["bursts_refused", "denied", "overflowed", "unmarked_dropped"]
                .map(of)
                .iter()
                .sum(),
            queue_drops: of("queue_drops"),
            admit_ns: ns("burst_admit"),
            mark_ns: ns("burst_mark"),
        })
    }
}

/// What `load incast` says.
#[derive(Clone, Debug, Deserialize)]
struct Answers {
    completions_ns: Vec<f64>,
    incomplete: u64,
    retransmissions: u64,
}

impl Answers {
    /// Asks senders, which are there already.
    fn to(site: &Site, context: &Context, args: &str) -> Result<Self> {
        let args = format!("incast --format json --addr {SENDERS} {args}");
        let mut asking = site.load(context, site.receiver(), &args)?;
        let status = asking.wait(&context.stop, 4 * PATIENCE)?;
        ensure!(status.success(), "{args} failed{}", asking.quote());
        let said = asking.take_lines().pop();
        let said = said.with_context(|| format!("{args} said nothing"))?;
        Ok(serde_json::from_value(said)?)
    }
}

/// The site, and senders that answer until it is dropped.
pub(crate) struct Stage {
    site: Site,
    _senders: Printing<Value>,
}

impl Stage {
    fn build(tag: &str, context: &Context, senders: usize) -> Result<(Self, Value)> {
        let (site, network) = Site::build(tag)?;
        let senders = answering(&site, context, senders)?;
        let stage = Self {
            site,
            _senders: senders,
        };
        Ok((stage, network))
    }
}

/// Senders that answer, until this is dropped: so many at once.
fn answering(site: &Site, context: &Context, count: usize) -> Result<Printing<Value>> {
    let args = format!("incast-server --addr 0.0.0.0:{PORT} --gather {count} --duration 1h");
    let senders = site.load(context, site.senders(), &args)?;
    let listens = || {
        let there = site.senders().inside(|| {
            let to = ("10.79.0.1", PORT);
            Ok(std::net::TcpStream::connect(to).is_ok())
        })?;
        Ok(there.then_some(()))
    };
    let listening = context.stop.wait_until(PATIENCE, listens)?;
    ensure!(listening.is_some(), "the senders do not listen");
    Ok(senders)
}

/// Where endless flows of the usual kind go.
fn endless(count: usize) -> (SocketAddr, usize) {
    (SocketAddr::from((SERVER_IP, ENDLESS_PORT)), count)
}

/// Groups of connections from the senders that are written to without an end.
struct Endless {
    _flows: Vec<Printing<Value>>,
    sinks: Vec<Printing<Value>>,
}

impl Endless {
    /// So many to each of these addresses, warmed up, which go on for this time.
    fn start(
        site: &Site,
        context: &Context,
        groups: &[(SocketAddr, usize)],
        measured: Duration,
    ) -> Result<Self> {
        let all = (LISTENING + WARM_UP + measured).as_millis();
        let sink = |&(to, _)| {
            let args = format!("streams-server --format json --addr {to} --duration {all}ms");
            site.load(context, site.receiver(), &args)
        };
        let sinks = groups.iter().map(sink).collect::<Result<_>>()?;
        context.stop.sleep(LISTENING)?;
        let flows = |&(to, count)| {
            let args =
                format!("streams --format json --addr {to} --connections {count} --duration 1m");
            site.load(context, site.senders(), &args)
        };
        let flows = groups.iter().map(flows).collect::<Result<_>>()?;
        context.stop.sleep(WARM_UP)?;
        Ok(Self {
            _flows: flows,
            sinks,
        })
    }

    /// Waits for their end; what arrived of each group, bytes a second, the warm-up included.
    fn finish(self, context: &Context) -> Result<Vec<f64>> {
        let arrived = |mut sink: Printing<Value>| {
            let status = sink.wait(&context.stop, PATIENCE)?;
            let quote = sink.quote();
            ensure!(status.success(), "who serves endless flows failed{quote}");
            let said = sink.take_lines().pop();
            let arrived = said.and_then(|said| said["read_per_s"].as_f64());
            arrived.context("who serves endless flows does not say what arrived")
        };
        let all: Vec<f64> = self.sinks.into_iter().map(arrived).collect::<Result<_>>()?;
        // a group of one may find no room for all of the time
        ensure!(all[0] > 0.0, "nothing of the endless flows arrived");
        Ok(all)
    }
}
