//! Whole flows: the command in network namespaces, with real servers and clients, a module a subcommand.
//! Needs root. One binary, in which tests of timing take turns (`batchwise_testbed::stage::turn`).
//! `make test` leaves out what is in a module `long`; `make test-all` runs everything.

mod agents;
mod balance;
mod burst;
mod decap;
mod hostile;
mod passive;
mod profile;
mod siblings;
mod tcp;
mod terminal;
mod usage;
