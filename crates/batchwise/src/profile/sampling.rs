//! From samples to counts: each stack gets its component, phase and process.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use batchwise_bpf::profile::{Clock, Sample, Sampler};
use batchwise_core::profile::{Counted, Kernel, Phase, Tally, attribute};

use super::stacks::Stacks;
use crate::frame::human::process_name;
use crate::frame::ticks::sleep;

/// What is known while it is sampled.
pub struct Sampling {
    sampler: Sampler,
    pub kernel: Kernel,
    numbered: bool,
    /// Names of the interval's processes.
    names: HashMap<u32, String>,
    interval: Tally,
    lost: u64,
    /// If somebody wants them.
    pub stacks: Option<Stacks>,
}

impl Sampling {
    /// Begins. What had to be read and loaded is not sampled.
    /// `numbered`: processes have the same numbers here as in the samples.
    pub fn start(
        mut sampler: Sampler,
        kernel: Kernel,
        numbered: bool,
        with_stacks: bool,
    ) -> anyhow::Result<Self> {
        sampler.start()?;
        Ok(Self {
            numbered,
            sampler,
            kernel,
            names: HashMap::new(),
            interval: Tally::default(),
            lost: 0,
            stacks: with_stacks.then(Stacks::default),
        })
    }

    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Takes in what was sampled since.
    pub fn take(&mut self) -> anyhow::Result<()> {
        let by_timer = self.sampler.clock() == Clock::Timer;
        for sample in self.sampler.take()? {
            self.count(sample, by_timer);
        }
        Ok(())
    }

    /// Takes samples in for so long, or until it is stopped.
    pub fn go_on(&mut self, time: Duration, stop: &AtomicBool) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            sleep(left.min(self.sampler.look_every()))?;
            self.take()?;
        }
    }

    fn count(&mut self, sample: Sample, by_timer: bool) {
        let functions = sample.kernel.iter();
        let at = attribute(functions.map(|at| self.kernel.find(*at)), by_timer);
        let name = self.names.entry(sample.pid).or_insert_with(|| {
            let path = format!("/proc/{}/comm", sample.pid);
            let name = self.numbered.then(|| fs::read_to_string(path).ok());
            process_name(&name.flatten().unwrap_or_else(|| sample.name.clone()))
        });
        let first = sample.kernel.first();
        self.interval.add(&Counted {
            cpu: sample.cpu,
            pid: sample.pid,
            name,
            at,
            function: first.map(|at| self.kernel.find(*at).map_or("(unknown)", |s| &s.name)),
        });
        if let Some(stacks) = &mut self.stacks
            && at.phase != Phase::Idle
        {
            stacks.add(&sample, name, at.component, &self.kernel);
        }
    }

    /// The interval that is over, and samples that were lost in it.
    pub fn end_interval(&mut self) -> (Tally, u64) {
        let interval = std::mem::take(&mut self.interval);
        // a process may run another program by now, or its number be another's
        self.names.clear();
        let lost = self.sampler.lost();
        let since = lost - self.lost;
        self.lost = lost;
        (interval, since)
    }

    /// Samples that were lost, so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}
