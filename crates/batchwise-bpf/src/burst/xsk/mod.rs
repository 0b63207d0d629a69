//! AF_XDP sockets (Documentation/networking/af_xdp.rst) in copy mode, on rustix: frames of one memory go
//! in and out of two interfaces. A frame is a value: who has it may read it, and it is given on or back.

mod area;
mod ring;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc,
    XdpDescOptions,
};
use rustix::net::{AddressFamily, SendFlags, SocketType, bind, send, socket, sockopt};

use crate::Error;
pub(super) use area::LONGEST;
pub use area::{Frame, Frames};
use ring::{Consumed, Produced};

/// Entries of the ring of arrived frames: a burst of the largest class from some 60 senders.
pub(super) const RECEIVE: u32 = 4096;
/// Entries of the ring of frames that leave.
pub(super) const SEND: u32 = 512;

/// One end: a socket at the only queue of an interface.
#[derive(Debug)]
pub struct Port {
    socket: OwnedFd,
    fill: Produced<u64>,
    arrived: Consumed<XdpDesc>,
    leaving: Produced<XdpDesc>,
    left: Consumed<u64>,
}

/// Frames that an interface's socket lost, and why, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// The forwarder did not take them fast enough.
    pub ring_full: u64,
    /// No frame was free to take them.
    pub no_frame: u64,
    /// They do not fit a frame, or the kernel had another reason.
    pub other: u64,
}

impl Port {
    /// Opens the socket at the interface with this index and binds it. `first`: one that is open, whose
    /// frames this one is to take and give.
    pub(super) fn open(ifindex: u32, frames: &Frames, first: Option<&Self>) -> Result<Self, Error> {
        let opened = Self::try_open(ifindex, frames, first);
        opened.map_err(|errno| match errno {
            Errno::PERM | Errno::ACCESS => Error::NoPrivilege,
            Errno::AFNOSUPPORT => Error::Refused(
                "the kernel has no AF_XDP sockets: use one built with CONFIG_XDP_SOCKETS=y".into(),
            ),
            Errno::NOBUFS | Errno::NOMEM => Error::Refused(
                "the kernel may not keep the frames' memory: allow more with `ulimit -l unlimited`, \
                 or give a smaller --limit"
                    .into(),
            ),
            Errno::BUSY => Error::Refused(
                "another AF_XDP socket has the interface's queue: end the program that has it".into(),
            ),
            other => Error::Io {
                doing: "opening an AF_XDP socket",
                cause: other.into(),
            },
        })
    }

    fn try_open(ifindex: u32, frames: &Frames, first: Option<&Self>) -> Result<Self, Errno> {
        let socket = socket(AddressFamily::XDP, SocketType::RAW, None)?;
        if first.is_none() {
            sockopt::set_xdp_umem_reg(&socket, frames.registration())?;
        }
        sockopt::set_xdp_umem_fill_ring_size(&socket, RECEIVE)?;
        // each frame that leaves comes back in this ring, however late
        let completions = frames.count().next_power_of_two();
        sockopt::set_xdp_umem_completion_ring_size(&socket, completions)?;
        sockopt::set_xdp_rx_ring_size(&socket, RECEIVE)?;
        sockopt::set_xdp_tx_ring_size(&socket, SEND)?;
        let at = sockopt::xdp_mmap_offsets(&socket)?;
        let port = Self {
            fill: Produced::map(&socket, XDP_UMEM_PGOFF_FILL_RING, at.fr, RECEIVE)?,
            left: Consumed::map(&socket, XDP_UMEM_PGOFF_COMPLETION_RING, at.cr, completions)?,
            arrived: Consumed::map(&socket, XDP_PGOFF_RX_RING, at.rx, RECEIVE)?,
            leaving: Produced::map(&socket, XDP_PGOFF_TX_RING, at.tx, SEND)?,
            socket,
        };
        match first {
            None => {
                let address = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_COPY, ifindex, 0);
                bind(&port.socket, &address)?;
            }
            Some(first) => {
                let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, ifindex, 0);
                let shared_umem_fd = first.socket.as_fd();
                let address = SocketAddrXdpWithSharedUmem {
                    addr,
                    shared_umem_fd,
                };
                bind(&port.socket, &address)?;
            }
        }
        Ok(port)
    }

    /// The next frame that arrived. The kernel gets the room back with [`Self::exchange`].
    pub fn receive(&mut self) -> Option<Frame> {
        self.arrived
            .take()
            .map(|desc| Frame::new(desc.addr, desc.len))
    }

    /// Has a frame leave, with the next [`Self::flush`].
    ///
    /// # Errors
    /// The frame, when there is no room.
    pub fn send(&mut self, frame: Frame) -> Result<(), Frame> {
        let desc = XdpDesc {
            addr: frame.address(),
            len: frame.len(),
            options: XdpDescOptions::empty(),
        };
        match self.leaving.put(desc) {
            true => Ok(()),
            false => Err(frame),
        }
    }

    /// Frames that were sent and that the kernel has not taken yet.
    pub fn unsent(&self) -> u32 {
        self.leaving.waiting()
    }

    /// Has the kernel send; what it cannot take now stays ([`Self::unsent`]).
    ///
    /// # Errors
    /// The interface is down or gone.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.leaving.submit();
        let mut before = self.unsent();
        // a call sends 32 at most (TX_BATCH_SIZE, net/xdp/xsk.c), and says EAGAIN for "not all"
        while before > 0 {
            match send(&self.socket, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {}
                Err(errno) => return Err(Error::io("sending frames")(errno.into())),
            }
            let after = self.unsent();
            if after == before {
                break;
            }
            before = after;
        }
        Ok(())
    }

    /// Takes frames back that have left, and gives the kernel free ones to fill.
    pub fn exchange(&mut self, frames: &mut Frames) {
        while let Some(address) = self.left.take() {
            frames.put_back(Frame::new(address, 0));
        }
        self.left.release();
        self.arrived.release();
        while self.fill.has_room() {
            let Some(frame) = frames.take() else { break };
            self.fill.put(frame.address());
        }
        self.fill.submit();
    }

    /// What the socket lost.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn lost(&self) -> Result<Lost, Error> {
        let seen = sockopt::xdp_statistics(&self.socket).map_err(io::Error::from);
        let seen = seen.map_err(Error::io("reading a socket's statistics"))?;
        Ok(Lost {
            ring_full: seen.rx_ring_full.unwrap_or(0),
            no_frame: seen.rx_fill_ring_empty_descs.unwrap_or(0),
            other: seen.rx_dropped + seen.tx_invalid_descs + seen.rx_invalid_descs,
        })
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
