//! From readings of the kernel's counters to report lines: subtracts a connection's previous
//! reading, sums by service and lets `batchwise-core` estimate.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use batchwise_bpf::{Connection, Reading};
use batchwise_core::sense::hint;
use batchwise_core::sense::report::{Estimator, Line, Nagle, Side, Unit};
use batchwise_core::sense::sample::Sample;
use batchwise_core::sense::service::ServiceSum;

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
    late_send: bool,
}

/// Remembers the last reading of every connection.
pub struct Services {
    units: Vec<Unit>,
    per_connection: bool,
    previous: HashMap<u64, Previous>,
}

/// A connection's last reading, and how many readings it has been missing from since: one that
/// closes while the others are read is in none, and its last record in the next.
#[derive(Clone, Copy)]
struct Previous {
    sample: Sample,
    missed: u8,
}

/// A connection that was missing more often than this will not come back.
const MOST_MISSED: u8 = 2;

/// Send times taken after the call hide the time that the call took.
const LATE_SEND_TRUST: f64 = 0.7;

impl Services {
    /// Reports in each of `units`.
    pub fn new(units: Vec<Unit>, per_connection: bool) -> Self {
        Self {
            units,
            per_connection,
            previous: HashMap::new(),
        }
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
        let mut groups = BTreeMap::new();
        let mut seen = HashMap::with_capacity(reading.open.len());
        for c in &reading.closed {
            self.add(&mut groups, c, interval_ns);
        }
        for c in &reading.open {
            self.add(&mut groups, c, interval_ns);
            let (sample, missed) = (c.sample, 0);
            seen.insert(c.cookie, Previous { sample, missed });
        }
        for c in &reading.closed {
            self.previous.remove(&c.cookie);
        }
        for (cookie, p) in self.previous.drain() {
            if p.missed < MOST_MISSED {
                let missed = p.missed + 1;
                seen.entry(cookie).or_insert(Previous { missed, ..p });
            }
        }
        self.previous = seen;
        groups
            .into_iter()
            .flat_map(|(key, group)| {
                self.report(&key, &group, (reading, hints), ts_ns, interval_ns)
            })
            .collect()
    }

    fn add(&self, groups: &mut BTreeMap<Key, Group>, c: &Connection, interval_ns: u64) {
        let server = c.server();
        let key = Key {
            service: server.to_string(),
            side: c.side,
            connection: self
                .per_connection
                .then(|| format!("{} -> {}", c.local, c.remote)),
        };
        let group = groups.entry(key).or_insert_with(|| Group {
            server,
            cookie: c.cookie,
            sums: self
                .units
                .iter()
                .map(|u| ServiceSum::new(*u, c.side, interval_ns))
                .collect(),
            connections: 0,
            nagle_off: 0,
            late_send: false,
        });
        let birth = Sample::birth(c.born);
        let previous = self.previous.get(&c.cookie);
        let flow = c.sample.since(previous.map_or(&birth, |p| &p.sample));
        group.connections += 1;
        group.nagle_off += u64::from(c.nagle_off);
        group.late_send |= c.late_send;
        for sum in &mut group.sums {
            sum.add(&flow);
        }
    }

    fn report(
        &self,
        key: &Key,
        group: &Group,
        (reading, hints): (&Reading, &HintWindows),
        ts_ns: u64,
        interval_ns: u64,
    ) -> Vec<Line> {
        let nagle = match group.nagle_off {
            0 => Nagle::On,
            n if n == group.connections => Nagle::Off,
            _ => Nagle::Mixed,
        };
        let trust = if group.late_send {
            LATE_SEND_TRUST
        } else {
            1.0
        };
        let hint = match (key.side, self.per_connection) {
            (Side::Server, _) => None,
            (Side::Client, false) => hints.of_service(&group.server),
            (Side::Client, true) => hints.of_connection(group.cookie),
        };
        let line = |(unit, sum): (&Unit, &ServiceSum)| {
            let hint = hint.filter(|_| *unit == Unit::Sends);
            let (e, vantage, trust) = match hint.and_then(|w| hint::estimate(w, interval_ns)) {
                Some(e) => (e, "application", 1.0),
                None => match sum.estimate() {
                    e if e.estimator == Estimator::Hint => (e, "application", 1.0),
                    e => (e, "socket", trust),
                },
            };
            Line {
                ts_ns,
                interval_ns,
                service: key.service.clone(),
                side: key.side,
                connection: key.connection.clone(),
                vantage: vantage.to_owned(),
                estimator: e.estimator,
                view: e.view,
                unit: *unit,
                connections: group.connections,
                confidence: e.confidence * trust,
                throughput_per_s: e.throughput,
                latency_ns: e.latency,
                stages_ns: e.stages,
                nagle,
                lost_events: reading.lost_events,
            }
        };
        self.units.iter().zip(&group.sums).map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use batchwise_core::sense::wire::{Item, Queue};

    use super::*;

    /// A server's connection that has answered `answered` requests since it was born.
    fn connection(answered: u64) -> Connection {
        let mut sample = Sample::birth(0);
        for (item, each) in [(Item::Calls, 1), (Item::Bytes, 64)] {
            for queue in [Queue::Unacked, Queue::Unread, Queue::Turnaround] {
                sample.local[item as usize][queue as usize].total = answered * each;
            }
        }
        Connection {
            cookie: 1,
            local: ([10, 0, 0, 1], 6379).into(),
            remote: ([10, 0, 0, 2], 50_000).into(),
            netns: 0,
            side: Side::Server,
            born: 0,
            nagle_off: true,
            app_setting_off: true,
            epoch: 0,
            vitals: Default::default(),
            peer: None,
            exchanges: false,
            late_send: false,
            options: [0; 3],
            sample,
        }
    }

    fn requests(services: &mut Services, reading: &Reading) -> f64 {
        let lines = services.lines(reading, &HintWindows::default(), 0, 1_000_000_000);
        lines.iter().map(|l| l.throughput_per_s).sum()
    }

    #[test]
    fn a_connection_that_closes_between_two_reads_is_counted_once() {
        let mut services = Services::new(vec![Unit::Sends], false);
        let open = Reading {
            open: vec![connection(1_000)],
            ..Reading::default()
        };
        let closed = Reading {
            closed: vec![connection(1_010)],
            ..Reading::default()
        };
        assert_eq!(requests(&mut services, &open), 1_000.0);
        assert_eq!(requests(&mut services, &Reading::default()), 0.0);
        assert_eq!(requests(&mut services, &closed), 10.0);
    }
}
