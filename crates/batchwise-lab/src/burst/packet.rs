//! What travels: packets, the mark of their burst, acknowledgments.

/// A packet on its way to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub flow: u32,
    pub source: u32,
    /// On the wire.
    pub bytes: u32,
    pub kind: Kind,
    pub burst: Option<Burst>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Syn,
    /// The segment of this number.
    Data(u32),
    /// Nobody waits for it.
    Noise,
}

/// What a packet says of its burst: to routers that know marks, and to the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Segments that are left, as the mark tells.
    pub segments: u32,
    /// The paper's identifier, length and flags.
    pub id: u32,
    pub length: u32,
    pub first: bool,
    pub last: bool,
}

impl Burst {
    /// The marks of the packets of a burst, in order, of which the mark says `claimed`.
    pub fn marks(id: u32, length: u32, claimed: u32) -> impl Iterator<Item = Option<Self>> {
        let class = batchwise_core::burst::mark::class(claimed);
        let segments = class.map(|c| batchwise_core::burst::mark::CLASSES[usize::from(c)].into());
        (0..length).map(move |index| {
            segments.map(|segments| Self {
                segments,
                id,
                length: claimed,
                first: index == 0,
                last: index + 1 == length,
            })
        })
    }
}

/// What the receiver answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// All segments before this one have arrived, ...
    pub upto: u32,
    /// ... and the one that caused the answer.
    pub seq: u32,
}
