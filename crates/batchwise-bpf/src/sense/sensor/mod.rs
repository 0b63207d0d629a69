//! The sensor: loads and attaches the programs that count what TCP sockets do, and reads what they count.

mod counting;
mod prices;
mod shared;
mod tails;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use batchwise_core::sense::connection::{Connection, Reading};
use libbpf_rs::{Link, RingBuffer};

use super::config::Config;
use super::extension::{Extension, Loaded};
use super::record::{Dump, parse_closed};
use crate::Error;
use crate::attach::cgroup::{self, Cgroup};
use crate::attach::listeners::{self, Listener};
use crate::attach::{netns, walk};
use crate::features::{self, LATE_CALLBACKS, Machine, SendHook, Subcommand};
use crate::object::{self, ring, rodata, skipped_runs};
use crate::plain::read;
use crate::sense_skel::{SenseSkel, SenseSkelBuilder, types};
use crate::time::{monotonic_ns, require_initial_time_ns};
use prices::Bench;
use shared::{Shared, Tally};
pub(super) use shared::{load, store};
use tails::Before;

/// The attached programs.
pub struct Sensor {
    pub(super) skel: SenseSkel<'static>,
    pub(super) shared: Shared,
    /// Reads the counters of all connections.
    dump: Link,
    /// See [`Config::brief`].
    brief: bool,
    /// Since the start, or since an event was lost.
    readings: u32,
    lost: u64,
    closed: Arc<Mutex<Vec<Connection>>>,
    closed_ring: RingBuffer<'static>,
    doorbell: RingBuffer<'static>,
    /// Until when the last peer that rang counts, ns, CLOCK_MONOTONIC; 0: nobody rang.
    calls: Arc<Mutex<u64>>,
    send: SendHook,
    bench: Option<Bench>,
    before: Before,
    /// What sees connections begin and end is attached while nothing is counted, too.
    state_stays: bool,
    /// The programs that are attached while events are counted.
    counting: Vec<Link>,
    /// They find the connections that are already there.
    walks: Vec<Link>,
    cgroup: Option<Cgroup>,
    /// Missed beginnings of connections that were looked for.
    looked_for: AtomicU64,
    warned: AtomicBool,
    /// When other programs were last looked for.
    pub(super) looked: Option<Instant>,
    _links: Vec<Link>,
}

const STATE: &str = "attaching to inet_sock_set_state";

/// One reading of so many mentions every connection. To mention 10,000 idle ones took more of the agent than all else.
const WHOLE_EVERY: u32 = 10;
/// So many at the beginning do, and after an event was lost: the tracker then knows who is gone.
const WHOLE: u32 = 4;

/// How often a dump is repeated for records that were being written while they were read.
const DUMP_TRIES: usize = 4;

impl Sensor {
    /// Loads the programs, attaches those of an extension, and adopts the connections that are already
    /// open. Gives what acts through the extension, too. Nothing is counted before [`Self::begin`].
    ///
    /// # Errors
    /// When the kernel lacks a tracepoint, the cgroup is none, or loading is not allowed; each says the
    /// remedy.
    pub fn open<E: Extension>(
        config: &Config,
        extension: &E,
    ) -> Result<(Self, E::Attached), Error> {
        require_initial_time_ns()?;
        let machine = Machine::look();
        features::require(
            &machine,
            extension.subcommand().unwrap_or(Subcommand::Watch),
        )?;
        let cgroup = match &config.cgroup {
            Some(path) => Some(Cgroup::open(path)?),
            None if extension.needs_cgroup() => Some(Cgroup::open(&cgroup::mount_point()?)?),
            None => None,
        };
        let bench = Bench::new().ok();
        let port = bench.as_ref().and_then(|bench| bench.port().ok());
        let (mut skel, send) = load(config, extension, cgroup.as_ref(), &machine, port)?;
        if !skel.progs.sense_dump.autoload() && !machine.all_processes {
            tracing::warn!(
                "only sockets of this PID namespace's processes are seen: run in the machine's (--pid=host)"
            );
        }

        let progs = &skel.progs;
        let adopt = progs.sense_adopt.attach();
        let mut loaded = Loaded {
            skel: &skel,
            config,
            cgroup: match cgroup.as_ref().filter(|_| extension.needs_cgroup()) {
                Some(c) => Some(File::open(&c.path).map_err(Error::io("opening the cgroup"))?),
                None => None,
            },
            links: Vec::new(),
            walks: vec![adopt.map_err(Error::bpf("creating iter/tcp"))?],
        };
        // what an extension keeps of a connection it learns at the beginning
        let state_stays = extension.needs_cgroup();
        if state_stays {
            let state = progs.sense_state.attach().map_err(Error::bpf(STATE))?;
            loaded.links.push(state);
        }
        let attached = extension.attach(&mut loaded)?;
        let Loaded { links, walks, .. } = loaded;
        let dump = match progs.sense_dump.autoload() {
            true => progs.sense_dump.attach_iter(skel.maps.endpoints.as_fd()),
            false => progs.sense_dump_files.attach(),
        };
        let dump = dump.map_err(Error::bpf("creating the iterator of connections"))?;
        let closed = Arc::<Mutex<Vec<_>>>::default();
        let closed_ring = ring(&skel.maps.closed, &closed, |closed, bytes| {
            closed.extend(parse_closed(bytes));
        })?;
        let calls = Arc::<Mutex<u64>>::default();
        let doorbell = ring(&skel.maps.doorbell, &calls, |calls, bytes| {
            *calls = (*calls).max(read(bytes).unwrap_or(0));
        })?;
        let shared = Shared::new(skel.maps.bss_data.take())?;
        let sensor = Self {
            skel,
            shared,
            dump,
            brief: config.brief,
            readings: 0,
            lost: 0,
            closed,
            closed_ring,
            doorbell,
            calls,
            send,
            bench,
            before: Before::default(),
            state_stays,
            counting: Vec::new(),
            walks,
            cgroup: cgroup.filter(|_| config.cgroup.is_some()),
            looked_for: AtomicU64::new(0),
            warned: AtomicBool::new(false),
            looked: None,
            _links: links,
        };
        sensor.adopt(&mut || {})?;
        Ok((sensor, attached))
    }

    /// Reads all counters. Between two events of a connection its record stands still, so a record
    /// that is written while it is copied is rare; it is read again.
    ///
    /// # Errors
    /// When the cgroup that was given is gone: nothing would be seen any more.
    pub fn read(&mut self) -> Result<Reading, Error> {
        self.read_long(&mut || {})
    }

    /// The same; `alive` is called again and again while it takes long.
    pub fn read_long(&mut self, alive: &mut dyn FnMut()) -> Result<Reading, Error> {
        self.cgroup.as_ref().map_or(Ok(()), Cgroup::check)?;
        let lost = load!(self.shared, lost_events);
        if std::mem::replace(&mut self.lost, lost) != lost {
            self.readings = 0; // connections may have closed of which nobody told
        }
        let news_only =
            self.brief && self.readings >= WHOLE && !self.readings.is_multiple_of(WHOLE_EVERY);
        self.readings = self.readings.wrapping_add(1);
        let brief = match (self.brief, news_only) {
            (false, _) => types::sense_brief::SENSE_BRIEF_NOT,
            (true, false) => types::sense_brief::SENSE_BRIEF_QUIET,
            (true, true) => types::sense_brief::SENSE_BRIEF_NEWS,
        };
        store!(self.shared, brief, brief.0);
        // closed first: a connection that closes in between is then in neither, and in the next
        self.closed_ring
            .consume()
            .map_err(Error::bpf("reading closed connections"))?;
        self.find_missed(alive)?;
        let mut open = BTreeMap::new();
        let mut quiet = BTreeMap::new();
        let mut torn = Vec::new();
        for _ in 0..DUMP_TRIES {
            let dump = self.walk(alive);
            let dump = dump.map_err(Error::io("reading the connections"))?;
            for c in dump.whole {
                open.entry(c.cookie).or_insert(c);
            }
            for q in dump.quiet {
                quiet.entry(q.cookie).or_insert(q);
            }
            alive();
            torn = dump.torn;
            if torn.is_empty() {
                break;
            }
        }
        // what was told in one dump is quiet in the next
        quiet.retain(|cookie, _| !open.contains_key(cookie));
        let closed = self
            .closed
            .lock()
            .map(|mut c| std::mem::take(&mut *c))
            .unwrap_or_default();
        Ok(Reading {
            at: monotonic_ns(),
            open: open.into_values().collect(),
            quiet: quiet.into_values().collect(),
            news_only,
            torn,
            closed,
            lost_events: load!(self.shared, lost_events),
        })
    }

    /// What a walk over the connections tells, a page at a time.
    fn walk(&mut self, alive: &mut dyn FnMut()) -> io::Result<Dump> {
        let mut dump = Dump::default();
        let shared = &self.shared;
        let (epoch, began) = (load!(shared, epoch), load!(shared, epoch_began));
        let page = shared.page();
        let mut take = || {
            let used = shared.tally(Tally::PageUsed).swap(0, Relaxed) as usize;
            // SAFETY: so long it is, and the program that writes it is done when a read is.
            let bytes = unsafe { slice::from_raw_parts(page.cast(), used.min(page.len())) };
            dump.take(bytes, epoch, began);
            alive();
        };
        walk::each(&mut walk::open(self.dump.as_fd())?, &mut [0], |_| take())?;
        take();
        Ok(dump)
    }

    /// A connection's beginning may be missed: `prog->active` keeps `sense_state` from running twice on a
    /// CPU, when a packet interrupts a system call. Its record may be refused, too:
    /// `sk_storage_charge` holds a socket to net.core.optmem_max, and `bpf_mem_alloc` does not wait
    /// for memory. Such a connection is found later, like one that was there before.
    fn find_missed(&self, alive: &mut dyn FnMut()) -> Result<(), Error> {
        let refused = || load!(self.shared, unrecorded);
        let before = refused();
        let missed = before + skipped_runs(self.skel.progs.sense_state.as_fd());
        if self.looked_for.swap(missed, Relaxed) == missed {
            return Ok(());
        }
        if self.state_stays {
            self.adopt(alive)?; // others become members at their next event
        }
        let left = refused() - before;
        if left > 0 && !self.warned.swap(true, Relaxed) {
            tracing::warn!(
                "{left} connections are not seen: the kernel refuses memory for their counters, {} \
                 bytes for each; is net.core.optmem_max too small?",
                size_of::<types::sense_endpoint>()
            );
        }
        Ok(())
    }

    /// Runs the walks over the sockets that are already there, in every network namespace that the
    /// cgroup's processes live in.
    fn adopt(&self, alive: &mut dyn FnMut()) -> Result<(), Error> {
        for link in &self.walks {
            let walked = walk::run_long(link.as_fd(), alive);
            walked.map_err(Error::io("searching our network namespace"))?;
        }
        for ns in netns::others(self.cgroup.as_ref().map(|c| c.path.as_path())) {
            for link in &self.walks {
                let walk = netns::within(&ns, || walk::open(link.as_fd()));
                if let Err(e) = walk.and_then(|mut walk| walk::to_end(&mut walk, alive)) {
                    // the namespace's last process may just have ended
                    tracing::warn!("a network namespace could not be searched: {e}");
                }
            }
        }
        Ok(())
    }

    /// Who listens, in every network namespace (by its inode) that is searched for connections.
    ///
    /// # Errors
    /// When one of them cannot be asked.
    pub fn listeners(&self) -> Result<Vec<(u32, Listener)>, Error> {
        let own = || {
            Ok((
                netns::inode(&fs::metadata("/proc/self/ns/net")?),
                listeners::all()?,
            ))
        };
        let within = |ns: &File| {
            let inode = netns::inode(&ns.metadata()?);
            Ok((inode, netns::within(ns, listeners::all)?))
        };
        let others = netns::others(self.cgroup.as_ref().map(|c| c.path.as_path()));
        let all = std::iter::once(own()).chain(others.iter().map(within));
        let all: io::Result<Vec<_>> = all.collect();
        let all = all.map_err(Error::io("looking for listeners"))?;
        let each = |(netns, of): (u32, Vec<Listener>)| of.into_iter().map(move |one| (netns, one));
        Ok(all.into_iter().flat_map(each).collect())
    }
}

/// Loads the programs with the first hook for what is sent that this machine takes.
pub(crate) fn load(
    config: &Config,
    extension: &impl Extension,
    cgroup: Option<&Cgroup>,
    machine: &Machine,
    bench: Option<u16>,
) -> Result<(SenseSkel<'static>, SendHook), Error> {
    let mut refused = None;
    let storage = (machine.storage_iterator)();
    for hook in machine.send_hooks() {
        match load_for(hook, storage, config, extension, cgroup, machine, bench) {
            Ok(skel) => return Ok((skel, hook)),
            Err(e) => refused = Some(e),
        }
    }
    // what is required was there: a hook, or no BTF that could tell of one
    Err(refused.unwrap_or(Error::NoBtf))
}

/// A tick of the kernel's clock, µs.
fn jiffy_us() -> u32 {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    (tick.tv_nsec / 1_000) as u32
}

/// With this hook, which can be attached. `storage`: the kernel takes the iterator of members.
fn load_for(
    hook: SendHook,
    storage: bool,
    config: &Config,
    extension: &impl Extension,
    cgroup: Option<&Cgroup>,
    machine: &Machine,
    bench: Option<u16>,
) -> Result<SenseSkel<'static>, Error> {
    let skel = object::load::<SenseSkelBuilder>(|open| {
        let ro = rodata(open.maps.rodata_data.as_deref_mut())?;
        let most = ro.ports.len() - 1; // the last is the bench's
        if config.ports.len() > most {
            return Err(Error::TooMany {
                what: "ports or ranges of ports can be watched",
                given: config.ports.len(),
                most,
            });
        }
        let bench_ports = bench.map(|port| port..=port);
        let ports = config.ports.iter().chain(&bench_ports);
        for (slot, range) in ro.ports.iter_mut().zip(ports.clone()) {
            (slot.first, slot.last) = (*range.start(), *range.end());
        }
        ro.n_ports = ports.count() as u32;
        ro.bench_port = bench.unwrap_or(0);
        if let Some(bss) = open.maps.bss_data.as_deref_mut() {
            bss.paused = 1;
            bss.foreign_sockops = 1; // until that is known
        }
        let ro = rodata(open.maps.rodata_data.as_deref_mut())?;
        ro.units |= config.units.counted;
        ro.advertised_units = config.units.advertised;
        ro.tailing = config.tails;
        ro.jiffy_us = jiffy_us();
        ro.late_send = hook == SendHook::Ended;
        ro.late_callbacks = machine.has(LATE_CALLBACKS);
        if let (Some(_), Some(c)) = (&config.cgroup, cgroup) {
            ro.cgroup_id = c.id;
            ro.cgroup_level = c.level;
        }
        let progs = &mut open.progs;
        progs.sense_send.set_autoload(hook == SendHook::Tracepoint);
        progs.sense_send_entry.set_autoload(hook == SendHook::Entry);
        progs.sense_send_late.set_autoload(hook == SendHook::Ended);
        progs.sense_dump.set_autoload(storage);
        progs.sense_dump_files.set_autoload(!storage);
        extension.configure(open);
        Ok(())
    })?;
    // some kernels load fentry programs and cannot attach them
    drop(hook.attach(&skel)?);
    Ok(skel)
}
