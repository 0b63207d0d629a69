//! The library on real sockets, and its doorbell model-checked.

mod alone;
mod doorbell;
