//! The experiments of `batchwise passive`. Four are lists of trials on the triangle ([`trials`]):
//! [`accuracy`], [`robustness`], [`transports`], [`heuristics`]; [`cost`] is of packets, [`modes`] of
//! simulated flows.

pub mod accuracy;
pub mod capture;
pub mod cost;
pub mod curves;
pub mod heuristics;
pub mod modes;
pub mod observer;
pub mod robustness;
pub mod tcp_probe;
pub mod transports;
pub mod trial;
pub mod trials;
pub mod workload;
