//! The whole run: each server's latencies over all of it and in time, and the busiest flows. Bounded,
//! however long it takes and whatever passes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use batchwise_core::passive::Epoch;
use batchwise_core::passive::report::{LatencyQuantiles, ServerLine};
use hdrhistogram::Histogram;

use super::interval::{Key, MOST_SERVERS};

/// So many moments of a server are kept; more are joined in pairs.
const MOST_POINTS: usize = 1024;
/// So many flows are compared for how busy they are.
const MOST_FLOWS: usize = 4096;
/// So many of a server are shown.
const FLOWS_OF_SERVER: usize = 2;
/// Two digits: within 1 % of every latency.
const DIGITS: u8 = 2;

/// What is known of the run so far.
#[derive(Debug, Default)]
pub struct Summary {
    servers: BTreeMap<Key, Overall>,
    flows: HashMap<(SocketAddr, Key), Busy>,
    /// Epochs of servers that found no room.
    beyond: u64,
    span: Option<(u64, u64)>,
}

/// A server over all the time.
#[derive(Debug)]
pub struct Overall {
    pub key: Key,
    /// Most flows of one interval.
    pub flows: u64,
    pub epochs: u64,
    /// Batches: response latencies.
    pub batches: u64,
    /// Gaps too long to be answers.
    pub idle: u64,
    pub resent: u64,
    /// Epochs with nothing but packets that came again, and waiting.
    pub stalled: u64,
    /// Gaps that fitted no mode.
    pub discarded: u64,
    pub points: Vec<Point>,
    histogram: Option<Histogram<u64>>,
    sum_ns: u128,
    /// Thousandths, times batches.
    trust: u64,
}

/// One interval of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Its end, ns since 1970.
    pub ts_ns: u64,
    pub mean_ns: f64,
    pub p90_ns: f64,
    pub weight: u64,
}

#[derive(Debug)]
struct Busy {
    gaps: u64,
    best: Epoch,
}

impl Summary {
    /// An epoch of a flow to this server closed; its times are wall clock.
    pub fn epoch(&mut self, key: Key, epoch: &Epoch) {
        if !self.servers.contains_key(&key) && self.servers.len() >= MOST_SERVERS {
            self.beyond += 1;
            return;
        }
        let (from, to) = self.span.unwrap_or((epoch.start, epoch.end));
        self.span = Some((from.min(epoch.start), to.max(epoch.end)));
        self.servers
            .entry(key)
            .or_insert_with(|| Overall::new(key))
            .add(epoch);
        // requests in flight (TCP) leave no gaps to show
        if let Some(tuple) = epoch.tuple.filter(|_| !epoch.gaps.modes().is_empty()) {
            self.busy((tuple.client, key), epoch);
        }
    }

    fn busy(&mut self, flow: (SocketAddr, Key), epoch: &Epoch) {
        if self.flows.len() >= MOST_FLOWS && !self.flows.contains_key(&flow) {
            let mut gaps: Vec<u64> = self.flows.values().map(|busy| busy.gaps).collect();
            let (_, median, _) = gaps.select_nth_unstable(MOST_FLOWS / 2);
            let median = *median;
            self.flows.retain(|_, busy| busy.gaps > median);
        }
        let busy = self.flows.entry(flow).or_insert(Busy {
            gaps: 0,
            best: *epoch,
        });
        busy.gaps += u64::from(epoch.estimate.gaps);
        if epoch.estimate.gaps > busy.best.estimate.gaps {
            busy.best = *epoch;
        }
    }

    pub fn interval(&mut self, lines: &[(Key, ServerLine)]) {
        for (key, line) in lines {
            let Some(overall) = self.servers.get_mut(key) else {
                continue;
            };
            overall.flows = overall.flows.max(line.flows);
            if let (Some(mean), Some(p90)) = (line.latency_ns.mean, line.latency_ns.p90) {
                overall.point(Point {
                    ts_ns: line.ts_ns,
                    mean_ns: mean as f64,
                    p90_ns: p90 as f64,
                    weight: line.batches,
                });
            }
        }
    }

    pub fn servers(&self) -> impl Iterator<Item = &Overall> {
        self.servers.values()
    }

    /// Epochs of servers that are not among [`Self::servers`]: there were too many.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// First and last packet, ns since 1970.
    pub fn span(&self) -> Option<(u64, u64)> {
        self.span
    }

    /// Of the busiest flows, two a server, the epoch with the most gaps.
    pub fn busiest(&self, most: usize) -> Vec<&Epoch> {
        let mut flows: Vec<_> = self.flows.iter().collect();
        flows.sort_unstable_by_key(|(flow, busy)| (Reverse(busy.gaps), **flow));
        let mut of_server: HashMap<Key, usize> = HashMap::new();
        let few = flows.into_iter().filter(|((_, key), _)| {
            let shown = of_server.entry(*key).or_default();
            *shown += 1;
            *shown <= FLOWS_OF_SERVER
        });
        few.take(most).map(|(_, busy)| &busy.best).collect()
    }
}

impl Overall {
    fn new(key: Key) -> Self {
        Self {
            key,
            flows: 0,
            epochs: 0,
            batches: 0,
            idle: 0,
            resent: 0,
            stalled: 0,
            discarded: 0,
            points: Vec::new(),
            histogram: Histogram::new(DIGITS).ok(),
            sum_ns: 0,
            trust: 0,
        }
    }

    fn add(&mut self, epoch: &Epoch) {
        let estimate = &epoch.estimate;
        self.epochs += 1;
        self.idle += u64::from(estimate.idle);
        self.resent += u64::from(epoch.gaps.resent);
        self.stalled += u64::from(estimate.stalled);
        self.discarded += u64::from(epoch.gaps.discarded);
        let Some(latency) = estimate.latency else {
            return;
        };
        let batches = u64::from(estimate.batches);
        self.batches += batches;
        self.sum_ns += u128::from(latency) * u128::from(batches);
        self.trust += u64::from(estimate.confidence) * batches;
        if let Some(histogram) = &mut self.histogram {
            // It grows with the values; only memory could end that.
            let _ = histogram.record_n(latency.max(1), batches);
        }
    }

    fn point(&mut self, point: Point) {
        if self.points.len() >= MOST_POINTS {
            self.points = self.points.chunks(2).map(joined).collect();
        }
        self.points.push(point);
    }

    /// How far to trust the latencies, 0 to 1.
    pub fn confidence(&self) -> Option<f64> {
        (self.batches > 0).then(|| self.trust as f64 / (self.batches as f64 * 1e3))
    }

    pub fn latency(&self) -> LatencyQuantiles {
        if self.batches == 0 {
            return LatencyQuantiles::default();
        }
        let at = |q| self.histogram.as_ref().map(|h| h.value_at_quantile(q));
        LatencyQuantiles {
            mean: u64::try_from(self.sum_ns / u128::from(self.batches)).ok(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
        }
    }

    /// Latencies in ns with the share of batches that had at most that.
    pub fn distribution(&self) -> Vec<(f64, f64)> {
        let Some(histogram) = self.histogram.as_ref().filter(|h| !h.is_empty()) else {
            return Vec::new();
        };
        let all = histogram.len() as f64;
        let mut below = 0;
        let steps = histogram.iter_recorded().map(|step| {
            below += step.count_since_last_iteration();
            (step.value_iterated_to() as f64, below as f64 / all)
        });
        steps.collect()
    }
}

/// Two moments as one, at the end of the later.
fn joined(points: &[Point]) -> Point {
    let weight: u64 = points.iter().map(|p| p.weight).sum();
    let mean = |of: fn(&Point) -> f64| {
        let sum: f64 = points.iter().map(|p| of(p) * p.weight as f64).sum();
        sum / weight.max(1) as f64
    };
    Point {
        ts_ns: points.iter().map(|p| p.ts_ns).max().unwrap_or(0),
        mean_ns: mean(|p| p.mean_ns),
        p90_ns: mean(|p| p.p90_ns),
        weight,
    }
}

#[cfg(test)]
mod tests {
    use batchwise_core::passive::{Transport, Tuple};

    use super::super::samples;
    use super::*;

    #[test]
    fn a_long_run_keeps_its_shape_in_bounded_memory() {
        let mut summary = Summary::default();
        summary.epoch(samples::KEY, &samples::epoch());
        for second in 0..5_000 {
            let line = ServerLine {
                ts_ns: second,
                ..samples::server()
            };
            summary.interval(&[(samples::KEY, line)]);
        }
        let overall = summary.servers().next().expect("a server");
        assert!(overall.points.len() <= MOST_POINTS);
        assert!(overall.points.iter().all(|p| p.mean_ns == 1_010_000.0));
        let weight: u64 = overall.points.iter().map(|p| p.weight).sum();
        assert_eq!(weight, 5_000 * 9_000);
    }

    #[test]
    fn a_crowd_of_servers_and_flows_finds_an_end() {
        let mut summary = Summary::default();
        let sample = samples::epoch();
        for n in 0..10_000u32 {
            let host = std::net::Ipv4Addr::from(n);
            summary.epoch((SocketAddr::from((host, 80)), Transport::Tcp), &sample);
            let mut busier = sample;
            busier.estimate.gaps = 10_000 + n;
            busier.tuple = Some(Tuple {
                client: SocketAddr::from((host, 40_000)),
                ..samples::TUPLE
            });
            summary.epoch(
                (SocketAddr::from(([0, 0, 0, 0], 80)), Transport::Tcp),
                &busier,
            );
        }
        assert_eq!(summary.servers().count(), MOST_SERVERS);
        assert_eq!(summary.beyond(), 10_000 - MOST_SERVERS as u64);
        assert!(summary.flows.len() <= MOST_FLOWS);
        let busiest = summary.busiest(3);
        let gaps: Vec<u32> = busiest.iter().map(|e| e.estimate.gaps).collect();
        assert_eq!(gaps, [19_999, 19_998]);
    }

    #[test]
    fn latencies_are_weighted_by_batches_and_known_within_a_percent() {
        let mut summary = Summary::default();
        for (latency, batches) in [(1_000_000, 90), (11_000_000, 10)] {
            summary.epoch(samples::KEY, &samples::measured(latency, batches));
        }
        let overall = summary.servers().next().expect("a server");
        let latency = overall.latency();
        assert_eq!(latency.mean, Some(2_000_000));
        let p99 = latency.p99.expect("known") as f64;
        assert!((p99 / 11e6 - 1.0).abs() < 0.01, "{p99}");
        let distribution = overall.distribution();
        assert_eq!(distribution.len(), 2);
        assert!((distribution[0].1 - 0.9).abs() < 1e-9);
    }
}
