//! Experiment `burst-jumbo`: 49 connections and one that is different, all without an end (the paper's section 5.1,
//! live). How much more does the one carry if its packets are of 9000 bytes, or if its bursts are admitted whole?

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Result;
use batchwise_testbed::triangle::{
    BACK_LINK, CLIENT_LINK, SERVER_IP, SERVER_LINK, VANTAGE_LINK, VANTAGE_SERVER_LINK,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Endless, Fates, PORT, Site, Way, endless, told};
use crate::Context;
use crate::engine::ratio::ENOUGH_PAIRS;
use crate::engine::text::name;
use crate::engine::{Experiment, NoMore, Ratio, Report, Results, Round, Run, Table, Turn};
use crate::stats::median;

pub(crate) struct BurstJumbo;

const OTHERS: usize = 49;
const MBIT: u32 = 100;
/// Of the receiver: the way there has its own MTU.
const ONE: Ipv4Addr = Ipv4Addr::new(10, 78, 5, 1);
const USUAL: u32 = 1_500;
const JUMBO: u32 = 9_000;

/// What the one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum One {
    /// The same as the others.
    Usual,
    /// It sends packets of 9000 bytes into a queue that counts packets.
    Jumbo,
    /// Its bursts are marked, and admitted whole.
    Marks,
}

impl One {
    const ALL: [Self; 3] = [Self::Usual, Self::Jumbo, Self::Marks];
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    round: u32,
    pub(crate) one: One,
    /// What the one carried, and the others together, bytes a second.
    one_per_s: f64,
    others_per_s: f64,
    fates: Option<Fates>,
}

impl Point {
    /// What the one carried over the mean of the others.
    fn share(&self) -> f64 {
        self.one_per_s / (self.others_per_s / OTHERS as f64)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) cases: Vec<CaseSummary>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CaseSummary {
    pub(crate) one: One,
    /// What the one carries over the mean of the others: the median.
    pub(crate) share: Option<f64>,
    /// That over the same of the usual one in the same round.
    pub(crate) of_usual: Option<Ratio>,
}

impl Summary {
    fn of(points: &[Point]) -> Self {
        let case = |one| {
            let shares = points.iter().filter(|p| p.one == one).map(Point::share);
            let key = |p: &Point| (p.round, p.one);
            let pairs = crate::engine::pairs(points, key, one, One::Usual, Point::share);
            CaseSummary {
                one,
                share: median(&shares.collect::<Vec<_>>()),
                of_usual: Ratio::of(&pairs).filter(|_| one != One::Usual),
            }
        };
        Self {
            cases: One::ALL.map(case).into(),
        }
    }
}

impl Experiment for BurstJumbo {
    type Stage = Site;
    type Arm = One;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "burst-jumbo"
    }

    fn about(&self) -> &'static str {
        "49 endless connections and one with jumbo frames, or with bursts that are admitted whole: what does it carry?"
    }

    fn rounds(&self, _quick: bool) -> Result<Vec<Round<One>>> {
        Ok(Round::shuffled(ENOUGH_PAIRS as u32, &One::ALL))
    }

    fn stage(&self, _context: &Context) -> Result<(Site, Value)> {
        let (site, network) = Site::build("b-jumbo")?;
        let router = site.triangle.vantage.namespace();
        let (senders, receiver) = (site.senders().namespace(), site.receiver().namespace());
        for (host, link) in [
            (senders, CLIENT_LINK),
            (router, VANTAGE_LINK),
            (router, VANTAGE_SERVER_LINK),
            (receiver, SERVER_LINK),
            (receiver, BACK_LINK),
            (senders, BACK_LINK),
        ] {
            host.ip(&format!("link set {link} mtu {JUMBO}"))?;
        }
        receiver.ip(&format!("addr add {ONE} dev lo"))?;
        router.ip(&format!(
            "route add {ONE} via 10.78.2.2 dev {VANTAGE_SERVER_LINK}"
        ))?;
        Ok((site, network))
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        site: &mut Site,
        turn: Turn<'_, One>,
    ) -> Result<Vec<Point>> {
        let (context, one, site) = (run.context, *turn.arm, &*site);
        let measured = Duration::from_millis(if context.quick { 4_000 } else { 12_000 });
        site.set_queue(MBIT)?;
        site.count_packets()?;
        let mtu = if one == One::Jumbo { JUMBO } else { USUAL };
        for (to, mtu) in [(SERVER_IP, USUAL), (ONE, mtu)] {
            let by = format!("via 10.78.1.1 dev {CLIENT_LINK} src 10.78.0.2 congctl cubic");
            let senders = site.senders().namespace();
            senders.ip(&format!("route replace {to} {by} mtu {mtu}"))?;
        }
        let way = if one == One::Marks {
            Way::Bursts
        } else {
            Way::DropTail
        };
        let agents = site.agents(context, way)?;
        let groups = [endless(OTHERS), (SocketAddr::from((ONE, PORT)), 1)];
        let carried = Endless::start(site, context, &groups, measured)?.finish(context)?;
        Ok(vec![Point {
            round: turn.round,
            one,
            one_per_s: carried[1],
            others_per_s: carried[0],
            fates: agents.map(super::Agents::finish).transpose()?,
        }])
    }

    fn describe(&self, point: &Point) -> String {
        let bursts = told(point.fates);
        let (round, one, share) = (point.round + 1, name(point.one), point.share());
        let all = (point.one_per_s + point.others_per_s) * 8e-6;
        format!(
            "round {round}: {one}: {share:.2} of the mean of the others, all {all:.1} Mbit/s{bursts}"
        )
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, _: &Results<Point, NoMore>, summary: &Summary) -> Report {
        Report::new(
            "49 endless connections, and one that is different",
            "All send through a queue of 100 packets at 100 Mbit/s. The others send packets of 1500 bytes.",
        )
        .heading("What the one carries")
        .table(Table::of(
            &summary.cases,
            &[
                ("the one", &|c| name(c.one)),
                ("over the mean of the others", &|c| crate::engine::text::ratio(c.share)),
                ("over the usual one's", &|c| Ratio::text(c.of_usual.as_ref())),
            ],
        ))
        .text("Medians over rounds; ratios are within a round, with 95 % intervals.")
    }
}
