//! Bursts that are admitted whole or not at all: senders mark them (`mark.bpf.c`), routers admit them
//! (`admit.bpf.c`), and where the network that knows marks ends they are taken off.

mod admit;
mod mark;

pub use admit::{Admitter, Bottleneck, Counts, Leave, OWN_KIND, Source};
pub use mark::{MarkFates, Marker, Marking};
