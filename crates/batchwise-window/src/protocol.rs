//! What library and agent say to each other over a Unix socket (SOCK_SEQPACKET).

/// Both ends must speak the same.
pub const VERSION: u32 = 6;
/// Begins every message.
pub const MAGIC: u32 = 0x6277_7764;
/// Sockets of one application; slot 0 is none's.
pub const MOST_SLOTS: u32 = 16_384;

/// What the library asks, after its first message, each with the socket's descriptor: that it be
/// registered. The first message has no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Ask {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u32,
    /// The slot that it is to have; in the first message how many there are to be.
    pub slot: u32,
    /// The turn of the slot, which says so, too.
    pub turn: u32,
}

/// What the agent answers. To the first message with a descriptor: the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Answer {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u32,
    /// 0, or an `errno`.
    pub error: u32,
}
