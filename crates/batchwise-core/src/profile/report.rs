//! The lines of JSON of `batchwise profile`. Field names are a contract. Shares are of all samples in which a
//! CPU did something, unless it says otherwise.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Component, Phase};

/// More than this is unknown: no verdict.
pub const MOST_UNCLASSIFIED: f64 = 0.05;

/// What ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// The processor's counter of cycles: also while interrupts are off.
    Cycles,
    /// A timer's interrupt, which waits while interrupts are off.
    Timer,
}

/// What of the machine is sampled: of these CPUs what these processes, or processes at these ports, do, if they are in this
/// cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Only {
    /// Processes with sockets at these ports.
    pub ports: Vec<u16>,
    /// These processes.
    pub pids: Vec<u32>,
    /// What is in this cgroup. null: in any.
    pub cgroup: Option<String>,
    /// These CPUs. Empty: all.
    pub cpus: Vec<u32>,
}

impl Only {
    /// The whole machine.
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// For people: with whom CPUs were busy, and which; empty: with anybody, and all.
    pub fn says(&self) -> String {
        fn list<T: ToString>(one: &str, many: &str, of: &[T]) -> Option<String> {
            let of: Vec<_> = of.iter().map(T::to_string).collect();
            let name = if of.len() == 1 { one } else { many };
            (!of.is_empty()).then(|| alloc::format!("{name} {}", of.join(", ")))
        }
        let processes = [
            list("process", "processes", &self.pids),
            list(
                "processes with sockets at port",
                "processes with sockets at ports",
                &self.ports,
            ),
        ];
        let processes: Vec<_> = processes.into_iter().flatten().collect();
        let mut says = String::new();
        if !processes.is_empty() {
            says += " with ";
            says += &processes.join(" and ");
        }
        if let Some(cgroup) = &self.cgroup {
            says += if says.is_empty() {
                " with what is in "
            } else {
                " in "
            };
            says += cgroup;
        }
        if let Some(cpus) = list("CPU", "CPUs", &self.cpus) {
            says += " on ";
            says += &cpus;
        }
        says
    }
}

/// An interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Line {
    /// Always `profile`.
    pub kind: String,
    /// Its end, ns since the Unix epoch.
    pub ts_ns: u64,
    /// How long it was, ns.
    pub interval_ns: u64,
    /// What ticks.
    pub clock: Clock,
    /// Samples a second and CPU.
    pub hz: u32,
    /// What of the machine was sampled. Everything, if all of it is empty.
    #[serde(default)]
    pub only: Only,
    /// Samples in which a CPU did something.
    pub samples: u64,
    /// Samples in which a CPU did nothing.
    pub idle: u64,
    /// Samples that found no room, and are in none of the numbers.
    pub lost: u64,
    /// CPUs' worth of time that was spent: 1.5 is one CPU and half of another.
    pub cpus_busy: f64,
    /// Every component.
    pub components: Vec<Share>,
    /// The phases that there were.
    pub phases: Vec<PhaseShare>,
    /// Every CPU that was sampled.
    pub cpus: Vec<CpuShare>,
    /// The 20 that took most.
    pub processes: Vec<ProcessShare>,
    /// The kernel's functions, the 20 that took most.
    pub functions: Vec<FunctionShare>,
    /// What went on meanwhile. Absent: it was not counted in this interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
}

/// Of a component.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Share {
    /// Which.
    pub component: Component,
    /// Its samples.
    pub samples: u64,
    /// Its share.
    pub share: f64,
    /// What of it was in softirqs, as a share of all samples.
    pub softirq: f64,
}

/// Of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseShare {
    /// Which.
    pub phase: Phase,
    /// Its share.
    pub share: f64,
}

/// Of a CPU: shares of the interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuShare {
    /// Which.
    pub cpu: u32,
    /// In which it did something.
    pub busy: f64,
    /// In which it worked off a softirq.
    pub softirq: f64,
}

/// Of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessShare {
    /// 0: none.
    pub pid: u32,
    /// Of the thread that was sampled first.
    pub name: String,
    /// In user space, system calls and faults.
    pub share: f64,
    /// In interrupts and softirqs that came while it ran: for whoever's packets.
    pub interrupted: f64,
}

/// Of a function of the kernel, without what it calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FunctionShare {
    /// As in `/proc/kallsyms`.
    pub name: String,
    /// What it was counted as, the first time.
    pub component: Component,
    /// Its share.
    pub share: f64,
}

/// What the machine's network stack did in a part of an interval, in which it was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Traffic {
    /// How long it was counted, ns.
    pub ns: u64,
    /// Buffers that came from devices, after GRO.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets that these were made of.
    pub received_packets: u64,
    /// By size: 17 counts, of less than 4 KiB, less than 8 KiB, …, 64 KiB and more.
    pub received_sizes: Vec<u64>,
    /// Buffers that went to devices, before they were cut into packets.
    pub queued: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Packets that these are cut into.
    pub queued_packets: u64,
    /// As `received_sizes`.
    pub queued_sizes: Vec<u64>,
    /// Segments of TCP that were sent again.
    pub retransmissions: u64,
    /// Threads that were woken.
    pub wakeups: u64,
    /// Calls that send. 0 before Linux 6.3, which does not tell; so are the next three.
    pub sends: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Calls that receive.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
}

impl Traffic {
    fn combine(&mut self, other: &Self, with: fn(u64, u64) -> u64) {
        let sizes = |mine: &mut Vec<u64>, others: &[u64]| {
            mine.resize(mine.len().max(others.len()), 0);
            mine.iter_mut()
                .zip(others)
                .for_each(|(m, o)| *m = with(*m, *o));
        };
        sizes(&mut self.received_sizes, &other.received_sizes);
        sizes(&mut self.queued_sizes, &other.queued_sizes);
        for (mine, other) in [
            (&mut self.ns, other.ns),
            (&mut self.received, other.received),
            (&mut self.received_bytes, other.received_bytes),
            (&mut self.received_packets, other.received_packets),
            (&mut self.queued, other.queued),
            (&mut self.queued_bytes, other.queued_bytes),
            (&mut self.queued_packets, other.queued_packets),
            (&mut self.retransmissions, other.retransmissions),
            (&mut self.wakeups, other.wakeups),
            (&mut self.sends, other.sends),
            (&mut self.sent_bytes, other.sent_bytes),
            (&mut self.reads, other.reads),
            (&mut self.read_bytes, other.read_bytes),
        ] {
            *mine = with(*mine, other);
        }
    }

    /// Both.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, u64::wrapping_add);
    }

    /// What is in this and was not in the earlier one.
    pub fn since(mut self, before: &Self) -> Self {
        self.combine(before, u64::wrapping_sub);
        self
    }

    /// So many a second.
    pub fn rate(&self, count: u64) -> f64 {
        count as f64 * 1e9 / self.ns.max(1) as f64
    }
}

/// When and how it was sampled.
#[derive(Clone, Debug)]
pub struct Sampled<'a> {
    /// The interval's end, ns since the Unix epoch.
    pub ts_ns: u64,
    /// How long it was, ns.
    pub interval_ns: u64,
    /// What ticked.
    pub clock: Clock,
    /// Samples a second and CPU.
    pub hz: u32,
    /// What was sampled.
    pub only: Only,
    /// All CPUs that were.
    pub cpus: &'a [u32],
    /// Samples that found no room.
    pub lost: u64,
}

impl Line {
    /// The share of this component.
    pub fn share(&self, component: Component) -> f64 {
        let found = self.components.iter().find(|s| s.component == component);
        found.map_or(0.0, |share| share.share)
    }

    /// Why nothing follows from the shares; `None`: something does.
    pub fn doubt(&self) -> Option<String> {
        let unknown = self.share(Component::Unclassified);
        (unknown > MOST_UNCLASSIFIED).then(|| {
            alloc::format!(
                "{:.1} % of the samples are in functions of which nothing is known: no verdict",
                unknown * 100.0
            )
        })
    }
}
