//! Bursts that a queue takes whole or not at all: how a burst is told of ([`mark`]), and what a router
//! promises to it ([`Admission`]). From *Improving TCP latency with super-packets* (Schinazi), section 3,
//! with the holes of its algorithm mended (`docs/research/superpackets.md`); [`algorithm1`] is as it was
//! published.

mod admission;
pub mod algorithm1;
mod credit;
mod decide;
pub mod mark;
mod reserved;
mod rules;
mod slots;

pub use admission::{Admission, Sender};
pub use credit::Credit;
pub use decide::{Lease, Packet, Verdict, decide};
pub use reserved::{EPOCHS, Reserved};
pub use rules::Rules;
