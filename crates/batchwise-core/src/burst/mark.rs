//! How a burst is told of: a DSCP that says how many segments of it are left, this packet included. All
//! segments that are cut from one GSO buffer bear the same mark.

/// The classes of length, in segments. A length is rounded up to the next, by less than a quarter.
pub const CLASSES: [u8; 16] = [2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 56, 64];

/// The bits of a code point that all of pool 2 share, experimental or local use: xxxx11 (RFC 2474, section 6).
const POOL: u8 = 0b11;
/// The ECN bits of an IPv4 TOS byte and of an IPv6 traffic class (RFC 3168, section 5).
const ECN: u8 = 0b11;

/// The class of a burst of so many segments. `None`: one segment is no burst.
pub fn class(segments: u32) -> Option<u8> {
    let longer = CLASSES.iter().position(|&c| u32::from(c) >= segments);
    // what is longer than the longest class is told of in parts
    let class = longer.unwrap_or(CLASSES.len() - 1) as u8;
    (segments >= 2).then_some(class)
}

/// The TOS or traffic class of a packet of such a burst. `None`: it stays as it is, as others use its
/// DSCP, or as one segment is no burst.
pub fn mark(tos: u8, segments: u32) -> Option<u8> {
    let unused = tos & !ECN == 0;
    let class = class(segments).filter(|_| unused)?;
    Some((class << 2 | POOL) << 2 | tos)
}

/// Segments that are left of the burst, from a packet's TOS or traffic class. `None`: it is not marked.
pub fn segments(tos: u8) -> Option<u32> {
    let dscp = tos >> 2;
    (dscp & POOL == POOL).then(|| CLASSES[usize::from(dscp >> 2)].into())
}

/// What it was before it was marked: for the border.
pub fn unmark(tos: u8) -> u8 {
    match segments(tos) {
        Some(_) => tos & ECN,
        None => tos,
    }
}
