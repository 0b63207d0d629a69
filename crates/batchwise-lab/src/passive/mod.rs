//! The experiments of `batchwise passive`, and what they share: who observes, who loads, and the
//! baselines.

pub mod accuracy;
pub mod capture;
pub mod cost;
pub mod figures;
pub mod heuristics;
pub mod modes;
pub mod observer;
pub mod robustness;
pub mod tcp_probe;
pub mod transports;
pub mod trial;
pub mod workload;
