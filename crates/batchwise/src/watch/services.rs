//! From readings of the kernel's counters to the lines of `watch`: sums what has passed on each
//! connection by service and lets `batchwise-core` estimate.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use batchwise_bpf::{Connection, Vitals};
use batchwise_core::sense::advice::{self, Evidence};
use batchwise_core::sense::connection::ServiceKey;
use batchwise_core::sense::report::{Estimator, Line, Nagle, Side, Unit};
use batchwise_core::sense::service::ServiceSum;
use batchwise_core::sense::spread::{Delays, Spread};
use batchwise_core::sense::tails::Latencies;
use batchwise_core::sense::tracker::{Stage, TrackedConnection, Tracker};

use super::both::{self, Set};
use super::counting::{ByService, Counted, Histograms};
use super::diagnosis::told;
use super::drops::Drops;
use super::names::Names;
use crate::frame::clock::nanos;
use crate::frame::memory;
use crate::hints::HintWindows;
use crate::unseen::Bypassed;

/// What is reported as one: a service, and with `--per-connection` the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    service: ServiceKey,
    connection: Option<(SocketAddr, SocketAddr)>,
}

/// One service in one interval, before it is estimated.
struct Group {
    /// The last connection's; the only one's with `--per-connection`.
    cookie: u64,
    sums: Vec<ServiceSum>,
    /// Of the last reading, and of those before that have closed since.
    open: u64,
    closed: u64,
    /// Of these, with TCP_NODELAY.
    open_nagle_off: u64,
    closed_nagle_off: u64,
    /// Segments with data that passed, and those of them that were counted.
    segments: [u64; 2],
    windows: u32,
    /// Segments with data that were sent, and those that were sent again.
    sent: [u64; 2],
    /// For how long a peer's window was full, where that was longest, ns.
    window_full: u64,
    /// Of the last reading, by connection: since when bytes wait of which none was read, and how many.
    untouched: Vec<(u64, u32)>,
    /// Of the last window.
    delays: Delays,
    /// Of the last reading, by connection: when the oldest request began that is under way, and how many are.
    under_way: Vec<(u64, u32)>,
    /// Of the last reading.
    connections: Set,
}

/// The interval that a line is about.
pub struct Span {
    /// Its end, ns since the Unix epoch.
    pub ts_ns: u64,
    /// What sensing cost, share of one CPU.
    pub cost: f64,
}

/// So many connections take megabytes.
const MANY: usize = 1_000;
/// The other ends of a service's connections, and how these are.
pub type Peers = HashMap<ServiceKey, Vec<(SocketAddr, Vitals)>>;

/// So many of a service's.
const MOST_PEERS: usize = 8;
/// So many services, or connections of them, have lines.
const MOST_LINES: usize = 1_000;

/// All services, and where their connections stand.
pub struct Services {
    units: Vec<Unit>,
    per_connection: bool,
    tracker: Tracker,
    groups: BTreeMap<Key, Group>,
    /// How the windows of those that have lines differ.
    spreads: BTreeMap<Key, Spread>,
    /// ns of the interval that were counted.
    counted: u64,
    /// When the last reading was made, ns.
    read_at: u64,
    /// When the interval began that lines are next made of, ns.
    since: Option<u64>,
    lost_events: u64,
    said_left_out: bool,
    /// Connections of which nothing is seen, since the last lines.
    bypassed: Bypassed,
}

impl Services {
    /// Reports in each of `units`.
    pub fn new(units: Vec<Unit>, per_connection: bool) -> Self {
        Self {
            units,
            per_connection,
            tracker: Tracker::of_windows(),
            groups: BTreeMap::new(),
            spreads: BTreeMap::new(),
            counted: 0,
            read_at: 0,
            since: None,
            lost_events: 0,
            said_left_out: false,
            bypassed: Bypassed::default(),
        }
    }

    /// Takes in what was counted.
    pub fn take(&mut self, counted: &Counted) {
        let Counted {
            reading,
            epoch,
            window: (began, ended),
        } = counted;
        let (began, ended) = (*began, *ended);
        let time = ended.saturating_sub(began.max(self.read_at));
        self.since.get_or_insert(began);
        self.read_at = ended;
        self.counted += time;
        self.lost_events = reading.lost_events;
        self.tracker.read(reading, Some(*epoch));
        if self.tracker.forgotten() >= MANY {
            memory::give_back();
        }
        for group in self.groups.values_mut() {
            (group.open, group.open_nagle_off) = (0, 0);
            group.under_way.clear();
            group.untouched.clear();
            group.connections = Set::default();
        }
        let mut bypassed = Bypassed::default();
        let known = self.tracker.connections();
        for c in known.filter(|c| c.stage != Stage::Missing) {
            if !bypassed.add(&c.last) {
                add(&mut self.groups, &self.units, self.per_connection, c, time);
            }
        }
        self.bypassed.most(bypassed);
        for (key, group) in &mut self.groups {
            let delays = std::mem::take(&mut group.delays);
            if delays.sum().is_some() {
                group.windows += 1;
                self.spreads.entry(*key).or_default().add(&delays);
            }
        }
    }

    /// Leaves out the time in which nothing was to be counted, from the last reading to the next.
    pub fn skip(&mut self, paused: Duration) {
        self.since = self.since.map(|since| since + nanos(paused));
    }

    /// The connections that are open.
    pub fn open(&self) -> impl Iterator<Item = &Connection> {
        let all = self.tracker.connections();
        let open = all.filter(|c| c.stage == Stage::Open);
        open.map(|c| &c.last)
    }

    /// The connections of each service that wait for most.
    pub fn peers(&self) -> Peers {
        let mut peers = Peers::new();
        for c in self.open() {
            let of_service = peers.entry(c.service()).or_default();
            of_service.push((c.remote, c.vitals));
        }
        for of_service in peers.values_mut() {
            let waits = |(_, v): &(_, Vitals)| (v.under_way, v.unread.max(v.outstanding), v.rtt);
            of_service.sort_unstable_by_key(|peer| Reverse(waits(peer)));
            of_service.truncate(MOST_PEERS);
        }
        peers
    }

    /// What the lines to come are about.
    pub fn keys(&self) -> BTreeSet<ServiceKey> {
        self.groups.keys().map(|key| key.service).collect()
    }

    /// The ports of what is in the lines to come, and what is not.
    pub fn met(&mut self) -> (BTreeSet<u16>, Bypassed) {
        let ports = self.groups.keys().map(|key| key.service.server.port());
        (ports.collect(), std::mem::take(&mut self.bypassed))
    }

    /// Whether anything was counted since the last lines.
    pub fn is_empty(&self) -> bool {
        self.counted == 0
    }

    /// The lines of the interval that ends now. What a client's application says of its own requests
    /// is taken for its send calls.
    pub fn lines(
        &mut self,
        hints: &HintWindows,
        latencies: &ByService<Latencies>,
        names: Option<&Names>,
        drops: &Drops,
        span: &Span,
    ) -> (Vec<Line>, Histograms) {
        let counted = std::mem::take(&mut self.counted);
        // what passed is known from reading to reading: a rate times its interval is what passed
        let since = self.since.replace(self.read_at).unwrap_or(self.read_at);
        let interval_ns = self.read_at.saturating_sub(since);
        let share_of_time = (counted as f64 / interval_ns.max(1) as f64).min(1.0);
        let (mut lines, mut histograms) = (Vec::new(), Histograms::new());
        let mut sets = Vec::new();
        self.spreads.retain(|key, _| self.groups.contains_key(key));
        let mut groups = std::mem::take(&mut self.groups);
        groups.retain(|key, _| names.is_none_or(|names| names.admit(&key.service)));
        let left_out = busiest(&mut groups);
        if left_out > 0 && !std::mem::replace(&mut self.said_left_out, true) {
            tracing::warn!(
                "the busiest {MOST_LINES} services are shown, and {left_out} are left out: --port, --unit or --pid chooses"
            );
        }
        for (key, mut group) in groups {
            let service = key.service;
            let process = names.and_then(|names| names.of(&service));
            let hint = match (service.side, self.per_connection) {
                (Side::Server, _) => None,
                (Side::Client, false) => hints.of_service(&service.server),
                (Side::Client, true) => hints.of_connection(group.cookie),
            };
            let connections = group.open + group.closed;
            let nagle = match group.open_nagle_off + group.closed_nagle_off {
                0 => Nagle::On,
                n if n == connections => Nagle::Off,
                _ => Nagle::Mixed,
            };
            let coverage = match group.segments {
                [0, _] => share_of_time,
                [passed, counted] => (counted as f64 / passed as f64).min(1.0),
            };
            for (began, requests) in group.under_way {
                let age = self.read_at.saturating_sub(began);
                group
                    .sums
                    .iter_mut()
                    .for_each(|sum| sum.hang(age, requests));
            }
            let all = |(since, _): &&(u64, u32)| since + interval_ns <= self.read_at;
            let untouched = group.untouched.iter().filter(all);
            let untouched = untouched.map(|(_, bytes)| u64::from(*bytes)).sum();
            let spread = self.spreads.get(&key);
            let variance = spread.map_or(Some(0.0), |s| s.of_mean(group.windows, coverage));
            for (unit, sum) in self.units.iter().zip(&mut group.sums) {
                hint.into_iter().for_each(|hint| sum.hear(hint));
                let of_service = latencies.get(&service);
                let known = of_service.filter(|_| !self.per_connection);
                known.into_iter().for_each(|h| sum.match_up(h));
                let mut e = sum.estimate(counted);
                // an application's own count has no pauses
                let of_time = match e.estimator {
                    Estimator::Hint if hint.is_some() => share_of_time,
                    _ if coverage > 0.0 => share_of_time / coverage,
                    _ => 1.0,
                };
                let (tails_ns, matched) = sum.tails(&mut e, coverage, interval_ns);
                let (under_way, oldest_ns) = sum.under_way();
                if let Some(known) = sum.histogram().filter(|_| *unit == Unit::Sends) {
                    histograms.insert(service, known.clone());
                }
                let stderr_ns = match e.estimator {
                    Estimator::Hint if hint.is_some() => e.spread(1.0, Some(0.0)),
                    _ => e.spread(coverage, variance),
                };
                let per_s = e.throughput * of_time;
                let evidence = Evidence {
                    requests: per_s * interval_ns as f64 / 1e9,
                    latency: e.latency,
                    stages: e.stages,
                    sent: group.sent,
                    window_full: group.window_full as f64 / interval_ns.max(1) as f64,
                    untouched,
                    dropped: drops.of(&service),
                };
                sets.push(group.connections);
                lines.push(Line {
                    ts_ns: span.ts_ns,
                    interval_ns,
                    service: service.server.to_string(),
                    netns: service.netns,
                    side: service.side,
                    process: process.cloned(),
                    connection: key.connection.map(|(a, b)| format!("{a} -> {b}")),
                    vantage: e.estimator.vantage().to_owned(),
                    estimator: e.estimator,
                    view: e.view,
                    unit: *unit,
                    connections,
                    confidence: e.confidence,
                    throughput_per_s: per_s,
                    latency_ns: e.latency,
                    why: e.why.map(|why| why.words().to_owned()),
                    advice: advice::find(service.side, &evidence).map(|found| told(&found)),
                    stderr_ns,
                    stages_ns: e.stages,
                    tails_ns,
                    matched,
                    under_way,
                    oldest_ns,
                    nagle,
                    cost: span.cost,
                    coverage,
                    lost_events: self.lost_events,
                });
            }
        }
        both::agree(&mut lines, &sets);
        (lines, histograms)
    }
}

/// Keeps those with the most traffic; how many were more.
fn busiest(groups: &mut BTreeMap<Key, Group>) -> usize {
    let left_out = groups.len().saturating_sub(MOST_LINES);
    if left_out > 0 {
        let mut by_load: Vec<_> = groups
            .iter()
            .map(|(key, g)| (g.segments[0], *key))
            .collect();
        let (quieter, ..) = by_load.select_nth_unstable(left_out);
        quieter.iter().for_each(|(_, key)| {
            groups.remove(key);
        });
    }
    left_out
}

fn add(
    groups: &mut BTreeMap<Key, Group>,
    units: &[Unit],
    per_connection: bool,
    c: &TrackedConnection,
    time: u64,
) {
    let last = &c.last;
    let key = Key {
        service: last.service(),
        connection: per_connection.then_some((last.local, last.remote)),
    };
    let group = groups.entry(key).or_insert_with(|| Group {
        cookie: last.cookie,
        sums: units
            .iter()
            .map(|u| ServiceSum::new(*u, last.side))
            .collect(),
        open: 0,
        closed: 0,
        open_nagle_off: 0,
        closed_nagle_off: 0,
        segments: [0; 2],
        windows: 0,
        sent: [0; 2],
        window_full: 0,
        untouched: Vec::new(),
        delays: Delays::default(),
        under_way: Vec::new(),
        connections: Set::default(),
    });
    let (connections, nagle_off) = match c.stage {
        Stage::Closed => (&mut group.closed, &mut group.closed_nagle_off),
        _ => (&mut group.open, &mut group.open_nagle_off),
    };
    *connections += 1;
    *nagle_off += u64::from(last.nagle_off);
    if c.stage != Stage::Closed {
        group.connections.add(last);
        if c.unread_since > 0 {
            group.untouched.push((c.unread_since, last.vitals.unread));
        }
        if last.vitals.under_way > 0 {
            let oldest = (last.vitals.oldest, last.vitals.under_way);
            group.under_way.push(oldest);
        }
    }
    group.sent[0] += c.sent[1];
    group.sent[1] += u64::from(c.resent);
    group.window_full = group.window_full.max(c.window_full);
    if let Some([passed, counted]) = c.segments {
        group.segments[0] += passed;
        group.segments[1] += counted;
    }
    c.flow
        .iter()
        .for_each(|flow| group.delays.add(flow, last.side));
    for sum in &mut group.sums {
        c.flow.iter().for_each(|flow| sum.add(flow, time));
    }
}
