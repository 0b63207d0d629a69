//! Experiment `budget`: whether `batchwise watch` with its default budget keeps it and stays true, from
//! 10 requests/s to 500,000, with ten thousand connections, and with clients that people use.

pub mod agents;
pub mod clients;
pub mod load;
mod report;
pub mod summary;

use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::engine::text::{percent, thousands};
use crate::engine::{Experiment, Judgement, NoMore, Report, Results, Round, Run, Turn, two_hosts};
use agents::{Agents, End};
use clients::Truth;
use load::{Load, Servers};
use summary::Summary;

/// Descriptors that the server and the client of the many connections need each.
const FILES: u64 = 12_000;
/// Before a row is measured: the agents learn what counting costs under its load.
const SETTLE: Duration = Duration::from_secs(5);
/// For the line of the interval in which the load ends.
pub const LAST_LINE: Duration = Duration::from_millis(1_200);

pub struct Budget;

/// One load, as both ends' agents and its client saw it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub load: Load,
    pub truth: Truth,
    /// What the agents at the ends saw and took; null: they printed no line.
    pub client: Option<End>,
    pub server: Option<End>,
}

/// The servers and the hosts.
pub struct Stage {
    servers: Servers,
}

impl Experiment for Budget {
    type Stage = Stage;
    type Arm = Load;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "budget"
    }

    fn about(&self) -> &'static str {
        "whether watching keeps its budget and stays true, at any rate and with real clients"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Load>>> {
        Ok(vec![Round::in_order(Load::all(quick))])
    }

    fn part(&self, load: &Load) -> Option<String> {
        Some(load.name())
    }

    fn stage(&self, context: &Context) -> Result<(Stage, Value)> {
        clients::installed()?;
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, soft.max(FILES), hard.max(FILES))
            .context("raising the limit of open files")?;
        let (hosts, network) = two_hosts("budget")?;
        let servers = Servers::start(hosts, &context.stop)?;
        Ok((Stage { servers }, network))
    }

    fn measure(
        &self,
        run: &mut Run<'_, NoMore>,
        Stage { servers }: &mut Stage,
        turn: Turn<'_, Load>,
    ) -> Result<Vec<Point>> {
        let (context, load) = (run.context, *turn.arm);
        let length = Duration::from_secs(if context.quick { 8 } else { 15 });
        let agents = Agents::start(context, &servers.hosts, load.port(), None)?;
        let (truth, spent) = agents.during(|| {
            let truth = load.run(context, servers, (SETTLE, length))?;
            context.stop.sleep(LAST_LINE)?;
            Ok(truth)
        })?;
        servers.check_alive()?;
        let [client, server] = agents.finish(&truth, &spent)?;
        Ok(vec![Point {
            load,
            truth,
            client,
            server,
        }])
    }

    fn judge(&self, point: &Point) -> Judgement {
        let both = point.client.is_some() && point.server.is_some();
        Judgement::valid_if(both, "an agent printed no line")
    }

    fn describe(&self, point: &Point) -> String {
        let (load, rps) = (point.load.name(), thousands(point.truth.rps));
        let of = |end: &Option<End>, what: fn(&End) -> f64| percent(end.as_ref().map(what));
        format!(
            "{load}: {rps} requests/s, cost {} at the client and {} at the server, {} and {} counted",
            of(&point.client, |end| end.cost),
            of(&point.server, |end| end.cost),
            of(&point.client, |end| end.coverage),
            of(&point.server, |end| end.coverage),
        )
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, results: &Results<Point, NoMore>, summary: &Summary) -> Report {
        report::report(&results.points, summary)
    }
}
