//! The experiments of `batchwise passive`. Four are lists of trials on the triangle ([`trials`]):
//! [`accuracy`], [`robustness`], [`transports`], [`heuristics`]; [`cost`] is of packets, [`modes`] of
//! simulated flows.

pub(crate) mod accuracy;
pub(crate) mod capture;
pub(crate) mod cost;
pub(crate) mod curves;
pub(crate) mod heuristics;
pub(crate) mod modes;
pub(crate) mod observer;
pub(crate) mod robustness;
pub(crate) mod tcp_probe;
pub(crate) mod transports;
pub(crate) mod trial;
pub(crate) mod trials;
pub(crate) mod workload;
