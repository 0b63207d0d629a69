//! The forwarder's two interfaces: the program that hands their frames over, and the sockets that take
//! them. What is forwarded, and when, is decided by whoever has them.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags};

use crate::Error;
use crate::attach::device::Device;
use crate::attach::interface::{Interface, index_of};
use crate::features::{self, Machine, Subcommand};
use crate::forward_skel::types::bw_forward_port;
use crate::forward_skel::{ForwardSkel, ForwardSkelBuilder};
use crate::object::{holder, percpu, rodata};

use super::xsk;
pub use super::xsk::{Frame, Frames, Lost, Port};

/// Bytes of Ethernet's header, and of a VLAN tag.
const HEADER: u32 = 14 + 4;
/// Frames that the kernel has to fill, and those on their way out, at both interfaces.
const IN_KERNEL: u32 = 2 * (xsk::RECEIVE + xsk::RECEIVE + xsk::SEND);
/// Frames that may be held: they take a quarter of a gigabyte at most.
pub const MOST_HELD: u32 = 65_536;

/// Both interfaces and the memory of their frames. Everything ends when it is dropped.
pub struct Forwarder {
    // before the program: what is attached goes first
    links: [OwnedFd; 2],
    skel: ForwardSkel<'static>,
    /// Whose frames wait in the queue.
    pub from: Port,
    /// Where they leave.
    pub to: Port,
    /// All frames.
    pub frames: Frames,
    /// Bytes of the longest frame that fits both.
    pub longest: u32,
    /// Interfaces that are ends of veth pairs.
    pub veths: Vec<String>,
}

impl Forwarder {
    /// Takes the frames of both interfaces; `held`: how many the caller may keep at a time, at most
    /// [`MOST_HELD`].
    ///
    /// # Errors
    /// When an interface or the kernel does not allow it; each says the remedy.
    pub fn open(from: &str, to: &str, held: u32) -> Result<Self, Error> {
        let interfaces = [Interface::find(from)?, Interface::find(to)?];
        let names = [from, to];
        if interfaces[0].index() == interfaces[1].index() {
            return Err(Error::Refused(format!(
                "{from} cannot be both ends: give another interface with --to"
            )));
        }
        features::require(&Machine::look(), Subcommand::Burst)?;
        let mut longest = u32::MAX;
        let mut veths = Vec::new();
        for name in names {
            let device = Device::open(name)?;
            longest = longest.min(check(&device, name)?);
            if device.is_veth() {
                veths.push(name.to_owned());
            }
        }
        let index = |i: usize| interfaces[i].index().cast_unsigned();
        let skel = load(index(1))?;
        let mut frames = Frames::allocate(held.min(MOST_HELD) + IN_KERNEL, longest)?;
        let mut from = Port::open(index(0), &frames, None)?;
        let mut to = Port::open(index(1), &frames, Some(&from))?;
        // else what arrives first finds no frame
        from.exchange(&mut frames);
        to.exchange(&mut frames);
        let ports = [
            (bw_forward_port::BW_FORWARD_FROM, &from),
            (bw_forward_port::BW_FORWARD_TO, &to),
        ];
        for (port, socket) in ports {
            let fd = socket.as_fd().as_raw_fd().to_ne_bytes();
            let put = skel.maps.sockets.update(&key(port), &fd, MapFlags::ANY);
            put.map_err(Error::bpf("handing a socket to the BPF program"))?;
        }
        let program = skel.progs.bw_forward.as_fd();
        let attach = |i: usize| {
            interfaces[i].native(program).map_err(|error| match error {
                Error::OtherXdp { interface } => Error::XdpTaken { interface },
                Error::NoNativeXdp { interface, cause } => Error::Refused(format!(
                    "{interface} takes no native XDP program ({cause}): use an interface whose driver \
                     has native XDP, such as veth, virtio_net, ixgbe, i40e, ice or mlx5_core"
                )),
                other => other,
            })
        };
        Ok(Self {
            links: [attach(0)?, attach(1)?],
            skel,
            from,
            to,
            frames,
            longest,
            veths,
        })
    }

    /// Frames that were not in the queue that is heard and were dropped.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn in_other_queues(&self) -> Result<u64, Error> {
        let counts = &self.skel.maps.other_queue;
        let cpus = percpu::<u64>(counts, 0, "reading the forwarder's counter")?;
        Ok(cpus.sum())
    }

    /// Whether both interfaces are still there.
    pub fn is_attached(&self) -> bool {
        self.links.iter().all(|link| index_of(link).is_some())
    }
}

/// The program, loaded and attached nowhere; what arrives at this interface goes back.
pub(crate) fn load(to_ifindex: u32) -> Result<ForwardSkel<'static>, Error> {
    let mut open = ForwardSkelBuilder::default()
        .open(holder())
        .map_err(Error::bpf("opening the BPF object"))?;
    rodata(open.maps.rodata_data.as_deref_mut())?.to_ifindex = to_ifindex;
    open.load().map_err(Error::bpf("loading the BPF programs"))
}

/// Whether the interface can be forwarded from: the length of its longest frame.
fn check(device: &Device, name: &str) -> Result<u32, Error> {
    let queues = device.queues();
    if queues > 1 {
        return Err(Error::Refused(format!(
            "{name} has {queues} queues, and one is forwarded: `ethtool -L {name} combined 1` (veth: \
             `ethtool -L {name} rx 1 tx 1`)"
        )));
    }
    let longest = device.mtu()? + HEADER;
    if longest > xsk::LONGEST {
        let most = xsk::LONGEST - HEADER;
        return Err(Error::Refused(format!(
            "{name}'s MTU does not fit a frame: `ip link set {name} mtu {most}` at most, at its other \
             end too"
        )));
    }
    Ok(longest)
}

fn key(port: bw_forward_port) -> [u8; 4] {
    port.0.to_ne_bytes()
}
