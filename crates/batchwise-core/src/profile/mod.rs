//! Where the CPU time of the network stack goes: which component of the kernel a sampled stack belongs to.
//! From *Understanding Host Network Stack Overheads* (Cai, Chaudhary, Vuppalapati, Hwang, Agarwal), §2.2,
//! whose authors labelled the functions of one kernel by hand. Here a function is its source file's
//! ([`functions`]), and the file its directory's component ([`rules`]).

mod functions;
mod kernel;
pub mod report;
mod rules;
mod stack;
mod tally;

pub use functions::Functions;
pub use kernel::{Kernel, Symbol};
pub use rules::{Class, of_function, of_path};
pub use stack::{Attributed, attribute};
pub use tally::{Counted, Tally};

use serde::{Deserialize, Serialize};

/// What CPU time is spent for. The first seven are the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    /// Bytes between application and kernel.
    Copy,
    /// TCP, UDP, IP, sockets, netfilter.
    TcpIp,
    /// Devices, drivers, queueing disciplines, NAPI, GRO, GSO.
    Device,
    /// Building, splitting and releasing packets' buffers.
    Skb,
    /// Pages and slabs.
    Memory,
    /// Taking and releasing locks, and waiting for them.
    Lock,
    /// The scheduler: wake-ups, switches.
    Scheduling,
    /// The rest of the kernel: entry, interrupts, timers, files, BPF.
    Other,
    /// User space.
    Application,
    /// Samples at the instruction that turns interrupts on again: the time before it, whose ever it was. Only
    /// where the clock is a timer's interrupt, not the processor's counter.
    Masked,
    /// Kernel functions of which nothing is known.
    Unclassified,
}

impl Component {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 11] = [
        Self::Copy,
        Self::TcpIp,
        Self::Device,
        Self::Skb,
        Self::Memory,
        Self::Lock,
        Self::Scheduling,
        Self::Other,
        Self::Application,
        Self::Masked,
        Self::Unclassified,
    ];

    /// For people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Copy => "data copy",
            Self::TcpIp => "TCP/IP",
            Self::Device => "device",
            Self::Skb => "skb",
            Self::Memory => "memory",
            Self::Lock => "locks",
            Self::Scheduling => "scheduling",
            Self::Other => "other kernel",
            Self::Application => "application",
            Self::Masked => "interrupts off",
            Self::Unclassified => "unclassified",
        }
    }

    /// Red, green, blue: told apart also by who does not see red and green.
    pub fn colour(self) -> [u8; 3] {
        match self {
            Self::Copy => [213, 94, 0],
            Self::TcpIp => [0, 114, 178],
            Self::Device => [0, 158, 115],
            Self::Skb => [86, 180, 233],
            Self::Memory => [204, 121, 167],
            Self::Lock => [240, 228, 66],
            Self::Scheduling => [230, 159, 0],
            Self::Other => [170, 170, 190],
            Self::Application => [150, 200, 120],
            Self::Masked => [90, 90, 90],
            Self::Unclassified => [220, 50, 50],
        }
    }
}

/// In which way the CPU came to what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// In user space.
    User,
    /// For a system call of the process.
    SystemCall,
    /// In a softirq, for whoever's packets there are.
    SoftIrq,
    /// In a hard interrupt, or at its end.
    HardIrq,
    /// A fault of the process.
    Fault,
    /// A thread of the kernel.
    Thread,
    /// Nothing to do.
    Idle,
}

impl Phase {
    /// For people.
    pub fn label(self) -> &'static str {
        match self {
            Self::User => "user space",
            Self::SystemCall => "system calls",
            Self::SoftIrq => "softirq",
            Self::HardIrq => "interrupts",
            Self::Fault => "faults",
            Self::Thread => "kernel threads",
            Self::Idle => "idle",
        }
    }
}
