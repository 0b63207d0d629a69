//! Agents at the ends of TCP connections. `make test` runs the others beside these.

mod hints;
mod tune;
mod watch;
mod window;
