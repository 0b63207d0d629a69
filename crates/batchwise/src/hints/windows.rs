//! What readings of hints add up to, by service and by connection.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::SocketAddr;

use batchwise_core::sense::queue::{QueueState, Window};

/// What one handle of an application says at one time. The difference of two `queue`s of one `id`
/// gives the latency in between ([`QueueState::since`], [`Window::delay`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintReading {
    /// The listener's number for the handle; never used again.
    pub id: u64,
    /// The kernel's cookie of the connection's socket; `None` for a hint of a whole service.
    pub cookie: Option<u64>,
    /// The server's address, as the client sees it.
    pub service: SocketAddr,
    /// When counting began, ns, CLOCK_MONOTONIC; `queue` was empty of integral and total then.
    pub born: u64,
    /// When it was read, ns, CLOCK_MONOTONIC.
    pub at: u64,
    /// Requests that the application waits for.
    pub queue: QueueState,
}

/// Hints by whom they are about, over one interval.
#[derive(Clone, Debug, Default)]
pub struct HintWindows {
    by_service: HashMap<SocketAddr, Window>,
    by_cookie: HashMap<u64, Window>,
    /// Without the hints that are of one connection.
    whole_service: HashMap<SocketAddr, Window>,
    /// When it ended, ns, CLOCK_MONOTONIC.
    pub(super) at: u64,
}

impl HintWindows {
    /// All requests to a service.
    pub fn of_service(&self, service: &SocketAddr) -> Option<&Window> {
        self.by_service.get(service)
    }

    /// The requests on a connection that has its own hint.
    pub fn of_connection(&self, cookie: u64) -> Option<&Window> {
        self.by_cookie.get(&cookie)
    }

    /// The requests to a service on connections that have no hint of their own.
    pub(super) fn of_whole_service(&self, service: &SocketAddr) -> Option<&Window> {
        self.whole_service.get(service)
    }

    /// Adds the interval that followed.
    pub(super) fn add(&mut self, next: &Self) {
        merge(&mut self.by_service, &next.by_service);
        merge(&mut self.by_cookie, &next.by_cookie);
        merge(&mut self.whole_service, &next.whole_service);
        self.at = next.at;
    }
}

fn merge<K: Copy + Eq + Hash>(all: &mut HashMap<K, Window>, next: &HashMap<K, Window>) {
    for (key, window) in next {
        let so_far = all.entry(*key).or_default();
        so_far.time += window.time;
        so_far.integral = so_far.integral.saturating_add(window.integral);
        so_far.total = so_far.total.saturating_add(window.total);
    }
}

#[derive(Debug, Default)]
pub struct HintHistory {
    previous: HashMap<u64, QueueState>,
}

impl HintHistory {
    /// What happened since the readings before these.
    pub fn windows(&mut self, readings: &[HintReading]) -> HintWindows {
        let mut windows = HintWindows::default();
        let mut seen = HashMap::with_capacity(readings.len());
        for r in readings {
            let begin = QueueState::new(r.born);
            let window = r.queue.since(self.previous.get(&r.id).unwrap_or(&begin));
            let of_service = windows.by_service.entry(r.service);
            of_service.or_default().add(&window);
            let own = match r.cookie {
                Some(cookie) => windows.by_cookie.entry(cookie).or_default(),
                None => windows.whole_service.entry(r.service).or_default(),
            };
            own.add(&window);
            windows.at = windows.at.max(r.at);
            seen.insert(r.id, r.queue);
        }
        self.previous = seen;
        windows
    }
}
