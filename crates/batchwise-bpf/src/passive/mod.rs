//! The passive vantage's loader: loads and attaches the program that measures the gaps of the flows
//! that pass an interface, and hands over the epochs that it closes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use batchwise_core::passive::{Epoch, Params};
use libbpf_rs::{MapCore, MapFlags, ProgramHandle, ProgramType};

use crate::Error;
use crate::attach::interface::{Attachment, Interface, Tc};
use crate::features::{self, Machine, Subcommand, XDP_FRAGS};
use crate::flows;
pub use crate::flows::Counters;
use crate::flows::events::{Events, buckets, event_bytes};
use crate::object::{self, percpu, rodata};
use crate::passive_skel::{OpenPassiveSkel, PassiveSkel, PassiveSkelBuilder, types};

/// Where packets are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// Native XDP, or tc where the driver has none.
    #[default]
    Auto,
    /// Native XDP.
    Native,
    /// tc ingress: after XDP, and after GRO has merged packets, which hides gaps.
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

/// The program, loaded and attached; detached when dropped.
pub struct PassiveSensor {
    // before the programs: what is attached goes first
    link: Option<Attachment>,
    events: Events,
    skel: PassiveSkel<'static>,
    attached: Attach,
    then: bool,
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
                    sensor.link = Some(Attachment::Link(link));
                    return Ok(sensor);
                }
                Err(Error::NoNativeXdp { cause, .. })
                    if config.attach == Attach::Auto && config.then.is_none() =>
                {
                    let name = &config.interface;
                    tracing::info!("{name} takes no native XDP program ({cause}): tc is used");
                }
                Err(e) => return Err(e),
            }
        }
        let mut sensor = Self::load(&config, Attach::Tc)?;
        let link = interface.tc(sensor.program(), Tc::Ingress)?;
        sensor.link = Some(link);
        Ok(sensor)
    }

    fn load(config: &Config, attached: Attach) -> Result<Self, Error> {
        let buckets = buckets(config.flows);
        let machine = Machine::look();
        features::require(&machine, Subcommand::Passive)?;
        let frags = machine.takes_frags();
        let skel = match &config.then {
            Some(path) if attached == Attach::Tc => {
                let why = "tc programs are not chained: use --attach native";
                return Err(bad_then(path, why));
            }
            Some(path) => load_then(config, path, buckets, frags)?,
            // most dispatchers know no frames of more than one part, and call only their like
            None => load(
                config,
                buckets,
                attached,
                frags && attached != Attach::Called,
            )?,
        };
        let events = Events::open(&skel.maps.events, buckets)?;
        Ok(Self {
            link: None,
            events,
            skel,
            attached,
            then: config.then.is_some(),
        })
    }

    /// Whether it is still where it was attached: interfaces go.
    pub fn is_attached(&self) -> bool {
        let link = self.link.as_ref();
        link.is_some_and(|link| link.ifindex().is_some())
    }

    /// Where packets are seen; never [`Attach::Auto`].
    pub fn attached(&self) -> Attach {
        self.attached
    }

    /// The program, for another XDP program that is to call it (`bpf_tail_call`).
    pub fn program(&self) -> BorrowedFd<'_> {
        let progs = &self.skel.progs;
        match self.attached {
            Attach::Tc => progs.passive_tc.as_fd(),
            _ if self.then => progs.passive_xdp_then.as_fd(),
            _ => progs.passive_xdp.as_fd(),
        }
    }

    /// The epochs that closed since the last call, oldest first; times are ns, CLOCK_MONOTONIC. Call
    /// it at least ten times a second: events wait in a buffer of limited size.
    pub fn poll(&mut self) -> Result<Vec<Epoch>, Error> {
        self.events.poll()
    }

    /// Closes the epochs of idle flows, forgets the long idle, and gives what closed, as
    /// [`Self::poll`] does. Call it once per interval.
    pub fn sweep(&mut self) -> Result<Vec<Epoch>, Error> {
        self.events.sweep(&self.skel.progs.flow_sweep, false)
    }

    /// Closes all epochs, as at the end: what they have measured is not lost.
    pub fn close_all(&mut self) -> Result<Vec<Epoch>, Error> {
        self.events.sweep(&self.skel.progs.flow_sweep, true)
    }

    /// What became of the packets so far.
    pub fn counters(&self) -> Result<Counters, Error> {
        let cpus = percpu(&self.skel.maps.counters, 0, "reading the counters")?;
        Ok(Counters::sum(cpus))
    }

    /// Flows in the table as of the last [`Self::sweep`].
    pub fn flows_live(&self) -> u64 {
        self.events.live()
    }

    /// Slots in the table: more than were asked for, since not all can be filled without pushing
    /// out others.
    pub fn flows_capacity(&self) -> u64 {
        self.events.capacity()
    }
}

/// The programs, with `config.then` in their prog array. The kernel keeps programs that take frames
/// of more than one part from calling others, and the reverse; which it is cannot be asked.
fn load_then(
    config: &Config,
    path: &Path,
    buckets: u32,
    frags: bool,
) -> Result<PassiveSkel<'static>, Error> {
    let next = ProgramHandle::from_pinned_path(path).map_err(|e| {
        let shown = path.display();
        let remedy =
            format!("pin an XDP program there, e.g. with `bpftool prog load FILE.o {shown}`");
        bad_then(path, &format!("{e}; {remedy}"))
    })?;
    if next.prog_type() != ProgramType::Xdp {
        return Err(bad_then(path, "it is no XDP program"));
    }
    let fd = next.as_fd().as_raw_fd().to_ne_bytes();
    let mut refused = String::new();
    for frags in [true, false].into_iter().filter(|f| frags || !f) {
        let skel = load(config, buckets, Attach::Native, frags)?;
        match skel
            .maps
            .then
            .update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY)
        {
            Ok(()) => return Ok(skel),
            Err(e) => refused = e.to_string(),
        }
    }
    let why = format!(
        "the kernel does not let it be called ({refused}); load it as an ordinary XDP program, for no \
         device and not as an extension"
    );
    Err(bad_then(path, &why))
}

fn bad_then(path: &Path, why: &str) -> Error {
    Error::BadThen {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

pub(crate) fn load(
    config: &Config,
    buckets: u32,
    attached: Attach,
    frags: bool,
) -> Result<PassiveSkel<'static>, Error> {
    object::load::<PassiveSkelBuilder>(|open| {
        configure(open, config, frags)?;

        let sizing = Error::bpf;
        let events = open.maps.events.set_max_entries(event_bytes(config.flows));
        events.map_err(sizing("sizing the ring buffer"))?;
        let flows = open.maps.flows.set_max_entries(buckets);
        flows.map_err(sizing("sizing the flow table"))?;

        let then = config.then.is_some();
        open.progs.passive_tc.set_autoload(attached == Attach::Tc);
        let xdp = attached != Attach::Tc;
        open.progs.passive_xdp.set_autoload(xdp && !then);
        open.progs.passive_xdp_then.set_autoload(xdp && then);
        let flags = if frags { XDP_FRAGS } else { 0 };
        open.progs.passive_xdp.set_flags(flags);
        open.progs.passive_xdp_then.set_flags(flags);
        Ok(())
    })
}

fn configure(open: &mut OpenPassiveSkel<'_>, config: &Config, frags: bool) -> Result<(), Error> {
    let ro = rodata(open.maps.rodata_data.as_deref_mut())?;
    flows::configure!(ro, types, config);
    ro.frags = frags;
    ro.some_ports = !config.ports.is_empty();
    for &port in &config.ports {
        ro.port_bits[usize::from(port) / 64] |= 1 << (port % 64);
    }
    Ok(())
}
