//! The decapsulator's loader: what balancers send through IP-in-IP tunnels goes up this host's stack
//! without the outer header. For servers whose kernel has no tunnel device.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags};

use crate::Error;
use crate::attach::interface::{Interface, index_of};
use crate::decap_skel::{DecapSkel, DecapSkelBuilder, types};
use crate::features::{self, Machine, Subcommand, XDP_FRAGS};
use crate::object::{load, percpu, rodata};
use crate::plain::{bytes, octets};

/// What to take tunnels from, and where.
#[derive(Clone, Debug, Default)]
pub struct DecapConfig {
    /// Name of the interface, in our network namespace; not used by [`Decap::load`].
    pub interface: String,
    /// Prefixes of the outer sources that are accepted, each of its IP version; none: all are.
    pub from: Vec<(IpAddr, u8)>,
    /// Addresses of this host: only tunnels to one of them that carry a packet to one of them are
    /// taken.
    pub local: Vec<IpAddr>,
}

/// Packets by their one fate. All but [`Self::decapsulated`] went their way unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fates {
    /// The outer header was taken off.
    pub decapsulated: u64,
    /// Not IP in IP, or with a VLAN tag.
    pub no_tunnel: u64,
    /// A tunnel whose end is no address of this host.
    pub elsewhere: u64,
    /// A tunnel from a source that is not accepted.
    pub foreign_source: u64,
    /// The packet inside is for no address of this host.
    pub foreign_inner: u64,
    /// The outer packet was a fragment.
    pub fragment: u64,
    /// The outer packet had options or an extension header.
    pub options: u64,
    /// Headers that contradict themselves, each other or the frame.
    pub malformed: u64,
}

impl Fates {
    /// Each with its name.
    pub fn named(&self) -> [(&'static str, u64); 8] {
        [
            ("decapsulated", self.decapsulated),
            ("no_tunnel", self.no_tunnel),
            ("elsewhere", self.elsewhere),
            ("foreign_source", self.foreign_source),
            ("foreign_inner", self.foreign_inner),
            ("fragment", self.fragment),
            ("options", self.options),
            ("malformed", self.malformed),
        ]
    }
}

/// The program, loaded and attached; detached when dropped.
pub struct Decap {
    // before the program: what is attached goes first
    link: Option<OwnedFd>,
    pub(crate) skel: DecapSkel<'static>,
    native: bool,
    local: BTreeSet<IpAddr>,
}

impl Decap {
    /// Loads the program and attaches it to native XDP, or to generic XDP where the driver has no
    /// other: what leaves it goes up the stack in either case.
    ///
    /// # Errors
    /// When the interface or the kernel does not allow it; each says the remedy.
    pub fn attach(config: &DecapConfig) -> Result<Self, Error> {
        let interface = Interface::find(&config.interface)?;
        let mut decap = Self::load(config)?;
        let link = match interface.native(decap.program()) {
            Err(Error::NoNativeXdp { .. }) => {
                decap.native = false;
                interface.generic(decap.program())
            }
            Err(Error::OtherXdp { interface }) => Err(Error::XdpTaken { interface }),
            other => other,
        };
        decap.link = Some(link?);
        Ok(decap)
    }

    /// Loads the program and attaches it nowhere.
    pub fn load(config: &DecapConfig) -> Result<Self, Error> {
        let machine = Machine::look();
        features::require(&machine, Subcommand::Decap)?;
        let frags = machine.takes_frags();
        let skel = load::<DecapSkelBuilder>(|open| {
            let flags = if frags { XDP_FRAGS } else { 0 };
            open.progs.decap_xdp.set_flags(flags);
            let ro = rodata(open.maps.rodata_data.as_deref_mut())?;
            ro.frags = frags;
            ro.any_source = config.from.is_empty();
            let prefixes = config.from.len().max(1) as u32;
            let sized = open.maps.from.set_max_entries(prefixes);
            sized.map_err(Error::bpf("sizing the table of sources"))
        })?;
        for (address, bits) in &config.from {
            let set = skel
                .maps
                .from
                .update(bytes(&prefix(*address, *bits)), &[1], MapFlags::ANY);
            set.map_err(Error::bpf("writing the table of sources"))?;
        }
        let mut decap = Self {
            link: None,
            skel,
            native: true,
            local: BTreeSet::new(),
        };
        decap.set_local(&config.local)?;
        Ok(decap)
    }

    /// The program, for tests and for programs that call it.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.skel.progs.decap_xdp.as_fd()
    }

    /// Whether it is still where it was attached: interfaces go.
    pub fn is_attached(&self) -> bool {
        self.link.as_ref().and_then(index_of).is_some()
    }

    /// Whether it is attached to native XDP, not to generic.
    pub fn native(&self) -> bool {
        self.native
    }

    /// From now on these are the addresses of this host.
    pub fn set_local(&mut self, local: &[IpAddr]) -> Result<(), Error> {
        let writing = "writing the addresses of this host";
        let new: BTreeSet<IpAddr> = local.iter().copied().collect();
        for address in new.difference(&self.local) {
            let set = self
                .skel
                .maps
                .local
                .update(&octets(*address), &[1], MapFlags::ANY);
            set.map_err(Error::bpf(writing))?;
        }
        for address in self.local.difference(&new) {
            let gone = self.skel.maps.local.delete(&octets(*address));
            gone.map_err(Error::bpf(writing))?;
        }
        self.local = new;
        Ok(())
    }

    /// What became of the packets so far.
    pub fn counters(&self) -> Result<Fates, Error> {
        let mut sum = Fates::default();
        let fates = &self.skel.maps.fates;
        for cpu in percpu::<types::decap_fates>(fates, 0, "reading the counters")? {
            sum.decapsulated += cpu.decapsulated;
            sum.no_tunnel += cpu.no_tunnel;
            sum.elsewhere += cpu.elsewhere;
            sum.foreign_source += cpu.foreign_source;
            sum.foreign_inner += cpu.foreign_inner;
            sum.fragment += cpu.fragment;
            sum.options += cpu.options;
            sum.malformed += cpu.malformed;
        }
        Ok(sum)
    }
}

/// The key of the sources with this prefix.
fn prefix(address: IpAddr, bits: u8) -> types::decap_prefix {
    let (version, before) = if address.is_ipv4() { (4, 96) } else { (6, 0) };
    types::decap_prefix {
        bits: 32 + before + u32::from(bits),
        version,
        addr: octets(address),
    }
}
