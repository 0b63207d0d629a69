//! The contracts of docs/architecture.md: what the commands printed before they were rearranged is
//! held against what they print now. A contract may grow, so that more is no failure; less is.
//!
//! `recorded/` was made with an older program. A new contract is recorded with the current one:
//! BATCHWISE_RECORD=1 writes the files that are missing. What depends on how a run goes is then put in
//! parentheses by hand. Needs root.

mod shape;
mod site;

mod balance;
mod burst;
mod decap;
mod doctor;
mod load;
mod metrics;
mod passive;
mod profile;
mod tune;
mod usage;
mod watch;
mod window;
