//! What a set calls a socket.

/// A socket of a [`Set`](crate::Set). It stays one until it is removed, also if it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub(crate) slot: u32,
    /// The slot was used before.
    pub(crate) turn: u32,
}

impl Key {
    /// For C: never negative.
    pub(crate) fn to_number(self) -> i64 {
        i64::from(self.turn) << 32 | i64::from(self.slot)
    }

    pub(crate) fn from_number(number: i64) -> Self {
        Self {
            slot: number as u32,
            turn: (number >> 32) as u32,
        }
    }
}
