//! How a burst is told of: a DSCP that says how many segments of it are left, this packet included. All
//! segments that are cut from one GSO buffer bear the same mark.

/// The classes of length, in segments. A length is rounded up to the next, by less than a quarter.
pub const CLASSES: [u8; 16] = [2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 56, 64];

/// The code points that marks have: the upper four bits are the class, the lower two are theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CodePoints {
    /// xxxx11: experimental or local use (pool 2 of RFC 2474, section 6).
    #[default]
    Pool2,
    /// xxxx01: was the same, and is for standards since RFC 8436. It has LE, 000001 (RFC 8622), which is
    /// class 0, and NQB, 101101, which is class 11.
    Pool3,
}

/// The ECN bits of an IPv4 TOS byte and of an IPv6 traffic class (RFC 3168, section 5).
const ECN: u8 = 0b11;
/// The bits of a code point that say whose it is.
const LOW: u8 = 0b11;

/// The class of a burst of so many segments. `None`: one segment is no burst.
pub fn class(segments: u32) -> Option<u8> {
    let longer = CLASSES.iter().position(|&c| u32::from(c) >= segments);
    // what is longer than the longest class is told of in parts
    let class = longer.unwrap_or(CLASSES.len() - 1) as u8;
    (segments >= 2).then_some(class)
}

impl CodePoints {
    /// All that there are.
    pub const ALL: [Self; 2] = [Self::Pool2, Self::Pool3];

    /// As they are written: the six bits.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pool2 => "xxxx11",
            Self::Pool3 => "xxxx01",
        }
    }

    /// The two bits that all of them share.
    pub fn low(self) -> u8 {
        match self {
            Self::Pool2 => 0b11,
            Self::Pool3 => 0b01,
        }
    }

    /// The TOS or traffic class of a packet of a burst of so many segments. `None`: it stays as it is, as
    /// others use its DSCP, or as one segment is no burst.
    pub fn mark(self, tos: u8, segments: u32) -> Option<u8> {
        let unused = tos & !ECN == 0;
        let class = class(segments).filter(|_| unused)?;
        Some((class << 2 | self.low()) << 2 | tos)
    }

    /// Segments that are left of the burst, from a packet's TOS or traffic class. `None`: it is not marked.
    pub fn segments(self, tos: u8) -> Option<u32> {
        let dscp = tos >> 2;
        (dscp & LOW == self.low()).then(|| CLASSES[usize::from(dscp >> 2)].into())
    }

    /// What it was before it was marked: for the border.
    pub fn unmark(self, tos: u8) -> u8 {
        match self.segments(tos) {
            Some(_) => tos & ECN,
            None => tos,
        }
    }
}
