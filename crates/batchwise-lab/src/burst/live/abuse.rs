//! Experiment `burst-abuse`: one that lies about its bursts beside 24 honest connections without an end. What do
//! those carry, over what they carry beside the same packets where the router does not know marks?

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use batchwise_core::burst::mark::CodePoints;
use batchwise_testbed::triangle::SERVER_IP;
use nix::sys::socket::{setsockopt, sockopt};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Endless, Fates, Site, Way, endless, told};
use crate::Context;
use crate::engine::ratio::ENOUGH_PAIRS;
use crate::engine::text::name;
use crate::engine::{
    Experiment, NoMore, Ratio, Report, Results, Round, Run, Table, Turn, Verdict, pairs,
};

pub(crate) struct BurstAbuse;

const HONEST: usize = 24;
const MBIT: u32 = 100;
/// What honest flows carry is to be at least so much of it.
const BAR: f64 = 0.98;
/// Bytes of a datagram.
const DATAGRAM: usize = 1_400;
/// The longest burst that is heard here: a tenth of the queue.
const BURST: u32 = 10;

/// What the one that lies does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Lie {
    /// Marks all that it sends, and sends what it says: a fifth of the link.
    MarksAll,
    /// Asks for a burst and sends one packet of it; then another flow does. A tenth of the link.
    NeverSends,
    /// The same, each from another address, so with a credit of its own.
    NewAddresses,
    /// Marks all that it sends, each burst from another address: as much as the link takes.
    Floods,
}

impl Lie {
    const ALL: [Self; 4] = [
        Self::MarksAll,
        Self::NeverSends,
        Self::NewAddresses,
        Self::Floods,
    ];

    /// Packets that it sends of a burst, and the time from one burst to the next.
    fn burst(self) -> (u32, Duration) {
        match self {
            Self::MarksAll => (BURST, Duration::from_micros(6_000)),
            Self::NeverSends | Self::NewAddresses => (1, Duration::from_micros(1_000)),
            Self::Floods => (BURST, Duration::from_micros(1_200)),
        }
    }

    /// The source of this burst.
    fn source(self, number: u32) -> Ipv4Addr {
        match self {
            Self::NewAddresses | Self::Floods => Ipv4Addr::new(10, 79, 0, (1 + number % 250) as u8),
            _ => Ipv4Addr::new(10, 79, 0, 1),
        }
    }

    /// Sends until it is told to stop.
    fn tell(self, to: SocketAddr, stop: &AtomicBool) -> Result<()> {
        let (sent, every) = self.burst();
        let tos = i32::from(
            CodePoints::default()
                .mark(0, BURST)
                .context("a mark of this length")?,
        );
        let (began, mut number) = (Instant::now(), 0);
        while !stop.load(Ordering::Relaxed) {
            let socket = UdpSocket::bind((self.source(number), 0))?;
            setsockopt(&socket.as_fd(), sockopt::Ipv4Tos, &tos)?;
            for _ in 0..sent {
                // a full device is as good as a full queue
                let _ = socket.send_to(&[0; DATAGRAM], to);
            }
            number += 1;
            std::thread::sleep((every * number).saturating_sub(began.elapsed()));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Arm {
    pub(crate) lie: Lie,
    pub(crate) way: Way,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    round: u32,
    #[serde(flatten)]
    pub(crate) arm: Arm,
    /// What the honest flows carried, bytes a second.
    honest_per_s: f64,
    fates: Option<Fates>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// What honest flows carry over what they carry beside drop-tail: the least of all cases, …
    pub(crate) honest: Option<f64>,
    /// … and whether that is at least 0.98 in all.
    pub(crate) honest_verdict: Verdict,
    pub(crate) cases: Vec<CaseSummary>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CaseSummary {
    #[serde(flatten)]
    pub(crate) arm: Arm,
    /// Over drop-tail's of the same round.
    pub(crate) honest_ratio: Option<Ratio>,
}

impl Summary {
    fn of(points: &[Point]) -> Self {
        let key = |p: &Point| (p.round, p.arm);
        let case = |arm: Arm| {
            let base = Arm {
                way: Way::DropTail,
                ..arm
            };
            CaseSummary {
                arm,
                honest_ratio: Ratio::of(&pairs(points, key, arm, base, |p| p.honest_per_s)),
            }
        };
        let arms = Lie::ALL.map(|lie| [Way::Bursts, Way::AllMark].map(|way| Arm { lie, way }));
        let cases: Vec<_> = arms.into_iter().flatten().map(case).collect();
        let ratios = || cases.iter().map(|c| c.honest_ratio.as_ref());
        let decided: Option<Vec<f64>> = ratios().map(Ratio::decided).collect();
        Self {
            honest: decided.and_then(|all| all.into_iter().min_by(f64::total_cmp)),
            honest_verdict: Verdict::of_all(ratios().map(|r| Verdict::at_least(r, BAR))),
            cases,
        }
    }
}

impl Experiment for BurstAbuse {
    type Stage = Site;
    type Arm = Arm;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "burst-abuse"
    }

    fn about(&self) -> &'static str {
        "one that lies about its bursts beside 24 honest connections: what do those carry?"
    }

    fn rounds(&self, _quick: bool) -> Result<Vec<Round<Arm>>> {
        let ways = [Way::DropTail, Way::Bursts, Way::AllMark];
        let arms = Lie::ALL
            .map(|lie| ways.map(|way| Arm { lie, way }))
            .concat();
        Ok(Round::shuffled(ENOUGH_PAIRS as u32, &arms))
    }

    fn part(&self, arm: &Arm) -> Option<String> {
        Some(name(arm.lie))
    }

    fn stage(&self, _context: &Context) -> Result<(Site, Value)> {
        Site::build("b-abuse")
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        site: &mut Site,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let (context, arm, site) = (run.context, *turn.arm, &*site);
        let measured = Duration::from_millis(if context.quick { 800 } else { 4_000 });
        site.set_queue(MBIT)?;
        let agents = site.agents(context, arm.way)?;
        let sink = site
            .receiver()
            .inside(|| Ok(UdpSocket::bind((SERVER_IP, 0))?))?;
        let (to, stop) = (sink.local_addr()?, AtomicBool::new(false));
        let carried = std::thread::scope(|scope| {
            let liar = scope.spawn(|| {
                site.senders().inside(|| {
                    site.senders().stay_on_its_cpu()?;
                    arm.lie.tell(to, &stop)
                })
            });
            let honest = Endless::start(site, context, &[endless(HONEST)], measured);
            let carried = honest.and_then(|honest| honest.finish(context));
            stop.store(true, Ordering::Relaxed);
            let lied = liar.join().map_err(|_| anyhow!("the liar panicked"))?;
            lied.and(carried)
        })?;
        let fates = agents.map(super::Agents::finish).transpose()?;
        Ok(vec![Point {
            round: turn.round,
            arm,
            honest_per_s: carried.iter().sum(),
            fates,
        }])
    }

    fn describe(&self, point: &Point) -> String {
        let bursts = told(point.fates);
        let (lie, way) = (name(point.arm.lie), name(point.arm.way));
        let mbit = point.honest_per_s * 8e-6;
        format!(
            "round {}: {lie}, {way}: honest {mbit:.1} Mbit/s{bursts}",
            point.round + 1
        )
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, _: &Results<Point, NoMore>, summary: &Summary) -> Report {
        Report::new(
            "One that lies about its bursts beside 24 honest connections",
            "A link of 100 Mbit/s with a queue of 100 packets. `bursts`: the honest do not mark; `all-mark`: they do.",
        )
        .heading("What the honest carry")
        .table(Table::of(
            &summary.cases,
            &[
                ("lie", &|c| name(c.arm.lie)),
                ("", &|c| name(c.arm.way)),
                ("over drop-tail", &|c| Ratio::text(c.honest_ratio.as_ref())),
            ],
        ))
        .text("Drop-tail gets the same packets in the same round; with 95 % intervals.")
    }
}
