//! The memory that frames are in, and those of them that are free.

use std::ptr::{self, NonNull};
use std::slice;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};

use crate::Error;

/// What the kernel keeps before a frame's bytes: `XDP_PACKET_HEADROOM`.
const HEADROOM: u32 = 256;
/// Room of a frame: the smallest that the kernel takes, and a page, which is the largest.
const ROOMS: [u32; 2] = [2048, 4096];
/// Bytes of the longest frame that finds room.
pub(in super::super) const LONGEST: u32 = ROOMS[1] - HEADROOM;

/// A frame that is ours: neither free nor the kernel's.
#[derive(Debug)]
pub struct Frame {
    address: u64,
    len: u32,
}

impl Frame {
    pub(super) fn new(address: u64, len: u32) -> Self {
        Self { address, len }
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Its length on the wire, bytes, Ethernet's header included.
    #[allow(clippy::len_without_is_empty)] // no frame is
    pub fn len(&self) -> u32 {
        self.len
    }
}

/// All frames.
#[derive(Debug)]
pub struct Frames {
    base: NonNull<u8>,
    room: u32,
    count: u32,
    free: Vec<u64>,
}

// SAFETY: nothing of it belongs to a thread, and it is used through one owner.
unsafe impl Send for Frames {}

impl Frames {
    /// So many, each with room for this many bytes, at most [`LONGEST`].
    pub(in super::super) fn allocate(count: u32, longest: u32) -> Result<Self, Error> {
        let fits = |room: &u32| room - HEADROOM >= longest;
        let room = ROOMS.into_iter().find(fits).unwrap_or(ROOMS[1]);
        let length = room as usize * count as usize;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let base =
            unsafe { mmap_anonymous(ptr::null_mut(), length, protection, MapFlags::PRIVATE) };
        let doing = "allocating the frames";
        let base = base.map_err(|errno| Error::io(doing)(errno.into()))?;
        Ok(Self {
            base: NonNull::new(base.cast()).ok_or_else(|| Error::Refused(doing.into()))?,
            room,
            count,
            free: (0..u64::from(count)).map(|i| i * u64::from(room)).collect(),
        })
    }

    pub(super) fn registration(&self) -> XdpUmemReg {
        XdpUmemReg {
            addr: self.base.as_ptr() as u64,
            len: u64::from(self.room) * u64::from(self.count),
            chunk_size: self.room,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn take(&mut self) -> Option<Frame> {
        self.free.pop().map(|address| Frame::new(address, 0))
    }

    /// It is free again.
    pub fn put_back(&mut self, frame: Frame) {
        // the kernel puts a frame's bytes behind its headroom
        let room = u64::from(self.room);
        self.free.push(frame.address / room * room);
    }

    /// What is in it, from Ethernet's header on.
    pub fn bytes(&self, frame: &Frame) -> &[u8] {
        let (at, len) = self.place(frame);
        // SAFETY: it is within the mapping; neither the kernel nor another frame has these bytes.
        unsafe { slice::from_raw_parts(self.base.as_ptr().add(at), len) }
    }

    /// The same, to be changed.
    pub fn bytes_mut(&mut self, frame: &mut Frame) -> &mut [u8] {
        let (at, len) = self.place(frame);
        // SAFETY: as above, and nobody else has this frame or these frames.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr().add(at), len) }
    }

    /// Where it is in the mapping, and how long.
    fn place(&self, frame: &Frame) -> (usize, usize) {
        let (address, len) = (frame.address as usize, frame.len as usize);
        let end = address.checked_add(len);
        let area = self.room as usize * self.count as usize;
        assert!(
            end.is_some_and(|end| end <= area),
            "a frame of other memory"
        );
        (address, len)
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let length = self.room as usize * self.count as usize;
        // SAFETY: it is our mapping. Sockets that are still open keep the pages, not the mapping.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), length) };
    }
}
