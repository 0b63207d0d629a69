//! The loader of the programs that admit bursts to a router's queue: before one of the kernel's, or in one of
//! our own.

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use batchwise_core::burst::Rules;
use batchwise_core::burst::mark::CodePoints;
use batchwise_core::passive::address;
use libbpf_rs::skel::Skel;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};

use crate::Error;
use crate::admit_skel::{AdmitSkel, AdmitSkelBuilder, types};
use crate::attach::interface::{Attachment, Interface, Tc};
use crate::features::{self, Machine, OWN_QUEUE, Subcommand};
use crate::flows::events::hash_keys;
use crate::object::{load, rodata};
use crate::plain::{Plain, read};
use crate::queue_skel::{QueueSkel, QueueSkelBuilder};
use crate::time::monotonic_ns;

/// A queue, and what is before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bottleneck {
    /// Bytes that it takes.
    pub limit: u32,
    /// Bits a second that leave it.
    pub rate: u64,
    /// Its length is counted in packets, and each counts as so many bytes.
    pub packet_bytes: Option<u32>,
    /// Of marks.
    pub points: CodePoints,
    /// Marks are taken off.
    pub border: bool,
}

/// How packets leave a queue of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// At the bottleneck's rate.
    Paced,
    /// As fast as the device takes them.
    Freely,
}

/// What the kinds of our queues begin with, as `tc qdisc` shows them. A number follows: all agents of a machine
/// register theirs in one place.
pub const OWN_KIND: &str = "bwb_";

/// What was decided, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counts {
    /// Bursts that had room: their first packet was let in.
    pub bursts_admitted: u64,
    /// Bursts that had none: their first packet was dropped.
    pub bursts_refused: u64,
    /// More packets of admitted bursts, which were let in.
    pub promised: u64,
    /// The last packets of refused bursts that were let in: by them senders hear at once what is lost.
    pub last: u64,
    /// More packets of refused bursts, which were dropped.
    pub denied: u64,
    /// Packets with a mark that was not heard, which were let in: the source has used up its credit,
    /// there is no place to keep the burst, or another CPU held the queue for a microsecond.
    pub ignored: u64,
    /// The same, dropped; and packets of admitted bursts that were longer than they said.
    pub overflowed: u64,
    /// Packets without a mark that were let in.
    pub unmarked: u64,
    /// Packets without a mark that were dropped.
    pub unmarked_dropped: u64,
    /// Leases that ended before all of their burst had come.
    pub leases_lost: u64,
    /// Bytes that were reserved and did not come in time.
    pub lost_bytes: u64,
    /// Bytes that are reserved now and have not come.
    pub reserved_bytes: u64,
    /// Packets of this host itself, which always pass.
    pub own: u64,
    /// Packets with a mark whose headers could not be read: treated as if they had none.
    pub unreadable: u64,
    /// With `--border`: marks that were taken off.
    pub cleared: u64,
    /// Sources of marked packets that are known.
    pub sources: u64,
}

impl Counts {
    /// Packets by what became of them, the first of bursts left out.
    pub fn packets(&self) -> [(&'static str, u64); 9] {
        [
            ("promised", self.promised),
            ("last", self.last),
            ("denied", self.denied),
            ("ignored", self.ignored),
            ("overflowed", self.overflowed),
            ("unmarked", self.unmarked),
            ("unmarked_dropped", self.unmarked_dropped),
            ("own", self.own),
            ("unreadable", self.unreadable),
        ]
    }
}

/// A source of marked packets, since it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its address.
    pub address: IpAddr,
    /// Bursts.
    pub admitted: u32,
    /// Bursts.
    pub refused: u32,
    /// Packets whose marks were not heard.
    pub ignored: u32,
    /// Packets with marks that were dropped.
    pub dropped: u32,
}

const READING: &str = "reading the counters";

/// What both objects are told; each has types of its own.
macro_rules! configure {
    ($ro:ident, $module:ident, $rules:ident, $bottleneck:ident) => {
        $ro.rules = crate::$module::types::burst_rules {
            send_time: $rules.send_time,
            refill_time: $rules.refill_time,
            limit: $rules.limit,
            source_bytes: $rules.source_bytes,
            epoch_shift: $rules.epoch_shift,
            pad: 0,
        };
        $ro.hash_keys = hash_keys();
        $ro.packet_bytes = $bottleneck.packet_bytes.unwrap_or(0);
        $ro.low = $bottleneck.points.low();
    };
}

/// The programs, where they were brought to until this is dropped.
pub struct Admitter {
    // before the programs: what is attached goes first
    attached: Option<Attachment>,
    registered: Option<Link>,
    kind: String,
    programs: Programs,
    epoch_shift: u32,
    queue: MapHandle,
    known: MapHandle,
    aside: MapHandle,
    highest: MapHandle,
    /// The most that was told of leases lost, and of their bytes: what is late, and comes after all, stays counted.
    told: [AtomicU64; 2],
}

/// Where bursts are admitted.
enum Programs {
    /// Before a queue of the kernel's.
    Before(AdmitSkel<'static>),
    /// In a queue of our own.
    Own(QueueSkel<'static>),
}

impl Admitter {
    /// Loads the program and attaches it before this interface's queue.
    ///
    /// # Errors
    /// When the interface or the kernel does not allow it; each says the remedy.
    pub fn attach(interface: &str, bottleneck: &Bottleneck) -> Result<Self, Error> {
        let interface = Interface::find(interface)?;
        let mut admitter = Self::load(bottleneck)?;
        admitter.attached = Some(interface.tc_once(admitter.program(), Tc::Egress)?);
        Ok(admitter)
    }

    /// Registers a queue of our own, which one interface can be given by its kind. While this lives, and as long
    /// behind that as the interface has it.
    ///
    /// # Errors
    /// When the kernel does not allow it; each says the remedy.
    pub fn register(bottleneck: &Bottleneck, leave: Leave) -> Result<Self, Error> {
        let mut admitter = Self::load_own(bottleneck, leave)?;
        if let Programs::Own(skel) = &mut admitter.programs {
            let link = skel.maps.own_queue.attach_struct_ops();
            admitter.registered = Some(link.map_err(Error::bpf("registering the queue"))?);
        }
        Ok(admitter)
    }

    /// Loads the program that is before a queue, and attaches it nowhere.
    pub fn load(bottleneck: &Bottleneck) -> Result<Self, Error> {
        features::require(&Machine::look(), Subcommand::Burst)?;
        let rules = Rules::new(bottleneck.limit, bottleneck.rate);
        let skel = load::<AdmitSkelBuilder>(|open| {
            let ro = rodata(open.maps.rodata_data.as_deref_mut())?;
            configure!(ro, admit_skel, rules, bottleneck);
            ro.border = bottleneck.border;
            Ok(())
        })?;
        Self::of(Programs::Before(skel), String::new(), &rules)
    }

    /// Loads the programs of a queue of our own, and registers nothing.
    pub fn load_own(bottleneck: &Bottleneck, leave: Leave) -> Result<Self, Error> {
        let machine = Machine::look();
        features::require(&machine, Subcommand::Burst)?;
        let otherwise = "built with CONFIG_NET_SCH_BPF=y, or leave --own-queue out";
        features::require_name(&machine, Subcommand::Burst, OWN_QUEUE, otherwise)?;
        let rules = Rules::new(bottleneck.limit, bottleneck.rate);
        let kind = format!("{OWN_KIND}{:08x}", hash_keys()[0] as u32);
        let skel = load::<QueueSkelBuilder>(|open| {
            let ro = rodata(open.maps.rodata_data.as_deref_mut())?;
            configure!(ro, queue_skel, rules, bottleneck);
            ro.paced = leave == Leave::Paced;
            let id = &mut open.struct_ops.own_queue_mut().id;
            for (to, from) in id.iter_mut().zip(kind.bytes()) {
                *to = from.cast_signed();
            }
            Ok(())
        })?;
        Self::of(Programs::Own(skel), kind, &rules)
    }

    fn of(programs: Programs, kind: String, rules: &Rules) -> Result<Self, Error> {
        let object = programs.object();
        let map = |name: &str| {
            let map = object.maps().find(|map| map.name() == name);
            let map =
                map.ok_or_else(|| libbpf_rs::Error::from(io::Error::from(ErrorKind::NotFound)));
            let map = map.and_then(|map| MapHandle::try_from(&map));
            map.map_err(Error::bpf("opening a map"))
        };
        Ok(Self {
            attached: None,
            registered: None,
            kind,
            epoch_shift: rules.epoch_shift,
            queue: map(".data.queue")?,
            known: map("known")?,
            aside: map(".data.aside")?,
            highest: map(".data.highest")?,
            told: Default::default(),
            programs,
        })
    }

    /// What the kernel calls the queue that was registered.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    pub(crate) fn object(&self) -> &Object {
        self.programs.object()
    }

    /// The program before a queue, for tests.
    ///
    /// # Panics
    /// Where there is a queue of our own instead.
    pub fn program(&self) -> BorrowedFd<'_> {
        match &self.programs {
            Programs::Before(skel) => skel.progs.burst_admit.as_fd(),
            Programs::Own(_) => panic!("a queue of our own is no program at an interface"),
        }
    }

    /// Whether the program before the queue is still where it was attached: interfaces go.
    pub fn is_attached(&self) -> bool {
        let at = self.attached.as_ref();
        at.is_none_or(|attached| attached.ifindex().is_some())
    }

    /// What was decided so far, and the sources that are known.
    pub fn read(&self) -> Result<(Counts, Vec<Source>), Error> {
        let queue: types::burst_queue = one(&self.queue, MapFlags::ANY)?;
        let aside: types::burst_admit_aside = one(&self.aside, MapFlags::ANY)?;
        let known: Box<types::burst_known> = one(&self.known, MapFlags::ANY).map(Box::new)?;
        let epoch = (monotonic_ns() >> self.epoch_shift).max(queue.reserved.epoch);
        // what nobody has looked at since is counted when its place is taken
        let ended = |lease: &&types::burst_lease| {
            lease.left > 0 && lease.refused == 0 && lease.epoch < epoch
        };
        let lost = known.flows.iter().flat_map(|set| &set.leases).filter(ended);
        let ended = ended_bytes(&queue.reserved, epoch);
        let sources: Vec<_> = known.sources.iter().filter_map(source).collect();
        let counts = &queue.counts;
        // by enum burst_verdict
        let [
            ignored,
            bursts_admitted,
            promised,
            last,
            overflowed,
            bursts_refused,
            denied,
            _,
        ] = counts.packets;
        let counts = Counts {
            bursts_admitted,
            bursts_refused,
            promised,
            last,
            denied,
            ignored: ignored + aside.busy,
            overflowed: overflowed + aside.busy_full,
            unmarked: aside.taken,
            unmarked_dropped: aside.full,
            leases_lost: at_least(&self.told[0], counts.lost + lost.count() as u64),
            lost_bytes: at_least(&self.told[1], counts.lost_bytes + u64::from(ended)),
            reserved_bytes: queue.reserved.bytes.saturating_sub(ended).into(),
            own: aside.own,
            unreadable: aside.unreadable,
            cleared: aside.cleared,
            sources: sources.len() as u64,
        };
        Ok((counts, sources))
    }

    /// Packets that a queue of our own dropped as the kernel had no memory for their places.
    pub fn starved(&self) -> Result<u64, Error> {
        let aside: types::burst_admit_aside = one(&self.aside, MapFlags::ANY)?;
        Ok(aside.starved)
    }

    /// The longest that a packet has found the queue since the last call, bytes.
    pub fn take_highest(&self) -> Result<u32, Error> {
        let highest = one(&self.highest, MapFlags::ANY)?;
        let none = 0u32.to_ne_bytes();
        let done = self.highest.update(&none, &none, MapFlags::ANY);
        done.map_err(Error::bpf(READING)).map(|()| highest)
    }
}

impl Programs {
    fn object(&self) -> &Object {
        match self {
            Self::Before(skel) => skel.object(),
            Self::Own(skel) => skel.object(),
        }
    }
}

/// A counter's value, which does not step back.
fn at_least(told: &AtomicU64, now: u64) -> u64 {
    told.fetch_max(now, Ordering::Relaxed).max(now)
}

/// `None`: its place is empty.
fn source(it: &types::burst_source) -> Option<Source> {
    (it.addr != [0; 16]).then(|| Source {
        address: address(it.addr),
        admitted: it.admitted,
        refused: it.refused,
        ignored: it.ignored,
        dropped: it.dropped,
    })
}

/// The only value of a map.
fn one<T: Plain>(map: &MapHandle, flags: MapFlags) -> Result<T, Error> {
    let value = map.lookup(&0u32.to_ne_bytes(), flags);
    let value = value.map_err(Error::bpf(READING))?;
    value.and_then(|bytes| read(&bytes)).ok_or(Error::Io {
        doing: READING,
        cause: ErrorKind::InvalidData.into(),
    })
}

/// What was promised until an epoch that has ended, and that no packet has come behind.
fn ended_bytes(reserved: &types::burst_reserved, epoch: u64) -> u32 {
    let epochs = reserved.until.len() as u64;
    let ended = reserved.epoch..epoch.min(reserved.epoch + epochs);
    ended.map(|e| reserved.until[(e % epochs) as usize]).sum()
}
