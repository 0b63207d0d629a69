//! Samples, counted.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::report::{CpuShare, FunctionShare, Line, PhaseShare, ProcessShare, Sampled, Share};
use super::{Attributed, Component, Phase};

/// Processes and functions that are told of.
const MOST: usize = 20;
/// Processes that are counted one by one; the others are together.
const MOST_PROCESSES: usize = 10_000;

/// The samples of an interval.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    idle: u64,
    kinds: BTreeMap<(Component, Phase), u64>,
    cpus: BTreeMap<(u32, Phase), u64>,
    /// By process: in its own user space and system calls, and in softirqs that it was interrupted for.
    processes: BTreeMap<(u32, String), [u64; 2]>,
    functions: BTreeMap<String, (Component, u64)>,
}

/// A sample.
#[derive(Clone, Debug)]
pub struct Counted<'a> {
    /// Where.
    pub cpu: u32,
    /// Whose; 0: nobody's.
    pub pid: u32,
    /// Of its process.
    pub name: &'a str,
    /// What its stack says.
    pub at: Attributed,
    /// The innermost function, if it is the kernel's.
    pub function: Option<&'a str>,
}

impl Tally {
    /// A sample more.
    pub fn add(&mut self, sample: &Counted<'_>) {
        let Attributed { component, phase } = sample.at;
        *self.cpus.entry((sample.cpu, phase)).or_default() += 1;
        if phase == Phase::Idle {
            self.idle += 1;
            return;
        }
        *self.kinds.entry((component, phase)).or_default() += 1;
        let of_process = self.process((sample.pid, String::from(sample.name)));
        let interrupted = matches!(phase, Phase::SoftIrq | Phase::HardIrq);
        of_process[usize::from(interrupted)] += 1;
        if let Some(function) = sample.function {
            let known = self.functions.entry(String::from(function));
            known.or_insert((component, 0)).1 += 1;
        }
    }

    fn process(&mut self, key: (u32, String)) -> &mut [u64; 2] {
        let has_room = self.processes.len() < MOST_PROCESSES;
        let key = match has_room || self.processes.contains_key(&key) {
            true => key,
            false => (0, String::from("(others)")),
        };
        self.processes.entry(key).or_default()
    }

    /// All samples of this one too.
    pub fn merge(&mut self, other: &Self) {
        fn sum<K: Ord + Clone>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
            for (key, count) in from {
                *into.entry(key.clone()).or_default() += count;
            }
        }
        self.idle += other.idle;
        sum(&mut self.kinds, &other.kinds);
        sum(&mut self.cpus, &other.cpus);
        for (process, counts) in &other.processes {
            let known = self.process(process.clone());
            known.iter_mut().zip(counts).for_each(|(k, c)| *k += c);
        }
        for (function, (component, count)) in &other.functions {
            let known = self.functions.entry(function.clone());
            known.or_insert((*component, 0)).1 += count;
        }
    }

    /// Samples of CPUs that did something.
    pub fn busy(&self) -> u64 {
        self.kinds.values().sum()
    }

    /// Samples of CPUs that did nothing.
    pub fn idle(&self) -> u64 {
        self.idle
    }

    fn share(&self, count: u64) -> f64 {
        count as f64 / self.busy().max(1) as f64
    }

    fn count(&self, is: impl Fn(Component, Phase) -> bool) -> u64 {
        let kinds = self.kinds.iter();
        kinds.filter(|((c, p), _)| is(*c, *p)).map(|(_, n)| n).sum()
    }

    /// Every component, also one without samples.
    pub fn components(&self) -> Vec<Share> {
        let share = |component| {
            let samples = self.count(|c, _| c == component);
            Share {
                component,
                samples,
                share: self.share(samples),
                softirq: self.share(self.count(|c, p| c == component && p == Phase::SoftIrq)),
            }
        };
        Component::ALL.into_iter().map(share).collect()
    }

    /// The phases that there were.
    pub fn phases(&self) -> Vec<PhaseShare> {
        let mut phases: BTreeMap<_, u64> = BTreeMap::new();
        for ((_, phase), count) in &self.kinds {
            *phases.entry(*phase).or_default() += count;
        }
        let share = |(phase, count)| PhaseShare {
            phase,
            share: self.share(count),
        };
        phases.into_iter().map(share).collect()
    }

    /// Each of these CPUs, of which so many samples were due. An idle CPU may bring fewer: its timer can sleep.
    pub fn cpus(&self, due: f64, sampled: &[u32]) -> Vec<CpuShare> {
        let sampled = sampled.iter().map(|cpu| (*cpu, [0, 0]));
        let mut cpus: BTreeMap<u32, [u64; 2]> = sampled.collect();
        for ((cpu, phase), count) in &self.cpus {
            let [busy, softirq] = cpus.entry(*cpu).or_default();
            *busy += if *phase == Phase::Idle { 0 } else { *count };
            *softirq += if *phase == Phase::SoftIrq { *count } else { 0 };
        }
        let of_due = |count: u64| (count as f64 / due.max(1.0)).min(1.0);
        let share = |(cpu, [busy, softirq]): (u32, [u64; 2])| CpuShare {
            cpu,
            busy: of_due(busy),
            softirq: of_due(softirq),
        };
        cpus.into_iter().map(share).collect()
    }

    /// Those that took most time.
    pub fn processes(&self) -> Vec<ProcessShare> {
        let share = |((pid, name), [own, interrupted]): (&(u32, String), &[u64; 2])| ProcessShare {
            pid: *pid,
            name: name.clone(),
            share: self.share(*own),
            interrupted: self.share(*interrupted),
        };
        let mut all: Vec<_> = self.processes.iter().map(share).collect();
        all.sort_by(|a, b| (b.share + b.interrupted).total_cmp(&(a.share + a.interrupted)));
        all.truncate(MOST);
        all
    }

    /// The kernel's functions that took most time.
    pub fn functions(&self) -> Vec<FunctionShare> {
        let share = |(name, (component, count)): (&String, &(Component, u64))| FunctionShare {
            name: name.clone(),
            component: *component,
            share: self.share(*count),
        };
        let mut all: Vec<_> = self.functions.iter().map(share).collect();
        all.sort_by(|a, b| b.share.total_cmp(&a.share));
        all.truncate(MOST);
        all
    }
}

impl Line {
    /// From what was counted in it.
    pub fn of(tally: &Tally, sampled: Sampled<'_>) -> Self {
        let expected = f64::from(sampled.hz) * sampled.interval_ns as f64 / 1e9;
        Self {
            kind: String::from("profile"),
            ts_ns: sampled.ts_ns,
            interval_ns: sampled.interval_ns,
            clock: sampled.clock,
            hz: sampled.hz,
            only: sampled.only,
            samples: tally.busy(),
            idle: tally.idle(),
            lost: sampled.lost,
            cpus_busy: tally.busy() as f64 / expected.max(1.0),
            components: tally.components(),
            phases: tally.phases(),
            cpus: tally.cpus(expected, sampled.cpus),
            processes: tally.processes(),
            functions: tally.functions(),
            traffic: None,
        }
    }
}
