//! The generators as a whole: against a server in a thread, with faults on demand, and against real ones.

mod faults;
mod servers;
mod support;
