//! The loader: opens, configures and attaches the programs, and reads what they count.
//!
//! Everything that it attaches belongs to file descriptors of this process: when the process ends,
//! however it ends, the kernel detaches it all.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use batchwise_core::sense::connection::{Connection, Reading};
use batchwise_core::sense::queue::QueueState;
use batchwise_core::sense::report::Unit;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, RingBuffer, RingBufferBuilder};

use crate::actuator::Actuator;
use crate::cgroup::{self, Cgroup};
use crate::object::holder;
use crate::plain::{Plain, bytes};
use crate::record::{parse_closed, parse_dump};
use crate::sense_skel::{SenseSkel, SenseSkelBuilder, types};
use crate::{Error, netns};

const CALLS: u32 = 1 << types::bw_unit::BW_CALLS.0;
const BYTES: u32 = 1 << types::bw_unit::BW_BYTES.0;
const SEGMENTS: u32 = 1 << types::bw_unit::BW_SEGS.0;

/// Which items are counted, a bit per kind as in `enum bw_unit`, and which the peer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    counted: u32,
    told: u32,
}

impl Units {
    /// What an estimate in each of `units` needs. Send calls need bytes, too: coalesced messages
    /// are told apart by them. Calls and bytes are always counted here: confidence comes from the
    /// number of requests, and a peer's claims are held against the bytes that passed.
    pub fn of(units: &[Unit]) -> Self {
        let told = units.iter().fold(0, |bits, u| {
            bits | match u {
                Unit::Sends => CALLS | BYTES,
                Unit::Bytes => BYTES,
                Unit::Packets => SEGMENTS,
            }
        });
        Self {
            counted: told | CALLS | BYTES,
            told,
        }
    }
}

/// What to watch.
#[derive(Clone, Debug)]
pub struct Config {
    /// Local (server) or remote (client) ports.
    pub ports: Vec<u16>,
    /// Only sockets made in this cgroup v2 or below it.
    pub cgroup: Option<PathBuf>,
    /// What to count.
    pub units: Units,
    /// Tell peers our queue states in TCP options, at most one option per this time and
    /// connection.
    pub exchange: Option<Duration>,
    /// Applications' hints will be told to peers: [`Sensor::hint`].
    pub hints: bool,
    /// Also change sockets: [`Sensor::actuator`]. Counting then begins switched off.
    pub tune: bool,
}

/// The attached programs.
pub struct Sensor {
    skel: SenseSkel<'static>,
    config: Config,
    dump: Link,
    closed: Arc<Mutex<Vec<Connection>>>,
    closed_ring: RingBuffer<'static>,
    late_send: bool,
    /// The programs that run at every segment, send and read; none while nothing is counted: even a
    /// program that does nothing costs a request several percent.
    counting: Vec<Link>,
    _links: Vec<Link>,
}

/// How often a dump is repeated for records that were being written while they were read.
const DUMP_TRIES: usize = 4;

impl Sensor {
    /// Loads and attaches the programs, and adopts the connections that are already open.
    pub fn open(config: Config) -> Result<Self, Error> {
        let btf = Btf::from_vmlinux().map_err(|_| Error::NoBtf)?;
        let has = |name: &str| {
            btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}"))
                .is_some()
        };
        for name in ["tcp_probe", "tcp_rcv_space_adjust", "inet_sock_set_state"] {
            if !has(name) {
                return Err(Error::NoTracepoint {
                    name,
                    remedy: "use Linux 6.3 or newer",
                });
            }
        }
        let late_send = !has("tcp_sendmsg_locked");
        if late_send && !has("sock_send_length") {
            return Err(Error::NoTracepoint {
                name: "tcp_sendmsg_locked",
                remedy: "use Linux 6.16 or newer, or at least 6.3 for sock_send_length",
            });
        }
        let cgroup = match (&config.cgroup, config.exchange) {
            (Some(path), _) => Some(Cgroup::open(path)?),
            (None, None) if !config.tune => None,
            (None, _) => Some(Cgroup::open(&cgroup::mount_point()?)?),
        };
        let skel = load(&config, cgroup.as_ref(), late_send)?;

        let attach = Error::bpf;
        let progs = &skel.progs;
        let mut links = vec![
            progs
                .bw_state
                .attach()
                .map_err(attach("attaching to inet_sock_set_state"))?,
        ];
        if let (Some(_), Some(cgroup)) = (config.exchange, &cgroup) {
            let dir = File::open(&cgroup.path).map_err(Error::io("opening the cgroup"))?;
            let link = progs.bw_exchange.attach_cgroup(dir.as_raw_fd());
            links.push(link.map_err(attach("attaching sock_ops to the cgroup"))?);
        }
        if let (true, Some(cgroup)) = (config.tune, &cgroup) {
            let dir = File::open(&cgroup.path).map_err(Error::io("opening the cgroup"))?;
            let link = progs.bw_wish.attach_cgroup(dir.as_raw_fd());
            links.push(link.map_err(attach("attaching cgroup/setsockopt"))?);
        }
        let dump = progs.bw_dump.attach_iter(skel.maps.endpoints.as_fd());
        let dump = dump.map_err(attach("creating the iterator of connections"))?;

        let closed = Arc::new(Mutex::new(Vec::new()));
        let closed_ring = {
            let closed = Arc::clone(&closed);
            let mut builder = RingBufferBuilder::new();
            builder
                .add(&skel.maps.closed, move |bytes| {
                    if let (Some(c), Ok(mut list)) = (parse_closed(bytes), closed.lock()) {
                        list.push(c);
                    }
                    0
                })
                .map_err(Error::bpf("opening the ring buffer"))?;
            builder
                .build()
                .map_err(Error::bpf("opening the ring buffer"))?
        };
        let mut sensor = Self {
            skel,
            config,
            dump,
            closed,
            closed_ring,
            late_send,
            counting: Vec::new(),
            _links: links,
        };
        sensor.counting = sensor.hooks()?;
        if sensor.config.tune {
            sensor.counting.clear(); // they can be attached; `count` does
        }
        sensor.adopt()?;
        Ok(sensor)
    }

    /// Finds the connections (and, for the exchange, the listeners) that are already there, in
    /// every network namespace that the cgroup's processes live in.
    fn adopt(&self) -> Result<(), Error> {
        let cgroup = self.config.cgroup.as_deref();
        let progs = &self.skel.progs;
        let mut walks = vec![
            progs
                .bw_adopt
                .attach()
                .map_err(Error::bpf("creating iter/tcp"))?,
        ];
        if self.config.exchange.is_some() {
            let link = progs.bw_adopt_listener.attach();
            walks.push(link.map_err(Error::bpf("creating iter/tcp for listeners"))?);
        }
        for link in &walks {
            read_iter(link).map_err(Error::io("searching our network namespace"))?;
        }
        for ns in netns::others(cgroup) {
            for link in &walks {
                let walked = netns::within(&ns, || read_iter(link).map(drop));
                if let Err(e) = walked {
                    // the namespace's last process may just have ended
                    tracing::warn!("a network namespace could not be searched: {e}");
                }
            }
        }
        Ok(())
    }

    /// What acts on the sockets; only with [`Config::tune`], and once.
    pub fn actuator(&self) -> Result<Actuator, Error> {
        Actuator::new(&self.skel, self.config.cgroup.clone())
    }

    /// Of so many connections hints can be told at a time.
    pub const MOST_HINTS: usize = 65_536;

    /// A connection's requests as its application counts them, to be told to the peer instead of
    /// TCP's queues; `None` when it no longer does.
    pub fn hint(&self, cookie: u64, queue: Option<&QueueState>) -> Result<(), Error> {
        let (map, key) = (&self.skel.maps.hints, cookie.to_ne_bytes());
        let done = match queue {
            None => match map.delete(&key) {
                Err(e) if e.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
                done => done,
            },
            Some(q) => {
                let value = types::bw_queue {
                    time: q.time,
                    integral: q.integral,
                    total: q.total,
                    size: q.size,
                    reserved: 0,
                };
                map.update(&key, bytes(&value), MapFlags::ANY)
            }
        };
        done.map_err(Error::bpf("writing a hint"))
    }

    /// Attaches what sees every segment, send and read.
    fn hooks(&self) -> Result<Vec<Link>, Error> {
        let attach = Error::bpf;
        let progs = &self.skel.progs;
        let segment = progs.bw_segment.attach();
        let read = progs.bw_read.attach();
        let send = if self.late_send {
            let link = progs.bw_send_late.attach();
            link.map_err(attach("attaching to sock_send_length"))
        } else {
            let link = progs.bw_send.attach();
            link.map_err(attach("attaching to tcp_sendmsg_locked"))
        };
        Ok(vec![
            segment.map_err(attach("attaching to tcp_probe"))?,
            read.map_err(attach("attaching to tcp_rcv_space_adjust"))?,
            send?,
        ])
    }

    /// Switches counting on or off. On, it begins anew: see [`Self::epoch`].
    pub fn count(&mut self, on: bool) -> Result<(), Error> {
        if on == self.is_counting() {
            return Ok(());
        }
        if on {
            self.counting = self.hooks()?;
        }
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.epoch = bss.epoch.wrapping_add(u32::from(on));
            // the programs must not see the new value before the new epoch
            fence(Ordering::SeqCst);
            bss.paused = u32::from(!on);
        }
        if !on {
            self.counting.clear();
        }
        Ok(())
    }

    /// Whether events are being counted.
    pub fn is_counting(&self) -> bool {
        self.skel
            .maps
            .bss_data
            .as_deref()
            .is_some_and(|b| b.paused == 0)
    }

    /// How often counting has begun. A connection counts only once its own epoch is this: until
    /// then it had no event since.
    pub fn epoch(&self) -> u32 {
        self.skel.maps.bss_data.as_deref().map_or(0, |b| b.epoch)
    }

    /// When a peer's agent last asked for our counters, ns, CLOCK_MONOTONIC; 0: never.
    pub fn wanted_at(&self) -> u64 {
        self.skel
            .maps
            .bss_data
            .as_deref()
            .map_or(0, |b| b.wanted_at)
    }

    /// Reads all counters. Between two events of a connection its record stands still, so a record
    /// that is written while it is copied is rare; it is read again.
    pub fn read(&self) -> Result<Reading, Error> {
        // closed first: a connection that closes in between is then in neither, and in the next
        self.closed_ring
            .consume()
            .map_err(Error::bpf("reading closed connections"))?;
        let mut open = BTreeMap::new();
        for _ in 0..DUMP_TRIES {
            let bytes = read_iter(&self.dump).map_err(Error::io("reading the connections"))?;
            let (whole, torn) = parse_dump(&bytes);
            for c in whole {
                open.entry(c.cookie).or_insert(c);
            }
            if torn == 0 {
                break;
            }
        }
        let open = open.into_values().collect();
        let closed = self
            .closed
            .lock()
            .map(|mut c| std::mem::take(&mut *c))
            .unwrap_or_default();
        let lost_events = self
            .skel
            .maps
            .bss_data
            .as_deref()
            .map_or(0, |b| b.lost_events);
        Ok(Reading {
            open,
            closed,
            lost_events,
        })
    }
}

fn load(
    config: &Config,
    cgroup: Option<&Cgroup>,
    late_send: bool,
) -> Result<SenseSkel<'static>, Error> {
    let mut open = SenseSkelBuilder::default()
        .open(holder())
        .map_err(Error::bpf("opening the BPF object"))?;

    let ro = open.maps.rodata_data.as_deref_mut();
    let ro = ro.ok_or(Error::Bpf {
        doing: "configuring the BPF programs",
        source: io::Error::other("no .rodata").into(),
    })?;
    if config.ports.len() > ro.ports.len() {
        return Err(Error::TooManyPorts {
            given: config.ports.len(),
            most: ro.ports.len(),
        });
    }
    for (slot, port) in ro.ports.iter_mut().zip(&config.ports) {
        *slot = *port;
    }
    ro.n_ports = config.ports.len() as u32;
    ro.units = config.units.counted;
    ro.told_units = config.units.told;
    ro.late_send = late_send;
    if let (Some(_), Some(c)) = (&config.cgroup, cgroup) {
        ro.cgroup_id = c.id;
        ro.cgroup_level = c.level;
    }
    if let Some(period) = config.exchange {
        ro.exchange_period_ns = period.as_nanos().try_into().unwrap_or(u32::MAX);
    }
    open.progs
        .bw_exchange
        .set_autoload(config.exchange.is_some());
    open.progs
        .bw_adopt_listener
        .set_autoload(config.exchange.is_some());
    ro.exchanging = config.exchange.is_some();
    ro.tuning = config.tune;
    ro.hinting = config.hints;
    if let Some(bss) = open.maps.bss_data.as_deref_mut() {
        bss.paused = u32::from(config.tune);
    }
    open.progs.bw_apply.set_autoload(config.tune);
    open.progs.bw_wish.set_autoload(config.tune);
    open.progs.bw_send.set_autoload(!late_send);
    open.progs.bw_send_late.set_autoload(late_send);
    open.load().map_err(Error::bpf("loading the BPF programs"))
}

fn read_iter(link: &Link) -> io::Result<Vec<u8>> {
    let mut iter = Iter::new(link).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    iter.read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Plain for types::bw_queue {}
