//! A recording, by service, in a bounded number of times: however long it is, a picture has so much room.

use std::collections::BTreeMap;

use batchwise_core::sense::report::{Advice, Line, Side, Unit};

use crate::watch::parts;

/// Times of a service at most; when there are more, two become one.
const TIMES: usize = 400;

/// What was recorded.
#[derive(Debug, Default)]
pub struct Recording {
    pub services: BTreeMap<Key, Service>,
    /// Its begin and end, ns since the Unix epoch.
    pub span: Option<(u64, u64)>,
    /// Lines that are none of `watch`.
    pub others: u64,
}

/// A service's address, network namespace and side.
pub type Key = (String, u32, Side);

/// One side of a service.
#[derive(Debug, Default)]
pub struct Service {
    /// Whose it is, as far as that was known.
    pub owner: Option<String>,
    pub whole: Time,
    pub course: Course,
}

/// In the course of time.
#[derive(Debug, Default)]
pub struct Course {
    pub begin: u64,
    /// Length of each time, ns.
    pub width: u64,
    pub times: Vec<Time>,
}

/// What a time was like.
#[derive(Clone, Debug, Default)]
pub struct Time {
    /// How much of it was recorded, ns.
    pub recorded: u64,
    pub requests: f64,
    pub total: Mean,
    pub percentiles: [Mean; 3],
    pub parts: [Mean; 4],
    /// For how long each was wrong, ns.
    pub advice: BTreeMap<String, u64>,
}

/// Over requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    pub fn get(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }

    fn add(&mut self, value: Option<u64>, weight: f64) {
        if let Some(value) = value {
            self.sum += value as f64 * weight;
            self.weight += weight;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.sum += other.sum;
        self.weight += other.weight;
    }
}

impl Recording {
    /// Takes in a line, if it is one of `watch` that counts sends, of a service.
    pub fn take(&mut self, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let Ok(line) = serde_json::from_slice::<Line>(line) else {
            self.others += 1;
            return;
        };
        if line.unit != Unit::Sends || line.connection.is_some() {
            return;
        }
        let begin = line.ts_ns.saturating_sub(line.interval_ns);
        let (from, to) = self.span.unwrap_or((begin, line.ts_ns));
        self.span = Some((from.min(begin), to.max(line.ts_ns)));
        let time = Time::of(&line);
        let key = (line.service, line.netns, line.side);
        let service = self.services.entry(key).or_default();
        service.owner = line
            .process
            .map(|p| p.name().to_owned())
            .or(service.owner.take());
        service.whole.merge(&time);
        service.course.add(begin, line.interval_ns, &time);
    }
}

impl Time {
    fn of(line: &Line) -> Self {
        let requests = line.throughput_per_s * line.interval_ns as f64 / 1e9;
        // a line without a rate may still have an age
        let weight = requests.max(1e-9);
        let mut time = Self {
            recorded: line.interval_ns,
            requests,
            ..Self::default()
        };
        time.total.add(line.latency_ns.total, weight);
        let tails = &line.tails_ns;
        for (mean, ns) in time
            .percentiles
            .iter_mut()
            .zip([tails.p50, tails.p90, tails.p99])
        {
            mean.add(ns, weight);
        }
        let mut parts = parts::parts(line);
        let [transit, others @ ..] = &mut parts;
        if let (true, Some(total)) = (transit.upper_bound, line.latency_ns.total) {
            // it holds the peer's acknowledgment delay, of which the total is free
            let others: u64 = others.iter().filter_map(|part| part.ns).sum();
            transit.ns = transit.ns.map(|ns| ns.min(total.saturating_sub(others)));
        }
        for (mean, part) in time.parts.iter_mut().zip(&parts) {
            mean.add(part.ns, weight);
        }
        let advice = line
            .advice
            .iter()
            .map(|advice| (id(advice.id), line.interval_ns));
        time.advice.extend(advice);
        time
    }

    fn merge(&mut self, other: &Self) {
        self.recorded += other.recorded;
        self.requests += other.requests;
        self.total.merge(&other.total);
        let own = self.percentiles.iter_mut().chain(&mut self.parts);
        own.zip(other.percentiles.iter().chain(&other.parts))
            .for_each(|(a, b)| a.merge(b));
        for (id, ns) in &other.advice {
            *self.advice.entry(id.clone()).or_default() += ns;
        }
    }

    /// What was wrong for longest, and for which share of what was recorded.
    pub fn worst(&self) -> Option<(&str, f64)> {
        let longest = self.advice.iter().max_by_key(|(_, ns)| **ns)?;
        Some((longest.0, *longest.1 as f64 / self.recorded.max(1) as f64))
    }
}

fn id(advice: Advice) -> String {
    crate::frame::human::word(&advice)
}

impl Course {
    fn add(&mut self, at: u64, interval: u64, time: &Time) {
        if self.times.is_empty() {
            (self.begin, self.width) = (at, interval.max(1));
        }
        // a time that holds an interval holds all like it
        while self.width < interval {
            self.halve();
        }
        let place = |course: &Self| (at.saturating_sub(course.begin) / course.width) as usize;
        while place(self) >= TIMES {
            self.halve();
        }
        let place = place(self);
        if self.times.len() <= place {
            self.times.resize(place + 1, Time::default());
        }
        self.times[place].merge(time);
    }

    fn halve(&mut self) {
        let merged = self.times.chunks(2).map(|pair| {
            let mut one = pair[0].clone();
            pair[1..].iter().for_each(|other| one.merge(other));
            one
        });
        self.times = merged.collect();
        self.width *= 2;
    }

    /// The times that were recorded, with their begins and ends, s since `from`.
    pub fn recorded(&self, from: u64) -> impl Iterator<Item = (f64, f64, &Time)> {
        let at = move |place: usize| {
            let ns = self.begin + place as u64 * self.width;
            ns.saturating_sub(from) as f64 / 1e9
        };
        let times = self.times.iter().enumerate();
        times
            .filter(|(_, time)| time.recorded > 0)
            .map(move |(place, time)| (at(place), at(place + 1), time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::samples;

    fn line(second: u64, total: u64) -> Vec<u8> {
        let mut line = samples::two_sided();
        line.ts_ns += second * 1_000_000_000;
        line.latency_ns.total = Some(total);
        serde_json::to_vec(&line).expect("JSON")
    }

    #[test]
    fn parts_are_no_more_than_the_whole_where_one_is_an_upper_bound() {
        let mut line = samples::local();
        line.latency_ns.total = Some(30_000);
        let time = Time::of(&line);
        let sum: f64 = time.parts.iter().filter_map(|part| part.get()).sum();
        assert!((sum - 30_000.0).abs() < 1.0, "{sum}");
    }

    #[test]
    fn a_long_recording_takes_no_more_room_and_keeps_its_sums() {
        let mut recording = Recording::default();
        let long = 10 * TIMES as u64;
        for second in 0..long {
            recording.take(&line(second, 1_000 + second % 2));
        }
        recording.take(b"no line");
        assert_eq!(recording.others, 1);
        let service = recording.services.values().next().expect("one");
        assert!(service.course.times.len() <= TIMES);
        let requests: f64 = service.course.times.iter().map(|time| time.requests).sum();
        assert!((requests / service.whole.requests - 1.0).abs() < 1e-9);
        let mean = service.whole.total.get().expect("known");
        assert!((mean - 1_000.5).abs() < 1e-6, "{mean}");
        assert_eq!(service.owner.as_deref(), Some("redis-server"));
    }
}
