//! When events are counted: the governor's orders, carried out on the sensor.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use batchwise_bpf::{Reading, Sensor};
use batchwise_core::sense::connection::ServiceKey;
use batchwise_core::sense::governor::{Governor, Meter};
use batchwise_core::sense::tails::{Histogram, Latencies};

use crate::frame::clock::{monotonic_ns, nanos, process_cpu};

/// A sensor that keeps its budget.
pub struct Counting {
    sensor: Sensor,
    governor: Governor,
    /// When the governor wants to be asked, ns of the monotonic clock.
    due: u64,
    /// Since when `spent` adds up, but for pauses, and for how long it did before the last one.
    since: Instant,
    before: Duration,
}

pub type ByService<T> = BTreeMap<ServiceKey, T>;

/// Latencies of single requests.
pub type Histograms = ByService<Histogram>;

/// What was counted, and when.
pub struct Counted {
    pub reading: Reading,
    pub epoch: u32,
    /// Its epoch's beginning, and its end or this moment, ns of the monotonic clock.
    pub window: (u64, u64),
}

impl Counting {
    /// Begins to count. `budget` is a share of one CPU, `None` for no limit.
    pub fn begin(
        mut sensor: Sensor,
        budget: Option<f64>,
        interval: Duration,
    ) -> anyhow::Result<Self> {
        let prices = sensor.prices()?;
        let mut counting = Self {
            sensor,
            governor: Governor::new(budget, prices, nanos(interval), monotonic_ns()),
            due: 0,
            since: Instant::now(),
            before: Duration::ZERO,
        };
        counting.step()?;
        Ok(counting)
    }

    /// What counts.
    pub fn sensor(&self) -> &Sensor {
        &self.sensor
    }

    /// Until the governor wants to be asked.
    pub fn due(&self) -> Duration {
        Duration::from_nanos(self.due.saturating_sub(monotonic_ns()))
    }

    /// Asks the governor, if it is time, and obeys; what was counted in a window that ended.
    pub fn step(&mut self) -> anyhow::Result<Option<Counted>> {
        let called = self
            .sensor
            .called()?
            .is_some_and(|time| self.governor.follow(monotonic_ns(), nanos(time)));
        if !called && !self.due().is_zero() {
            return Ok(None);
        }
        let order = self.governor.ask(meter(&self.sensor)?);
        self.due = order.again;
        match (order.count, self.sensor.is_counting()) {
            (true, false) => self.sensor.begin()?,
            (false, true) => return self.end().map(Some),
            _ => {}
        }
        if order.count {
            let left = self.governor.remaining(monotonic_ns());
            self.sensor.announce(Duration::from_nanos(left));
        }
        Ok(None)
    }

    /// Readable when a peer's window begins, which a step may follow.
    pub fn doorbell(&self) -> anyhow::Result<OwnedFd> {
        self.sensor.doorbell().context("listening for peers")
    }

    fn end(&mut self) -> anyhow::Result<Counted> {
        self.sensor.freeze();
        let counted = self.read()?;
        self.sensor.detach();
        Ok(counted)
    }

    /// What was counted so far in the window that goes on.
    pub fn look(&mut self) -> anyhow::Result<Option<Counted>> {
        match self.sensor.is_counting() {
            true => self.read().map(Some),
            false => Ok(None),
        }
    }

    fn read(&mut self) -> anyhow::Result<Counted> {
        let reading = self.sensor.read()?;
        Ok(Counted {
            reading,
            epoch: self.sensor.epoch(),
            window: self.sensor.window(),
        })
    }

    /// The latencies of each service's requests since this was asked last.
    pub fn tails(&mut self) -> anyhow::Result<ByService<Latencies>> {
        Ok(self.sensor.tails()?.into_iter().collect())
    }

    /// What sensing has cost since this was asked last, as a share of one CPU.
    pub fn cost(&mut self) -> anyhow::Result<f64> {
        self.governor.meter(meter(&self.sensor)?);
        let since = std::mem::replace(&mut self.since, Instant::now());
        let time = std::mem::take(&mut self.before) + since.elapsed();
        Ok(self.governor.take_spent() / nanos(time).max(1) as f64)
    }

    /// Counts nothing until [`Self::resume`].
    pub fn pause(&mut self) -> anyhow::Result<Option<Counted>> {
        let counted = match self.sensor.is_counting() {
            true => Some(self.end()?),
            false => None,
        };
        self.governor.meter(meter(&self.sensor)?);
        self.before += self.since.elapsed();
        Ok(counted)
    }

    /// Goes on after a pause, which is no time to save in.
    pub fn resume(&mut self) -> anyhow::Result<()> {
        self.governor.restart();
        self.since = Instant::now();
        self.due = 0;
        self.step().map(drop)
    }
}

fn meter(sensor: &Sensor) -> anyhow::Result<Meter> {
    let used = process_cpu().context("reading the clock")?;
    Ok(Meter {
        at: monotonic_ns(),
        cpu: nanos(used),
        runs: sensor.runs(),
    })
}
