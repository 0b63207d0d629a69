//! The passive vantage's loader: loads and attaches the program that measures the gaps of the flows
//! that pass an interface, and hands over the epochs that it closes.
//!
//! What it attaches belongs to file descriptors of this process: when the process ends, however it
//! ends, the kernel detaches it.

pub(crate) mod attach;
mod record;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use batchwise_core::passive::{Algorithm, Epoch, Params};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{
    MapCore, MapFlags, OpenObject, ProgramHandle, ProgramInput, ProgramType, RingBuffer,
    RingBufferBuilder,
};

use crate::Error;
use crate::passive_skel::{OpenPassiveSkel, PassiveSkel, PassiveSkelBuilder, types};
use attach::Interface;
use record::Collector;
pub use record::Counters;

/// Where packets are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// Native XDP, or tc where the driver has none.
    #[default]
    Auto,
    /// Native XDP.
    Native,
    /// tc ingress (tcx): after XDP, and after GRO has merged packets, which hides gaps.
    Tc,
    /// Nowhere: another XDP program calls [`PassiveSensor::program`].
    Called,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the interface, in our network namespace; not used with [`Attach::Called`].
    pub interface: String,
    /// Where packets are seen.
    pub attach: Attach,
    /// Destination ports; none: all.
    pub ports: Vec<u16>,
    /// Flows that are to find room at a time.
    pub flows: u32,
    /// The estimator.
    pub params: Params,
    /// UDP payloads of at most so many bytes are taken for acknowledgments (QUIC); 0: none are.
    pub udp_acks: u16,
    /// A flow without a packet for so long is forgotten.
    pub forget: Duration,
    /// A pinned XDP program that decides what becomes of every packet.
    pub then: Option<PathBuf>,
}

/// Bytes of flow table for each flow that is to find room (the paper's Table 1): so much above a
/// flow's own 124 that two choices of 16 places do.
const BYTES_PER_FLOW: usize = 154;
/// What the kernel adds to the table: its head, and up to a whole page.
const TABLE_OVERHEAD: usize = 2 * 4096;
/// Room for events, bytes for each flow; and its bounds.
const EVENT_BYTES_PER_FLOW: u32 = 64;
const EVENT_BYTES: [u32; 2] = [1 << 20, 1 << 24];
/// Buckets that one run of the sweep looks at: events are taken out in between.
const SWEEP_BUCKETS: u32 = 256;
/// `BPF_F_XDP_HAS_FRAGS`: frames may have more than one part (jumbo frames).
const XDP_FRAGS: u32 = 1 << 5;

// enum bw_gaps_algorithm
const ALGORITHM_AUTO: u32 = 0;
const ALGORITHM_MODES: u32 = 1;
const ALGORITHM_FIXED: u32 = 2;

/// The program, loaded and attached; detached when dropped.
pub struct PassiveSensor {
    // before the programs: what is attached goes first
    _link: Option<OwnedFd>,
    events: RingBuffer<'static>,
    collector: Arc<Mutex<Collector>>,
    skel: PassiveSkel<'static>,
    attached: Attach,
    then: bool,
    buckets: u32,
    live: u64,
}

impl PassiveSensor {
    /// Loads and attaches the program.
    ///
    /// # Errors
    /// When the interface, the driver or the kernel does not allow it; each says the remedy.
    pub fn attach(config: Config) -> Result<Self, Error> {
        if config.attach == Attach::Called {
            return Self::load(&config, Attach::Called);
        }
        let interface = Interface::find(&config.interface)?;
        if config.attach != Attach::Tc {
            let mut sensor = Self::load(&config, Attach::Native)?;
            match interface.native(sensor.program()) {
                Ok(link) => {
                    sensor._link = Some(link);
                    return Ok(sensor);
                }
                Err(Error::NoNativeXdp { source, .. })
                    if config.attach == Attach::Auto && config.then.is_none() =>
                {
                    let name = &config.interface;
                    tracing::info!("{name} takes no native XDP program ({source}): tc is used");
                }
                Err(e) => return Err(e),
            }
        }
        let mut sensor = Self::load(&config, Attach::Tc)?;
        sensor._link = Some(interface.tc(sensor.program())?);
        Ok(sensor)
    }

    fn load(config: &Config, attached: Attach) -> Result<Self, Error> {
        let buckets = buckets(config.flows);
        let skel = match &config.then {
            Some(path) if attached == Attach::Tc => {
                return Err(Error::BadThen {
                    path: path.clone(),
                    why: "tc programs are not chained: use --attach native".into(),
                });
            }
            Some(_) => load_then(config, buckets)?,
            // most dispatchers know no frames of more than one part, and call only their like
            None => load(config, buckets, attached, attached != Attach::Called)?,
        };
        let places = buckets as usize * types::bw_bucket::default().tag.len();
        let collector = Arc::new(Mutex::new(Collector::new(places)));
        let events = {
            let collector = Arc::clone(&collector);
            let mut builder = RingBufferBuilder::new();
            builder
                .add(&skel.maps.events, move |bytes| {
                    let mut collector = collector.lock().unwrap_or_else(PoisonError::into_inner);
                    collector.event(bytes);
                    0
                })
                .map_err(Error::bpf("opening the ring buffer"))?;
            let built = builder.build();
            built.map_err(Error::bpf("opening the ring buffer"))?
        };
        Ok(Self {
            _link: None,
            events,
            collector,
            skel,
            attached,
            then: config.then.is_some(),
            buckets,
            live: 0,
        })
    }

    /// Where packets are seen; never [`Attach::Auto`].
    pub fn attached(&self) -> Attach {
        self.attached
    }

    /// The program, for another XDP program that is to call it (`bpf_tail_call`).
    pub fn program(&self) -> BorrowedFd<'_> {
        let progs = &self.skel.progs;
        match self.attached {
            Attach::Tc => progs.bw_tc.as_fd(),
            _ if self.then => progs.bw_xdp_then.as_fd(),
            _ => progs.bw_xdp.as_fd(),
        }
    }

    /// The epochs that closed since the last call, oldest first; times are ns, CLOCK_MONOTONIC. Call
    /// it at least ten times a second: events wait in a buffer of limited size.
    ///
    /// # Errors
    /// When the kernel does not let us read.
    pub fn poll(&mut self) -> Result<Vec<Epoch>, Error> {
        self.events
            .consume()
            .map_err(Error::bpf("reading closed epochs"))?;
        let collector = self.collector.lock();
        Ok(collector.unwrap_or_else(PoisonError::into_inner).take())
    }

    /// Closes the epochs of idle flows, forgets the long idle, and gives what closed, as
    /// [`Self::poll`] does. Call it once per interval.
    ///
    /// # Errors
    /// When the kernel does not let us.
    pub fn sweep(&mut self) -> Result<Vec<Epoch>, Error> {
        self.close(false)
    }

    /// Closes all epochs, as at the end: what they have measured is not lost.
    ///
    /// # Errors
    /// When the kernel does not let us.
    pub fn close_all(&mut self) -> Result<Vec<Epoch>, Error> {
        self.close(true)
    }

    fn close(&mut self, all: bool) -> Result<Vec<Epoch>, Error> {
        let mut closed = Vec::new();
        let mut live = 0;
        for first in (0..self.buckets).step_by(SWEEP_BUCKETS as usize) {
            let buckets = SWEEP_BUCKETS.min(self.buckets - first);
            live += u64::from(self.sweep_buckets(first, buckets, all)?);
            closed.extend(self.poll()?);
        }
        self.live = live;
        Ok(closed)
    }

    /// How many flows live in these buckets.
    fn sweep_buckets(&self, first: u32, buckets: u32, all: bool) -> Result<u32, Error> {
        let mut context = [first, buckets, 0, all.into()]
            .map(u32::to_ne_bytes)
            .concat(); // struct bw_sweep
        let run = ProgramInput {
            context_in: Some(&mut context),
            ..Default::default()
        };
        let swept = self.skel.progs.bw_sweep.test_run(run);
        swept.map_err(Error::bpf("closing the epochs of idle flows"))?;
        let live = context.get(8..12).and_then(|b| b.try_into().ok());
        Ok(live.map_or(0, u32::from_ne_bytes))
    }

    /// What became of the packets so far.
    ///
    /// # Errors
    /// When the kernel does not let us read.
    pub fn counters(&self) -> Result<Counters, Error> {
        let map = &self.skel.maps.counters;
        let cpus = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let cpus = cpus.map_err(Error::bpf("reading the counters"))?;
        Ok(Counters::sum(cpus.iter().flatten().map(Vec::as_slice)))
    }

    /// Flows in the table as of the last [`Self::sweep`].
    pub fn flows_live(&self) -> u64 {
        self.live
    }

    /// Places in the table: more than were asked for, since not all can be filled without pushing
    /// out others.
    pub fn flows_capacity(&self) -> u64 {
        u64::from(self.buckets) * types::bw_bucket::default().tag.len() as u64
    }
}

fn buckets(flows: u32) -> u32 {
    let bytes = (flows as usize * BYTES_PER_FLOW).saturating_sub(TABLE_OVERHEAD);
    let buckets = bytes / size_of::<types::bw_bucket>();
    buckets.clamp(2, u32::MAX as usize) as u32
}

/// The programs, with `config.then` in their prog array. The kernel keeps programs that take frames
/// of more than one part from calling others, and the reverse; which it is cannot be asked.
fn load_then(config: &Config, buckets: u32) -> Result<PassiveSkel<'static>, Error> {
    let path = config.then.clone().unwrap_or_default();
    let bad = |why: &dyn std::fmt::Display| Error::BadThen {
        path: path.clone(),
        why: why.to_string(),
    };
    let next = ProgramHandle::from_pinned_path(&path).map_err(|e| {
        bad(&format_args!(
            "{e}; pin an XDP program there, e.g. with `bpftool prog load FILE.o {}`",
            path.display()
        ))
    })?;
    if next.prog_type() != ProgramType::Xdp {
        return Err(bad(&"it is no XDP program"));
    }
    let fd = next.as_fd().as_raw_fd().to_ne_bytes();
    let mut refused = None;
    for frags in [true, false] {
        let skel = load(config, buckets, Attach::Native, frags)?;
        match skel
            .maps
            .then
            .update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY)
        {
            Ok(()) => return Ok(skel),
            Err(e) => refused = Some(e),
        }
    }
    Err(bad(&format_args!(
        "the kernel does not let it be called ({}); load it as an ordinary XDP program, for no \
         device and not as an extension",
        refused.map_or_else(String::new, |e| e.to_string())
    )))
}

fn load(
    config: &Config,
    buckets: u32,
    attached: Attach,
    frags: bool,
) -> Result<PassiveSkel<'static>, Error> {
    // as in `sensor.rs`: the skeleton borrows its object, and lives as long as the process
    let holder: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = PassiveSkelBuilder::default()
        .open(holder)
        .map_err(Error::bpf("opening the BPF object"))?;
    configure(&mut open, config, buckets)?;

    let sizing = Error::bpf;
    let event_bytes = config.flows.saturating_mul(EVENT_BYTES_PER_FLOW);
    let event_bytes = event_bytes.clamp(EVENT_BYTES[0], EVENT_BYTES[1]);
    let events = open
        .maps
        .events
        .set_max_entries(event_bytes.next_power_of_two());
    events.map_err(sizing("sizing the ring buffer"))?;
    let flows = open.maps.flows.set_max_entries(buckets);
    flows.map_err(sizing("sizing the flow table"))?;

    let then = config.then.is_some();
    open.progs.bw_tc.set_autoload(attached == Attach::Tc);
    let xdp = attached != Attach::Tc;
    open.progs.bw_xdp.set_autoload(xdp && !then);
    open.progs.bw_xdp_then.set_autoload(xdp && then);
    let flags = if frags { XDP_FRAGS } else { 0 };
    open.progs.bw_xdp.set_flags(flags);
    open.progs.bw_xdp_then.set_flags(flags);
    open.load().map_err(Error::bpf("loading the BPF programs"))
}

fn configure(open: &mut OpenPassiveSkel<'_>, config: &Config, buckets: u32) -> Result<(), Error> {
    let ro = open.maps.rodata_data.as_deref_mut();
    let ro = ro.ok_or(Error::Bpf {
        doing: "configuring the BPF programs",
        source: io::Error::other("no .rodata").into(),
    })?;
    let (algorithm, fixed_ns) = match config.params.algorithm {
        Algorithm::Auto => (ALGORITHM_AUTO, 0),
        Algorithm::Modes => (ALGORITHM_MODES, 0),
        Algorithm::Fixed(delta) => (ALGORITHM_FIXED, delta),
    };
    ro.gaps_params = types::bw_gaps_params {
        epoch_ns: config.params.epoch_ns,
        max_ns: config.params.max_ns,
        idle_ns: config.params.idle_ns,
        fixed_ns,
        algorithm,
        min_gaps: config.params.min_gaps,
    };
    // keyed, or a stranger could choose flows that fall into one bucket
    let random = || RandomState::new().build_hasher().finish();
    ro.hash_keys = [random(), random() | 1];
    ro.n_buckets = buckets;
    ro.udp_acks = config.udp_acks.into();
    ro.forget_ns = config
        .forget
        .as_nanos()
        .try_into()
        .unwrap_or(i64::MAX as u64);
    ro.some_ports = !config.ports.is_empty();
    for &port in &config.ports {
        ro.port_bits[usize::from(port) / 64] |= 1 << (port % 64);
    }
    Ok(())
}
