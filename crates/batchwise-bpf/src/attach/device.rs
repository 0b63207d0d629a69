//! What an interface is like, as its driver tells it: MTU, queues, kind (ioctl SIOCGIFMTU and SIOCETHTOOL).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use rustix::net::{AddressFamily, SocketType, socket};

use crate::Error;

/// `ETHTOOL_GDRVINFO` (uapi/linux/ethtool.h).
const DRIVER: u32 = 0x0000_0003;
/// `ETHTOOL_GCHANNELS`.
const CHANNELS: u32 = 0x0000_003c;
/// `SIOCETHTOOL`.
const ETHTOOL: u32 = 0x8946;

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    send: u32,
    other: u32,
    combined: u32,
}

/// An interface of the calling thread's network namespace.
pub(crate) struct Device {
    name: String,
    socket: OwnedFd,
}

impl Device {
    /// By its name, which is that of an interface.
    pub(crate) fn open(name: &str) -> Result<Self, Error> {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None);
        let socket = socket.map_err(|errno| Error::io("opening a socket")(errno.into()))?;
        Ok(Self {
            name: name.into(),
            socket,
        })
    }

    /// Bytes that a packet may have.
    pub(crate) fn mtu(&self) -> Result<u32, Error> {
        let mut request = self.request();
        let asked = self.ask(libc::SIOCGIFMTU as u32, &mut request);
        asked.map_err(Error::io("asking for the interface's MTU"))?;
        // SAFETY: the call has set the MTU.
        Ok(unsafe { request.ifr_ifru.ifru_mtu }.cast_unsigned())
    }

    /// Queues on which frames arrive. A driver that does not say has one.
    pub(crate) fn queues(&self) -> u32 {
        let mut channels = Channels {
            command: CHANNELS,
            ..Default::default()
        };
        match self.ethtool(&mut channels) {
            Ok(()) => (channels.receive + channels.combined).max(1),
            Err(_) => 1,
        }
    }

    /// Whether it is one end of a veth pair.
    pub(crate) fn is_veth(&self) -> bool {
        let mut info = DriverInfo {
            command: DRIVER,
            driver: [0; 32],
            rest: [0; 160],
        };
        self.ethtool(&mut info).is_ok() && info.driver.starts_with(b"veth\0")
    }

    fn ethtool<T>(&self, command: &mut T) -> io::Result<()> {
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut *command).cast();
        self.ask(ETHTOOL, &mut request)
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: all zero is a valid request.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // names of interfaces are shorter than the field, which ends with 0
        let room = request.ifr_name.len() - 1;
        for (to, from) in request.ifr_name[..room].iter_mut().zip(self.name.bytes()) {
            *to = from as libc::c_char;
        }
        request
    }

    fn ask(&self, what: u32, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: the request is one of those that take an ifreq, and what its data points to is what
        // the command in it says.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), what as _, &raw mut *request) };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
