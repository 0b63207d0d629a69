//! From readings of the kernel's counters to the lines of `watch`: sums what has passed on each
//! connection by service and lets `batchwise-core` estimate.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use batchwise_bpf::Reading;
use batchwise_core::sense::report::{Line, Nagle, Side, Unit};
use batchwise_core::sense::service::ServiceSum;
use batchwise_core::sense::tracker::{Stage, TrackedConnection, Tracker};

use crate::hints::HintWindows;

/// What is reported as one: a server's address here or there, and with `--per-connection` the two
/// ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    service: String,
    side: Side,
    connection: Option<String>,
}

/// One service in one interval, before it is estimated.
struct Group {
    server: SocketAddr,
    /// The last connection's; the only one's with `--per-connection`.
    cookie: u64,
    sums: Vec<ServiceSum>,
    connections: u64,
    nagle_off: u64,
}

/// All services, and where their connections stand.
pub struct Services {
    units: Vec<Unit>,
    per_connection: bool,
    tracker: Tracker,
    epoch: u32,
}

impl Services {
    /// Reports in each of `units`.
    pub fn new(units: Vec<Unit>, per_connection: bool) -> Self {
        Self {
            units,
            per_connection,
            tracker: Tracker::new(0),
            epoch: 0,
        }
    }

    /// Counting began anew after a pause: only what was counted in this epoch is current.
    pub fn begin_anew(&mut self, epoch: u32) {
        self.epoch = epoch;
    }

    /// The lines of the interval of `interval_ns` that ended at `ts_ns` with `reading`.
    /// What a client's application says of its own requests is taken for its send calls.
    pub fn lines(
        &mut self,
        reading: &Reading,
        hints: &HintWindows,
        ts_ns: u64,
        interval_ns: u64,
    ) -> Vec<Line> {
        self.tracker.read(reading, Some(self.epoch));
        let mut groups = BTreeMap::new();
        for c in self.tracker.connections() {
            if c.stage != Stage::Missing {
                self.add(&mut groups, c, interval_ns);
            }
        }
        let mut lines = Vec::new();
        for (key, mut group) in groups {
            let hint = match (key.side, self.per_connection) {
                (Side::Server, _) => None,
                (Side::Client, false) => hints.of_service(&group.server),
                (Side::Client, true) => hints.of_connection(group.cookie),
            };
            let nagle = match group.nagle_off {
                0 => Nagle::On,
                n if n == group.connections => Nagle::Off,
                _ => Nagle::Mixed,
            };
            for (unit, sum) in self.units.iter().zip(&mut group.sums) {
                hint.into_iter().for_each(|hint| sum.hear(hint));
                let e = sum.estimate();
                lines.push(Line {
                    ts_ns,
                    interval_ns,
                    service: key.service.clone(),
                    side: key.side,
                    connection: key.connection.clone(),
                    vantage: e.estimator.vantage().to_owned(),
                    estimator: e.estimator,
                    view: e.view,
                    unit: *unit,
                    connections: group.connections,
                    confidence: e.confidence,
                    throughput_per_s: e.throughput,
                    latency_ns: e.latency,
                    stages_ns: e.stages,
                    nagle,
                    lost_events: reading.lost_events,
                });
            }
        }
        lines
    }

    fn add(&self, groups: &mut BTreeMap<Key, Group>, c: &TrackedConnection, interval_ns: u64) {
        let last = &c.last;
        let server = last.server();
        let key = Key {
            service: server.to_string(),
            side: last.side,
            connection: self
                .per_connection
                .then(|| format!("{} -> {}", last.local, last.remote)),
        };
        let group = groups.entry(key).or_insert_with(|| Group {
            server,
            cookie: last.cookie,
            sums: self
                .units
                .iter()
                .map(|u| ServiceSum::new(*u, last.side, interval_ns))
                .collect(),
            connections: 0,
            nagle_off: 0,
        });
        group.connections += 1;
        group.nagle_off += u64::from(last.nagle_off);
        for sum in &mut group.sums {
            c.flow.iter().for_each(|flow| sum.add(flow));
        }
    }
}
