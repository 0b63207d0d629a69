//! What a balancer decides: [`standardise`] makes servers' latencies comparable, [`controller`] turns
//! them into weights, [`maglev`] turns weights into a table of slots, [`report`] has the lines that are
//! printed. docs/research/balance.md says why.

pub mod controller;
pub mod maglev;
pub mod report;
pub mod standardise;

pub use controller::{Controller, Observed, UNIT, Verdict, Why};
pub use maglev::{BackendId, Member, SLOTS};
pub use standardise::{Observation, standardise};
