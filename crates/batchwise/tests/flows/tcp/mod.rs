//! Agents at the ends of TCP connections. `make test` runs these beside all other tests.

mod hints;
mod tune;
mod watch;
mod window;
