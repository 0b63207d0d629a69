//! Experiment `burst-cost`: packets a second that the forwarder in user space carries on one core, by what
//! it does for each (the paper's section 5.5: its Click router).

mod summary;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use batchwise_core::burst::mark::CodePoints;
use batchwise_testbed::host::Role;
use batchwise_testbed::lines::Printing;
use batchwise_testbed::topology::{Around, LINK};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::engine::text::{name, quartiles};
use crate::engine::{
    Experiment, Judgement, NoMore, Ratio, Report, Results, Round, Run, Table, Turn,
};
use crate::packet_cost::{Measured, Repeater};
use summary::Summary;

/// Packets a second of the forwarder in user space.
pub(crate) struct BurstCost;

/// What the forwarder does for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// It goes on at once, without a queue: the way back.
    None,
    DropTail,
    Published,
    Bursts,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::None, Self::DropTail, Self::Published, Self::Bursts];

    /// For `--admit`.
    fn admit(self) -> &'static str {
        match self {
            Self::None | Self::DropTail => "off",
            Self::Published => "published",
            Self::Bursts => "bursts",
        }
    }
}

/// A way and a length of frames, without the checksum behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Arm {
    pub(crate) way: Way,
    /// Bytes on the wire: four more than what is sent.
    pub(crate) bytes: usize,
}

pub(crate) const SIZES: [usize; 2] = [64, 1500];

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    round: u32,
    position: usize,
    #[serde(flatten)]
    pub(crate) arm: Arm,
    /// That the forwarder sent on.
    pub(crate) packets_per_s: f64,
    /// That arrived at the host behind it, by its interface's count.
    received_per_s: f64,
    /// That arrived at the forwarder and found no room: it was given more than it carries.
    lost_per_s: f64,
    /// Bursts that were admitted, of all that asked.
    admitted: f64,
}

/// Flows that take turns, each of a source of its own.
const FLOWS: u32 = 1024;
/// Segments of a burst.
const LENGTH: u32 = 10;
/// More than can be carried.
const RATE: &str = "100gbit";
const LIMIT: &str = "30000p";
const SETTLE: Duration = Duration::from_millis(100);
const MEASURED: Duration = Duration::from_millis(800);
/// Sent before, to learn how fast the sender is; then it sends by one call for so long, ns.
const LEARNING: u32 = 100_000;
const SENDING: f64 = 1.2e9;
/// Of what was sent on, at least so much must arrive.
const ARRIVES: f64 = 0.98;

pub(crate) struct Stage {
    repeater: Repeater,
    around: Around,
}

impl Experiment for BurstCost {
    type Stage = Stage;
    type Arm = Arm;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "burst-cost"
    }

    fn about(&self) -> &'static str {
        "packets a second of the forwarder in user space, with and without admission of bursts"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Arm>>> {
        let arm = |bytes| Way::ALL.map(|way| Arm { way, bytes });
        let arms = SIZES.map(arm).concat();
        Ok(Round::shuffled(if quick { 15 } else { 40 }, &arms))
    }

    fn stage(&self, _context: &Context) -> Result<(Stage, Value)> {
        let around = Around::build("burst-cost")?;
        let network = serde_json::to_value(around.hosts.settings()?)?;
        let mut repeater = Repeater::leaving(&around.hosts.client, 0)?;
        repeater.set_own_sources()?;
        Ok((Stage { repeater, around }, network))
    }

    fn measure(
        &self,
        _run: &mut Run<'_, NoMore>,
        stage: &mut Stage,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let Arm { way, bytes } = *turn.arm;
        let Stage { repeater, around } = stage;
        let mut forwarder = forwarder(around, way)?;
        let (packet, began) = (packet(bytes, true), AtomicBool::new(false));
        let client = &around.hosts.client;
        let measured = std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                client.stay_on_its_cpu()?;
                let what = (&packet[..], FLOWS);
                let ns = repeater.run(Measured::Forward, what, LEARNING, Some(client));
                began.store(true, Ordering::Relaxed);
                let all = (SENDING / ns?.max(50.0)) as u32;
                repeater.run(Measured::Forward, what, all, Some(client))
            });
            let read = || Seen::read(&forwarder, around, way);
            while !began.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(SETTLE);
            let before = read();
            std::thread::sleep(MEASURED);
            let after = read();
            let sent = sender.join();
            sent.map_err(|_| anyhow::anyhow!("the sender panicked"))??;
            anyhow::Ok((before?, after?))
        });
        let (before, after) = measured?;
        forwarder.check()?;
        let (sent_on, seconds) = (after.sent_on - before.sent_on, after.at - before.at);
        let asked = after.asked - before.asked;
        let seconds_received = (after.received_at - before.received_at).as_secs_f64();
        Ok(vec![Point {
            round: turn.round,
            position: turn.position,
            arm: *turn.arm,
            packets_per_s: sent_on / seconds,
            received_per_s: (after.received - before.received) / seconds_received,
            lost_per_s: (after.lost - before.lost) / seconds,
            admitted: if asked > 0.0 {
                (after.admitted - before.admitted) / asked
            } else {
                0.0
            },
        }])
    }

    fn judge(&self, point: &Point) -> Judgement {
        let arrived = point.received_per_s >= ARRIVES * point.packets_per_s;
        Judgement::valid_if(arrived, "not all that was sent on arrived")
    }

    fn describe(&self, point: &Point) -> String {
        let (round, way, bytes) = (point.round + 1, name(point.arm.way), point.arm.bytes);
        let (kpps, lost) = (point.packets_per_s / 1e3, point.lost_per_s / 1e3);
        format!("round {round}: {way}, {bytes} B: {kpps:.0} kpps, {lost:.0} kpps too many")
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, _: &Results<Point, NoMore>, summary: &Summary) -> Report {
        Report::new(
            "Burst cost: packets a second of the forwarder in user space",
            "A host sends as fast as it can (BPF_PROG_TEST_RUN with live frames) through `batchwise burst \
             forward` on a core of its own to another. All packets are marked: 1,024 sources, bursts of 10.",
        )
        .heading("Packets a second on one core")
        .table(Table::of(
            &summary.arms,
            &[
                ("bytes", &|arm| arm.bytes.to_string()),
                ("", &|arm| name(arm.way)),
                ("packets/s", &|arm| {
                    arm.packets_per_s.map_or_else(String::new, quartiles)
                }),
                ("of drop-tail's", &|arm| Ratio::text(arm.of_drop_tail.as_ref())),
                ("bursts admitted", &|arm| format!("{:.3}", arm.admitted)),
            ],
        ))
        .text(
            "Medians with quartiles. What arrives is copied to the forwarder on the sender's core, and what \
             it sends is received by the next host on its own core: veth has it so. The paper's Click \
             forwarded 350,000 packets of 64 bytes a second, 200,000 with super-packets. `none` is the way \
             back, which has no queue.",
        )
    }
}

/// The forwarder, with the client's packets on the way that is measured.
fn forwarder(around: &Around, way: Way) -> Result<Printing<Value>> {
    let [mut from, mut to] = Around::LINKS;
    if way == Way::None {
        (from, to) = (to, from);
    }
    let mut command = Command::new(batchwise_testbed::commands::find("batchwise")?);
    command.args([
        "burst", "forward", "--from", from, "--to", to, "--rate", RATE,
    ]);
    command.args([
        "--limit",
        LIMIT,
        "--admit",
        way.admit(),
        "--format",
        "jsonl",
    ]);
    command.args(["--interval", "10ms"]);
    let printing = Printing::start(&around.middle, "the forwarder", command, Role::Workload)?;
    let began = Instant::now();
    while printing.with_lines(<[Value]>::is_empty) {
        let quote = printing.quote();
        ensure!(
            began.elapsed() < Duration::from_secs(10),
            "no line of it{quote}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(printing)
}

/// What has been counted so far.
struct Seen {
    /// Seconds, of the forwarder's line.
    at: f64,
    sent_on: f64,
    lost: f64,
    admitted: f64,
    asked: f64,
    received: f64,
    received_at: Duration,
}

impl Seen {
    fn read(forwarder: &Printing<Value>, around: &Around, way: Way) -> Result<Self> {
        let line = forwarder.with_lines(|lines| {
            let mut last = lines.iter().rev();
            last.find(|line| line["kind"] == "burst-forward").cloned()
        });
        let line = line.context("the forwarder says nothing")?;
        let of = |field: &str| line[field].as_f64().unwrap_or_default();
        let (admitted, refused) = (of("bursts_admitted"), of("bursts_refused"));
        let sent_on = if way == Way::None {
            "returned"
        } else {
            "forwarded"
        };
        Ok(Self {
            at: of("ts_ns") / 1e9,
            sent_on: of(sent_on),
            lost: of("lost_ring_full") + of("lost_no_frame") + of("return_dropped"),
            admitted,
            asked: admitted + refused,
            received: received(around)?,
            received_at: nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?.into(),
        })
    }
}

/// Packets that the server's interface has received.
fn received(around: &Around) -> Result<f64> {
    let text = around.hosts.server.inside(|| {
        // of the thread, not of the process: the thread alone is in the namespace
        let text = std::fs::read_to_string("/proc/thread-self/net/dev");
        text.context("reading /proc/thread-self/net/dev")
    })?;
    let fields = text
        .lines()
        .find_map(|l| l.trim().strip_prefix(LINK)?.strip_prefix(':'));
    let packets = fields.and_then(|f| f.split_whitespace().nth(1)?.parse().ok());
    packets.context("the server's link is not in /proc/thread-self/net/dev")
}

/// TCP over IPv4 in a frame of so many bytes on the wire, marked or not, for nobody: the host that gets it throws
/// it away as soon as it sees the address.
pub(super) fn packet(bytes: usize, marked: bool) -> Vec<u8> {
    let length = bytes - 4;
    let mark = CodePoints::default().mark(0, LENGTH);
    let tos = mark.filter(|_| marked).unwrap_or_default();
    let total = (length - 14) as u16;
    let mut p = vec![2, 0, 0, 0, 0x77, 0x99, 2, 0, 0, 0, 0x77, 2, 8, 0];
    p.extend([0x45, tos]);
    p.extend(total.to_be_bytes());
    p.extend([0, 7, 0x40, 0, 64, 6, 0, 0, 10, 77, 0, 2, 10, 77, 0, 1]);
    p.extend([
        0, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0x12, 0x34, 0, 0,
    ]);
    p.resize(length, b'x');
    p
}
