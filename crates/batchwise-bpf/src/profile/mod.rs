//! The sampler's loader: a clock for each CPU, and the stacks that it finds.

use std::collections::BTreeMap;
use std::fs;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, RingBuffer};
use nix::libc;

pub use batchwise_core::profile::report::Clock;

use crate::Error;
use crate::attach::cgroup::Cgroup;
use crate::attach::clock::{best_clock, open_clock};
use crate::features::{self, CLOCK_REMEDY, Machine, Subcommand};
use crate::object::{self, ring, rodata};
use crate::plain::read;
use crate::profile_skel::{ProfileSkel, ProfileSkelBuilder, types};

/// What to sample.
#[derive(Clone, Debug)]
pub struct Config {
    /// Samples a second and CPU.
    pub hz: u32,
    /// These CPUs; none: all that are online, also those that come.
    pub cpus: Vec<u32>,
    /// These processes only, which may change: [`Sampler::set_pids`].
    pub only_pids: bool,
    /// What runs in this directory of the cgroup v2 hierarchy and below it.
    pub cgroup: Option<PathBuf>,
    /// With stacks of user space, which cost a third more.
    pub user_stacks: bool,
}

/// What a CPU did at a tick.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its process. 0: none.
    pub pid: u32,
    /// Which CPU.
    pub cpu: u32,
    /// Of the thread.
    pub name: String,
    /// Addresses in the kernel, the innermost first; none: it was in user space.
    pub kernel: Vec<u64>,
    /// Addresses in user space.
    pub user: Vec<u64>,
}

/// Bytes of samples for a CPU that may wait until they are taken: a second's at 997 Hz.
const ROOM: u32 = 1 << 21;
/// … and of all CPUs: it is mapped twice, and counts so.
const MOST_ROOM: u32 = 1 << 22;
/// Samples are taken so often …
const SELDOM: Duration = Duration::from_millis(200);
/// … or more often where the room is filled sooner; but not more often than this.
const OFTEN: Duration = Duration::from_millis(10);

/// Samples from its start until it is dropped.
pub struct Sampler {
    // before the programs: what is attached goes first
    links: BTreeMap<u32, Link>,
    samples: Arc<Mutex<Vec<Sample>>>,
    ring: RingBuffer<'static>,
    skel: ProfileSkel<'static>,
    clock: Clock,
    /// How much of it passes in a second.
    speed: f64,
    cpus: Vec<u32>,
    /// Only these are wanted, if there are any.
    only: Vec<u32>,
    hz: u32,
}

impl Sampler {
    /// Loads the program, and attaches it nowhere.
    ///
    /// # Errors
    /// When the kernel does not allow it, or a CPU or cgroup is not there.
    pub fn load(config: &Config) -> Result<Self, Error> {
        let online = online_cpus()?;
        if let Some(&cpu) = config.cpus.iter().find(|cpu| !online.contains(cpu)) {
            return Err(Error::NoCpu { cpu, online });
        }
        let cpus = match config.cpus.is_empty() {
            true => online,
            false => config.cpus.clone(),
        };
        let skel = load(config, cpus.len() as u32)?;
        let (clock, speed) = best_clock().map_err(|error| match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Error::NoSampling {
                remedy: CLOCK_REMEDY,
            },
            _ => Error::io("opening a CPU's clock")(error),
        })?;
        let samples = Arc::default();
        let ring = ring(
            &skel.maps.samples,
            &samples,
            |all: &mut Vec<Sample>, bytes| {
                all.extend(read::<types::profile_sample>(bytes).map(|sample| Sample::of(&sample)));
            },
        )?;
        Ok(Self {
            links: BTreeMap::new(),
            samples,
            ring,
            skel,
            clock,
            speed,
            cpus,
            only: config.cpus.clone(),
            hz: config.hz,
        })
    }

    /// Begins to sample.
    pub fn start(&mut self) -> Result<(), Error> {
        for cpu in self.cpus.clone() {
            self.attach(cpu)?;
        }
        Ok(())
    }

    fn attach(&mut self, cpu: u32) -> Result<(), Error> {
        let clock = open_clock(self.clock, cpu, period(cpu, self.hz, self.speed));
        let clock = clock.map_err(Error::io("opening a CPU's clock"))?;
        let program = &self.skel.progs.profile_tick;
        let link = program.attach_perf_event(clock.as_raw_fd());
        let link = link.map_err(Error::bpf("attaching to a CPU's clock"))?;
        // the link closes it
        std::mem::forget(clock);
        self.links.insert(cpu, link);
        Ok(())
    }

    /// A clock stops for good when its CPU is taken away: one that comes back gets another, and one that is new its first.
    fn follow_cpus(&mut self) -> Result<(), Error> {
        let is_wanted = |cpu: &u32| self.only.is_empty() || self.only.contains(cpu);
        let mut online = online_cpus()?;
        online.retain(is_wanted);
        if online == self.cpus {
            return Ok(());
        }
        self.links.retain(|cpu, _| online.contains(cpu));
        for cpu in online {
            if !self.links.contains_key(&cpu) {
                // it may be gone again: `cpus` says which are sampled, and the next look tries once more
                let _ = self.attach(cpu);
            }
        }
        self.cpus = self.links.keys().copied().collect();
        Ok(())
    }

    /// How often to take samples: when half of the room is full.
    pub fn look_every(&self) -> Duration {
        look_every(self.cpus.len() as u32, self.hz)
    }

    /// What ticks.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The CPUs that are sampled.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// From now on these are sampled, if the [`Config`] said only some are.
    pub fn set_pids(&self, pids: &[u32]) -> Result<(), Error> {
        let map = &self.skel.maps.pids;
        let old: Vec<_> = map.keys().collect();
        let setting = Error::bpf("saying which processes are sampled");
        let set = || {
            for pid in pids {
                map.update(&pid.to_ne_bytes(), &[1], MapFlags::ANY)?;
            }
            for key in old {
                if !pids.iter().any(|pid| pid.to_ne_bytes() == *key) {
                    map.delete(&key)?;
                }
            }
            Ok(())
        };
        set().map_err(setting)
    }

    /// The samples since the last call. CPUs that have come online since are sampled from now on.
    pub fn take(&mut self) -> Result<Vec<Sample>, Error> {
        self.follow_cpus()?;
        let consumed = self.ring.consume();
        consumed.map_err(Error::bpf("reading samples"))?;
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut samples))
    }

    /// Samples that found no room, so far.
    pub fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_deref().map_or(0, |bss| bss.lost)
    }
}

fn load(config: &Config, cpus: u32) -> Result<ProfileSkel<'static>, Error> {
    features::require(&Machine::look(), Subcommand::Profile)?;
    object::load::<ProfileSkelBuilder>(|open| {
        let resized = open.maps.samples.set_max_entries(room(cpus));
        resized.map_err(Error::bpf("sizing the ring buffer"))?;
        let data = rodata(open.maps.rodata_data.as_deref_mut())?;
        data.only_pids = config.only_pids;
        data.user_stacks = config.user_stacks;
        if let Some(dir) = &config.cgroup {
            let cgroup = Cgroup::open(dir)?;
            (data.cgroup, data.cgroup_level) = (cgroup.id, cgroup.level as i32);
        }
        Ok(())
    })
}

fn room(cpus: u32) -> u32 {
    cpus.saturating_mul(ROOM).min(MOST_ROOM).next_power_of_two()
}

fn look_every(cpus: u32, hz: u32) -> Duration {
    let a_second = f64::from(cpus) * f64::from(hz) * size_of::<types::profile_sample>() as f64;
    let until_half = f64::from(room(cpus)) / 2.0 / a_second.max(1.0);
    Duration::from_secs_f64(until_half).clamp(OFTEN, SELDOM)
}

/// Loads the program as for one CPU, and attaches it nowhere.
pub(crate) fn load_alone() -> Result<ProfileSkel<'static>, Error> {
    let config = Config {
        hz: 1,
        cpus: Vec::new(),
        only_pids: true,
        cgroup: None,
        user_stacks: true,
    };
    load(&config, 1)
}

/// Clocks of different CPUs tick at periods that differ by multiples of this, ns …
const APART: i64 = 1_000;
/// … from as many below the one that was asked for to as many above it.
const MOST_APART: i64 = 16;

/// How much of a clock of this speed passes between two ticks. With the same period everywhere a CPU would always be
/// sampled when another one is, at the same distance: a receiver whenever its sender has just been held up. Where both keep
/// their distance, a busy share of 0.45 was sampled as anything from 0.32 to 0.53.
fn period(cpu: u32, hz: u32, speed: f64) -> u64 {
    let period = 1_000_000_000 / i64::from(hz);
    // 0, 1, -1, 2, -2, …
    let place = (i64::from(cpu) % (2 * MOST_APART + 1) + 1) / 2;
    let place = if cpu.is_multiple_of(2) { -place } else { place };
    // a high rate has no room for as much
    let ns = period + place * APART.min(period / 1_000);
    (ns as f64 * speed / 1e9) as u64
}

/// CPUs that are online.
pub fn online_cpus() -> Result<Vec<u32>, Error> {
    let reading = Error::io("reading which CPUs are online");
    let text = fs::read_to_string("/sys/devices/system/cpu/online").map_err(reading)?;
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    Ok(ranges.flatten().collect())
}

impl Sample {
    fn of(sample: &types::profile_sample) -> Self {
        let stack = |addresses: &[u64], bytes: i32| {
            let count = usize::try_from(bytes).unwrap_or(0) / size_of::<u64>();
            addresses[..count.min(addresses.len())].to_vec()
        };
        let name: Vec<u8> = sample
            .name
            .iter()
            .map(|c| *c as u8)
            .take_while(|c| *c != 0)
            .collect();
        Self {
            pid: sample.pid,
            cpu: sample.cpu,
            name: String::from_utf8_lossy(&name).into_owned(),
            kernel: stack(&sample.kernel, sample.kernel_bytes),
            user: stack(&sample.user, sample.user_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_cpus_and_high_rates_get_no_more_room_but_are_looked_at_more_often() {
        assert_eq!(look_every(2, 997), SELDOM);
        assert!(look_every(2, 9973) < SELDOM);
        assert!((OFTEN..SELDOM).contains(&look_every(64, 997)));
        assert_eq!(room(2), room(256));
    }

    #[test]
    fn periods_are_fixed_and_differ_from_cpu_to_cpu() {
        assert_eq!(period(0, 1_000, 1e9), 1_000_000);
        assert_eq!(period(1, 1_000, 3e9), 3_003_000);
        assert_eq!(period(2, 1_000, 3e9), 2_997_000);
        let (clock, speed) = best_clock().expect("a clock");
        assert!(speed >= 1e6, "{clock:?}: {speed}");
    }
}
