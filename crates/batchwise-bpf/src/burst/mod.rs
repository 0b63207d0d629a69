//! Bursts that are admitted whole or not at all: senders mark them (`mark.bpf.c`), routers admit them
//! (`admit.bpf.c`), and where the network that knows marks ends they are taken off.
//! The forwarder in user space (`forward.bpf.c`) is a router that has the queue itself.

mod admit;
pub mod forward;
mod mark;
mod xsk;

pub use admit::{Admitter, Bottleneck, Counts, Leave, OWN_KIND, Source};
pub use mark::{MarkFates, Marker, Marking};
