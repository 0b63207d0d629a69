//! Experiment `regret`.
#![allow(missing_docs)]
pub mod costs;
pub mod policies;
pub mod requests;
pub mod run;
pub mod scenarios;
#[cfg(test)]
mod tests;
pub mod world;
