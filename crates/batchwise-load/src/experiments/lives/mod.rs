//! Connections of random life whose sender writes when TCP can send: sizes, pauses, readers that do not read,
//! resets. What counts is that every byte arrives, and that nobody sleeps who could send.

mod receive;
mod send;

pub use receive::{ReceiveConfig, ReceiveReport, receive};
pub use send::{SendConfig, SendReport, send};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// Bytes of a life's head: how many follow, and its seed.
const HEAD: usize = 16;
/// Bytes of the receiver's word at the end.
const WORD: usize = 8;

/// What a receiver does with a connection; both ends know it from the seed.
struct Habits {
    rng: StdRng,
    /// Bytes after which it resets the connection, if it does.
    reset_at: Option<u64>,
    /// Bytes of its receive buffer, if it asks for fewer.
    buffer: Option<usize>,
}

impl Habits {
    fn of(seed: u64, size: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let reset_at = rng.random_bool(0.05).then(|| rng.random_range(0..size));
        let buffer = rng
            .random_bool(0.5)
            .then(|| rng.random_range(2_304..16_384));
        Self {
            rng,
            reset_at,
            buffer,
        }
    }
}

/// The byte at this place of a life.
fn byte(seed: u64, at: u64) -> u8 {
    (seed ^ at ^ (at >> 8)) as u8
}
