//! Estimates against the truth: what a client logged of its requests, what was estimated of its
//! connections, and how far apart the two are, by connection and epoch.

mod errors;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

pub use errors::{Errors, relative, slots_to_follow};

const HEADER: &str = "connection,sent_ns,response_ns,triggered_ns,request_bytes,response_bytes";

/// A request as its client saw it. All times here are in ns since 1970, all durations in ns; the
/// client's address names the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub client: SocketAddr,
    /// Just before it was written.
    pub sent_ns: u64,
    /// When the last byte of the response was read.
    pub response_ns: u64,
    /// When the first request that the response caused was written, if it caused one.
    pub triggered_ns: Option<u64>,
}

impl Request {
    /// Until the response was there: what is to be estimated.
    pub fn latency(&self) -> f64 {
        self.response_ns.saturating_sub(self.sent_ns) as f64
    }

    /// Until the request that the response caused: what an estimator on the path can see.
    pub fn to_triggered(self) -> Option<f64> {
        let triggered = self.triggered_ns?;
        Some(triggered.saturating_sub(self.sent_ns) as f64)
    }

    /// Reads a client's log.
    pub fn read_log(text: &str) -> Result<Vec<Self>> {
        let mut lines = text.lines();
        if lines.next() != Some(HEADER) {
            bail!("a log of requests begins with the line {HEADER:?}");
        }
        (2..)
            .zip(lines)
            .map(|(number, line)| {
                Self::parse(line).with_context(|| format!("line {number} of a log, {line:?}"))
            })
            .collect()
    }

    fn parse(line: &str) -> Result<Self> {
        let fields: Vec<_> = line.split(',').collect();
        let [client, sent, response, triggered, _, _] = fields[..] else {
            bail!("six columns are expected");
        };
        let triggered = match triggered {
            "" => None,
            some => Some(some.parse().context("triggered_ns")?),
        };
        Ok(Self {
            client: client.parse().context("connection")?,
            sent_ns: sent.parse().context("sent_ns")?,
            response_ns: response.parse().context("response_ns")?,
            triggered_ns: triggered,
        })
    }
}

/// A line of `batchwise passive --per-flow --format jsonl` about a flow's epoch.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Epoch {
    /// Its first packet.
    pub start_ns: u64,
    pub end_ns: u64,
    pub client: SocketAddr,
    pub latency_ns: Option<u64>,
}

/// What a baseline measured at one moment of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub client: SocketAddr,
    pub at_ns: u64,
    pub value_ns: f64,
}

/// A connection in one epoch: the truth beside what was estimated.
#[derive(Clone, Debug, PartialEq)]
pub struct Paired {
    pub client: SocketAddr,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Requests sent in the epoch; at least one.
    pub responses: usize,
    /// Mean until their responses were there.
    pub response_ns: f64,
    /// Mean until the requests that these caused; `None` when they caused none.
    pub triggered_ns: Option<f64>,
    pub estimate_ns: Option<f64>,
}

/// Requests by connection, in the order in which they were sent.
#[derive(Debug, Default)]
pub struct Truth {
    by_client: HashMap<SocketAddr, Vec<Request>>,
}

impl Truth {
    /// Of these requests, without those sent before `from` (ns since 1970).
    pub fn of(requests: &[Request], from: u64) -> Self {
        let measured = requests.iter().filter(|r| r.sent_ns >= from);
        Self {
            by_client: by_client(measured, |r| r.client, |r| r.sent_ns),
        }
    }

    pub fn count(&self) -> usize {
        self.by_client.values().map(Vec::len).sum()
    }

    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        self.by_client.values().flatten()
    }

    /// The epochs in which requests were sent, each with what is true of these. An epoch without
    /// requests has no truth and does not count.
    pub fn pair(&self, epochs: &[Epoch]) -> Vec<Paired> {
        let pair = |epoch: &Epoch| {
            let all = self.by_client.get(&epoch.client)?;
            let sent = between(all, epoch.start_ns, epoch.end_ns, |r| r.sent_ns);
            Some(Paired {
                client: epoch.client,
                start_ns: epoch.start_ns,
                end_ns: epoch.end_ns,
                responses: sent.len(),
                response_ns: mean(sent.iter().map(Request::latency))?,
                triggered_ns: mean(sent.iter().filter_map(|r| r.to_triggered())),
                estimate_ns: epoch.latency_ns.map(|ns| ns as f64),
            })
        };
        epochs.iter().filter_map(pair).collect()
    }
}

/// The same epochs with what a baseline measured in each instead of the estimate.
pub fn with_samples(paired: &[Paired], samples: &[Sample]) -> Vec<Paired> {
    let by_client = by_client(samples, |sample| sample.client, |sample| sample.at_ns);
    replace(paired, |epoch| {
        let all = by_client.get(&epoch.client)?;
        let inside = between(all, epoch.start_ns, epoch.end_ns, |sample| sample.at_ns);
        mean(inside.iter().map(|sample| sample.value_ns))
    })
}

/// The same epochs with the one value that a baseline has for each connection.
pub fn with_constants(paired: &[Paired], samples: &[Sample]) -> Vec<Paired> {
    let by_client: HashMap<_, _> = samples.iter().map(|s| (s.client, s.value_ns)).collect();
    replace(paired, |epoch| by_client.get(&epoch.client).copied())
}

/// The same epochs with the client's own time from request to triggered request.
pub fn with_triggered(paired: &[Paired]) -> Vec<Paired> {
    replace(paired, |epoch| epoch.triggered_ns)
}

/// The epochs with the time to the triggered request as the truth.
pub fn against_triggered(paired: &[Paired]) -> Vec<Paired> {
    let with = |epoch: &Paired| {
        Some(Paired {
            response_ns: epoch.triggered_ns?,
            ..epoch.clone()
        })
    };
    paired.iter().filter_map(with).collect()
}

/// One entry a connection: means over all its epochs that have an estimate, by responses.
pub fn by_connection(paired: &[Paired]) -> Vec<Paired> {
    let mut connections: BTreeMap<SocketAddr, Vec<&Paired>> = BTreeMap::new();
    for epoch in paired.iter().filter(|epoch| epoch.estimate_ns.is_some()) {
        connections.entry(epoch.client).or_default().push(epoch);
    }
    let epochs = connections.into_values();
    epochs.filter_map(|epochs| merge(&epochs)).collect()
}

/// Every connection together, in slots of `slot_ns` from `from` on: what a server's line says. An
/// epoch belongs to the slot of its middle.
pub fn over_time(paired: &[Paired], from: u64, slot_ns: u64) -> Vec<Paired> {
    let mut slots: BTreeMap<u64, Vec<&Paired>> = BTreeMap::new();
    for epoch in paired.iter().filter(|epoch| epoch.estimate_ns.is_some()) {
        let middle = epoch.start_ns.midpoint(epoch.end_ns);
        if let Some(since) = middle.checked_sub(from) {
            slots.entry(since / slot_ns).or_default().push(epoch);
        }
    }
    let place = |(slot, epochs): (u64, Vec<&Paired>)| {
        let merged = merge(&epochs)?;
        let start_ns = from + slot * slot_ns;
        Some(Paired {
            start_ns,
            end_ns: start_ns + slot_ns,
            ..merged
        })
    };
    slots.into_iter().filter_map(place).collect()
}

fn merge(epochs: &[&Paired]) -> Option<Paired> {
    let first = epochs.first()?;
    let weighted = |value: &dyn Fn(&Paired) -> Option<f64>| {
        let (mut sum, mut weight) = (0.0, 0.0);
        for epoch in epochs {
            if let Some(value) = value(epoch) {
                sum += value * epoch.responses as f64;
                weight += epoch.responses as f64;
            }
        }
        (weight > 0.0).then(|| sum / weight)
    };
    Some(Paired {
        client: first.client,
        start_ns: epochs.iter().map(|e| e.start_ns).min()?,
        end_ns: epochs.iter().map(|e| e.end_ns).max()?,
        responses: epochs.iter().map(|e| e.responses).sum(),
        response_ns: weighted(&|e| Some(e.response_ns))?,
        triggered_ns: weighted(&|e| e.triggered_ns),
        estimate_ns: weighted(&|e| e.estimate_ns),
    })
}

fn replace(paired: &[Paired], estimate: impl Fn(&Paired) -> Option<f64>) -> Vec<Paired> {
    let with = |epoch: &Paired| Paired {
        estimate_ns: estimate(epoch),
        ..epoch.clone()
    };
    paired.iter().map(with).collect()
}

/// By connection, in the order of their times.
fn by_client<'a, T: Copy + 'a>(
    items: impl IntoIterator<Item = &'a T>,
    client: impl Fn(&T) -> SocketAddr,
    time: impl Fn(&T) -> u64,
) -> HashMap<SocketAddr, Vec<T>> {
    let mut found: HashMap<_, Vec<T>> = HashMap::new();
    for item in items {
        found.entry(client(item)).or_default().push(*item);
    }
    for items in found.values_mut() {
        items.sort_by_key(&time);
    }
    found
}

/// The part of a sorted slice whose times are in `start..end`.
fn between<T>(sorted: &[T], start: u64, end: u64, time: impl Fn(&T) -> u64) -> &[T] {
    let first = sorted.partition_point(|item| time(item) < start);
    let last = sorted.partition_point(|item| time(item) < end.max(start));
    &sorted[first..last]
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), v| (sum + v, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests;
