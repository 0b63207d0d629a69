//! What an agent tells of itself: changed by its loop, and read by who is asked for it or pushes it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is served, and how often it has changed.
#[derive(Default)]
pub struct State<M> {
    pub metrics: M,
    pub version: u64,
    /// When it changed last, ns since 1970.
    pub heartbeat_ns: Option<u64>,
    /// CPU time that this process has used by then.
    pub cpu_seconds: Option<f64>,
    /// Exports that a collector did not take; None: there is no collector.
    pub failures: Option<u64>,
}

pub type Store<M> = Arc<Mutex<State<M>>>;

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
