//! What an agent costs that keeps a budget. It counts in windows of some ms, and what a machine serves
//! swings by more than their cost from second to second. So each window is compared with the time around
//! it, in which the agent has nothing attached.

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::busy::Sample;
use crate::engine::stalls::{Gap, lost};
use batchwise_testbed::stop::Stop;

/// What passes before a recording: the governor learns.
pub(super) const SETTLE: Duration = Duration::from_secs(2);
/// Length of a recording.
pub(super) const LENGTH: Duration = Duration::from_secs(8);
/// Between two readings.
const BIN: Duration = Duration::from_millis(10);
/// What is compared with a window, on each of its sides, ns.
const AROUND: u64 = 150_000_000;
/// A window that has less around it is left out, ns.
const LEAST_AROUND: u64 = 50_000_000;

/// A reading, and whether the agents counted then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tick {
    pub sample: Sample,
    pub counting: bool,
}

/// What a recording says. Ratios are over what would have been without the agent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// All CPU time of the agent outside of its windows is taken for time that the load lost.
    pub throughput_ratio: f64,
    pub server_cpu_ratio: f64,
    pub client_cpu_ratio: f64,
    /// CPU time that server and client needed more, and the agents', as a share of one CPU.
    pub cost: f64,
    /// Share of the time in which events were counted, with a bin at each side.
    pub counted: f64,
    pub windows: usize,
}

/// Reads every [`BIN`] for [`LENGTH`].
pub(super) fn record(stop: &Stop, mut read: impl FnMut() -> Result<Tick>) -> Result<Vec<Tick>> {
    let mut ticks = vec![read()?];
    while ticks.len() < (LENGTH.as_nanos() / BIN.as_nanos()) as usize {
        stop.sleep(BIN)?;
        ticks.push(read()?);
    }
    Ok(ticks)
}

/// What passed between two readings.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    /// ns, without what the host took away.
    time: u64,
    requests: u64,
    server_cpu: f64,
    client_cpu: f64,
    agents_cpu: f64,
}

impl Passed {
    fn between(a: &Sample, b: &Sample, gaps: &[Gap]) -> Self {
        let cpu = |a: Duration, b: Duration| b.saturating_sub(a).as_nanos() as f64;
        Self {
            time: b.at.saturating_sub(a.at) - lost(gaps, a.at, b.at),
            requests: b.requests.saturating_sub(a.requests),
            server_cpu: cpu(a.server_cpu, b.server_cpu),
            client_cpu: cpu(a.client_cpu, b.client_cpu),
            agents_cpu: cpu(a.agents_cpu, b.agents_cpu),
        }
    }

    fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |sum, p| Self {
            time: sum.time + p.time,
            requests: sum.requests + p.requests,
            server_cpu: sum.server_cpu + p.server_cpu,
            client_cpu: sum.client_cpu + p.client_cpu,
            agents_cpu: sum.agents_cpu + p.agents_cpu,
        })
    }

    fn rate(&self) -> f64 {
        self.requests as f64 / self.time.max(1) as f64
    }

    fn per_request(&self, cpu: f64) -> f64 {
        cpu / self.requests.max(1) as f64
    }
}

impl Kept {
    /// `None` without a window that can be compared.
    pub(super) fn of(ticks: &[Tick], gaps: &[Gap]) -> Option<Self> {
        let bins: Vec<_> = ticks
            .windows(2)
            .map(|w| Passed::between(&w[0].sample, &w[1].sample, gaps))
            .collect();
        let on: Vec<_> = ticks
            .windows(2)
            .map(|w| w[0].counting || w[1].counting)
            .collect();
        // what attaching and detaching costs is in the bins beside
        let within: Vec<_> = (0..on.len())
            .map(|i| (i.saturating_sub(1)..=i + 1).any(|j| on.get(j).is_some_and(|on| *on)))
            .collect();
        let all = Passed::sum(bins.iter().copied());
        let (mut used, mut windows) = (0, 0);
        let (mut counted, mut outside) = (0, 0.0);
        let (mut unserved, mut server, mut client, mut cpu) = (0.0, 0.0, 0.0, 0.0);
        let mut i = 0;
        while i < bins.len() {
            if !within[i] {
                outside += bins[i].agents_cpu;
                i += 1;
                continue;
            }
            let begin = i;
            while i < bins.len() && within[i] {
                i += 1;
            }
            let window = Passed::sum(bins[begin..i].iter().copied());
            counted += window.time;
            let (from, to) = (ticks[begin].sample.at, ticks[i].sample.at);
            let beside = (0..bins.len()).filter(|&j| {
                let at = ticks[j].sample.at;
                !within[j] && at + AROUND > from && at < to + AROUND
            });
            let around = Passed::sum(beside.map(|j| bins[j]));
            if around.time < LEAST_AROUND || around.requests == 0 || window.requests == 0 {
                continue;
            }
            let more = |cpu: fn(&Passed) -> f64| {
                let before = around.per_request(cpu(&around));
                (window.per_request(cpu(&window)) - before, before)
            };
            let time = window.time as f64;
            unserved += time * (1.0 - window.rate() / around.rate());
            let (of_server, before) = more(|p| p.server_cpu);
            server += time * of_server / before;
            let (of_client, before) = more(|p| p.client_cpu);
            client += time * of_client / before;
            cpu += (of_server + of_client) * window.requests as f64;
            used += window.time;
            windows += 1;
        }
        if windows == 0 {
            return None;
        }
        let time = all.time as f64;
        // windows that could not be compared are taken to be like those that could
        let scale = counted as f64 / used.max(1) as f64 / time;
        Some(Self {
            throughput_ratio: 1.0 - unserved * scale - outside / time,
            server_cpu_ratio: 1.0 + server * scale,
            client_cpu_ratio: 1.0 + client * scale,
            cost: cpu * scale + all.agents_cpu / time,
            counted: counted as f64 / time,
            windows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second in bins of 10 ms, in which events are counted from 500 to 600 ms.
    fn ticks(rate_within: u64, cpu_within: u64) -> Vec<Tick> {
        let (mut requests, mut cpu) = (0, 0);
        (0..=100)
            .map(|i| {
                let within = (50..60).contains(&i);
                let tick = Tick {
                    sample: Sample {
                        at: i * 10_000_000,
                        requests,
                        server_cpu: Duration::from_nanos(cpu),
                        client_cpu: Duration::ZERO,
                        agents_cpu: Duration::from_micros(10 * i),
                    },
                    counting: within,
                };
                let n = if within { rate_within } else { 1000 };
                requests += n;
                cpu += n * if within { cpu_within } else { 5000 };
                tick
            })
            .collect()
    }

    #[test]
    fn what_a_window_serves_less_than_the_time_around_it_is_the_cost() {
        let kept = Kept::of(&ticks(900, 5500), &[]).unwrap();
        // a tenth of the time served a tenth less; and the agent took a thousandth outside
        assert!(
            (kept.throughput_ratio - 0.99 + 0.00088).abs() < 1e-4,
            "{kept:?}"
        );
        assert!((kept.server_cpu_ratio - 1.01).abs() < 2e-3, "{kept:?}");
        assert!(
            (kept.cost - (9000.0 * 500.0 / 1e9 + 0.001)).abs() < 1e-4,
            "{kept:?}"
        );
        assert_eq!((kept.windows, (kept.counted * 100.0).round()), (1, 13.0));
    }

    #[test]
    fn a_window_that_costs_nothing_leaves_everything() {
        let kept = Kept::of(&ticks(1000, 5000), &[]).unwrap();
        assert!(
            kept.throughput_ratio > 0.999 && kept.cost < 0.0011,
            "{kept:?}"
        );
    }

    #[test]
    fn a_recording_without_a_window_says_nothing() {
        let mut ticks = ticks(900, 5000);
        ticks.iter_mut().for_each(|tick| tick.counting = false);
        assert_eq!(Kept::of(&ticks, &[]), None);
    }
}
