//! The loader of the programs that admit bursts to a router's queue: before one of the kernel's, or in one of
//! our own.

use std::mem::take;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use batchwise_core::burst::Rules;
use batchwise_core::burst::mark::CodePoints;
use batchwise_core::passive::address;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags};

use crate::Error;
use crate::admit_skel::{AdmitSkel, AdmitSkelBuilder, types};
use crate::attach::interface::{Attachment, Interface, Tc};
use crate::features::{self, Machine, OWN_QUEUE, Subcommand};
use crate::flows::events::hash_keys;
use crate::object::{holder, rodata};
use crate::plain::{Plain, read};
use crate::sense::monotonic_ns;

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
pub const OWN_KIND: &str = "bwb-";

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
    /// Packets with a mark that was not heard, which were let in: the source has used up its credit, or
    /// there is no place to keep the burst.
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

/// The programs, where they were brought to until this is dropped.
pub struct Admitter {
    // before the programs: what is attached goes first
    attached: Option<Attachment>,
    registered: Option<Link>,
    kind: String,
    pub(crate) skel: AdmitSkel<'static>,
}

impl Admitter {
    /// Loads the program and attaches it before this interface's queue.
    ///
    /// # Errors
    /// When the interface or the kernel does not allow it; each says the remedy.
    pub fn attach(interface: &str, bottleneck: &Bottleneck) -> Result<Self, Error> {
        let interface = Interface::find(interface)?;
        let mut admitter = Self::load(bottleneck, None)?;
        admitter.attached = Some(interface.tc(admitter.program(), Tc::Egress)?);
        Ok(admitter)
    }

    /// Registers a queue of our own, which one interface can be given by its kind. While this lives, and as long
    /// behind that as the interface has it.
    ///
    /// # Errors
    /// When the kernel does not allow it; each says the remedy.
    pub fn register(bottleneck: &Bottleneck, leave: Leave) -> Result<Self, Error> {
        if !Machine::look().has(OWN_QUEUE) {
            return Err(Error::Refused(
                "the kernel takes no queue in BPF: use Linux 6.16 or newer, built with CONFIG_NET_SCH_BPF=y, or leave \
                 --own-queue out"
                    .into(),
            ));
        }
        let mut admitter = Self::load(bottleneck, Some(leave))?;
        let link = admitter.skel.maps.own_queue.attach_struct_ops();
        admitter.registered = Some(link.map_err(Error::bpf("registering the queue"))?);
        Ok(admitter)
    }

    /// Loads the programs and brings them nowhere.
    pub fn load(bottleneck: &Bottleneck, own: Option<Leave>) -> Result<Self, Error> {
        features::require(&Machine::look(), Subcommand::Burst)?;
        let mut open = AdmitSkelBuilder::default()
            .open(holder())
            .map_err(Error::bpf("opening the BPF object"))?;
        let creating = Error::bpf("configuring the BPF programs");
        let maps = &mut open.maps;
        let made = maps.line.set_autocreate(own.is_some());
        let made = made.and_then(|()| maps.own_queue.set_autocreate(own.is_some()));
        made.map_err(creating)?;
        open.progs.bw_admit.set_autoload(own.is_none());
        let ro = rodata(open.maps.rodata_data.as_deref_mut())?;
        ro.rules = rules(&Rules::new(bottleneck.limit, bottleneck.rate));
        ro.hash_keys = hash_keys();
        ro.packet_bytes = bottleneck.packet_bytes.unwrap_or(0);
        ro.low = bottleneck.points.low();
        ro.border = bottleneck.border;
        ro.paced = own == Some(Leave::Paced);
        let kind = format!("{OWN_KIND}{:08x}", hash_keys()[0] as u32);
        let id = &mut open.struct_ops.own_queue_mut().id;
        for (to, from) in id.iter_mut().zip(kind.bytes()) {
            *to = from.cast_signed();
        }
        let skel = open.load();
        Ok(Self {
            attached: None,
            registered: None,
            kind,
            skel: skel.map_err(Error::bpf("loading the BPF programs"))?,
        })
    }

    /// What the kernel calls the queue that was registered.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The program, for tests.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.skel.progs.bw_admit.as_fd()
    }

    /// Whether the program before the queue is still where it was attached: interfaces go.
    pub fn is_attached(&self) -> bool {
        let at = self.attached.as_ref();
        at.is_none_or(|attached| attached.ifindex().is_some())
    }

    /// What was decided so far.
    pub fn counts(&self) -> Result<Counts, Error> {
        let reading = "reading the counters";
        let map = &self.skel.maps.queue;
        let queue = map.lookup(&0u32.to_ne_bytes(), MapFlags::LOCK);
        let queue = queue.map_err(Error::bpf(reading))?;
        let queue = queue.and_then(|bytes| read::<types::bw_queue>(&bytes));
        let queue = queue.ok_or(Error::Io {
            doing: reading,
            source: std::io::ErrorKind::InvalidData.into(),
        })?;
        let rodata = self.skel.maps.rodata_data;
        let bss = self.skel.maps.bss_data.as_deref();
        let epoch_shift = rodata.map_or(0, |ro| ro.rules.epoch_shift);
        let epoch = (monotonic_ns() >> epoch_shift).max(queue.reserved.epoch);
        let flows = bss.into_iter().flat_map(|bss| &bss.flows);
        // what nobody has looked at since is counted when its place is taken
        let ended = |flow: &&types::bw_flow| {
            let lease = &flow.lease;
            lease.left > 0 && lease.refused == 0 && lease.epoch < epoch
        };
        let counts = &queue.counts;
        Ok(Counts {
            bursts_admitted: counts.admitted,
            bursts_refused: counts.refused,
            promised: counts.promised,
            last: counts.last,
            denied: counts.denied,
            ignored: counts.ignored,
            overflowed: counts.overflowed,
            unmarked: counts.taken,
            unmarked_dropped: counts.full,
            leases_lost: counts.lost + flows.filter(ended).count() as u64,
            lost_bytes: counts.lost_bytes + u64::from(ended_bytes(&queue.reserved, epoch)),
            reserved_bytes: (queue.reserved.bytes - ended_bytes(&queue.reserved, epoch)).into(),
            own: bss.map_or(0, |bss| bss.own),
            unreadable: bss.map_or(0, |bss| bss.unreadable),
            cleared: bss.map_or(0, |bss| bss.cleared),
            sources: self.known().count() as u64,
        })
    }

    /// Packets that a queue of our own dropped as the kernel had no memory for their places.
    pub fn starved(&self) -> u64 {
        let bss = self.skel.maps.bss_data.as_deref();
        bss.map_or(0, |bss| bss.starved)
    }

    /// The longest that a packet has found the queue since the last call, bytes.
    pub fn take_highest(&mut self) -> u32 {
        let bss = self.skel.maps.bss_data.as_deref_mut();
        bss.map_or(0, |bss| take(&mut bss.highest))
    }

    /// The sources that are known.
    pub fn sources(&self) -> Vec<Source> {
        let source = |source: &types::bw_source| Source {
            address: address(source.addr),
            admitted: source.admitted,
            refused: source.refused,
            ignored: source.ignored,
            dropped: source.dropped,
        };
        self.known().map(source).collect()
    }

    fn known(&self) -> impl Iterator<Item = &types::bw_source> {
        let bss = self.skel.maps.bss_data.as_deref();
        let all = bss.into_iter().flat_map(|bss| &bss.sources);
        all.filter(|source| source.addr != [0; 16])
    }
}

/// What was promised until an epoch that has ended, and that no packet has come behind.
fn ended_bytes(reserved: &types::bw_burst_reserved, epoch: u64) -> u32 {
    let epochs = reserved.until.len() as u64;
    let ended = reserved.epoch..epoch.min(reserved.epoch + epochs);
    ended.map(|e| reserved.until[(e % epochs) as usize]).sum()
}

fn rules(rules: &Rules) -> types::bw_burst_rules {
    types::bw_burst_rules {
        send_time: rules.send_time,
        refill_time: rules.refill_time,
        limit: rules.limit,
        source_bytes: rules.source_bytes,
        epoch_shift: rules.epoch_shift,
        pad: 0,
    }
}

impl Plain for types::bw_queue {}
