//! Agents at the ends of TCP connections. `make test` runs these beside the others.

mod hints;
mod tune;
mod watch;
mod window;
