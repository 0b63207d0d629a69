//! Where metrics go: to who asks for them, and to a collector.

#[cfg(test)]
use std::net::SocketAddr;

use super::Metrics;
use super::http::Server;
use super::push::Pusher;
use super::store::{Store, lock};
use crate::frame::clock::{process_cpu, wall_clock_ns};

/// Until it is dropped.
pub struct Exporter<M> {
    store: Store<M>,
    _server: Option<Server>,
    _pusher: Option<Pusher>,
}

impl<M: Metrics> Exporter<M> {
    /// Serves at this address, and pushes to this collector. None: neither.
    pub fn open(address: Option<&str>, collector: Option<&str>) -> anyhow::Result<Option<Self>> {
        let store = Store::<M>::default();
        let server = address.map(|address| Server::bind(address, &store));
        let pusher = collector.map(|url| Pusher::start(url, &store));
        let exporter = Self {
            _server: server.transpose()?,
            _pusher: pusher.transpose()?,
            store,
        };
        Ok((address.is_some() || collector.is_some()).then_some(exporter))
    }

    pub fn update(&self, change: impl FnOnce(&mut M)) {
        let mut state = lock(&self.store);
        change(&mut state.metrics);
        state.version += 1;
        state.heartbeat_ns = Some(wall_clock_ns());
        state.cpu_seconds = process_cpu().ok().map(|spent| spent.as_secs_f64());
    }

    #[cfg(test)]
    pub fn bind(address: &str) -> anyhow::Result<Self> {
        let exporter = Self::open(Some(address), None)?;
        exporter.ok_or_else(|| anyhow::anyhow!("it is served"))
    }

    #[cfg(test)]
    pub fn address(&self) -> Option<SocketAddr> {
        self._server.as_ref().map(|server| server.address)
    }
}
