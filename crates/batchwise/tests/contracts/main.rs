//! The contracts of docs/architecture.md: what the commands printed before they were rearranged is
//! held against what they print now. A contract may grow, so that more is no failure; less is.
//!
//! `recorded/` was made by these same tests with an older program:
//! `BATCHWISE_RECORD=/path/to/older/batchwise cargo test -p batchwise --test contracts`, several
//! times, since each run keeps of the demands only what was seen in all, and allows what was seen in
//! any. Then what the older program's types call optional was allowed to be null, and words that
//! depend on how a run goes are no longer waited for. A new contract is recorded the same way with the
//! current program. Needs root, and bpffs at /sys/fs/bpf.

mod shape;
mod site;

mod balance;
mod decap;
mod doctor;
mod load;
mod metrics;
mod passive;
mod tune;
mod usage;
mod watch;
