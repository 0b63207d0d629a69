//! What readings of hints add up to, by service and by connection.

use std::collections::HashMap;
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

/// What a hint is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum About {
    /// All requests to a service, …
    Service(SocketAddr),
    /// … without those on connections that have a hint of their own.
    Remainder(SocketAddr),
    /// Those on the connection of this cookie.
    Connection(u64),
}

/// Hints by whom they are about, over one interval.
#[derive(Clone, Debug, Default)]
pub struct HintWindows {
    windows: HashMap<About, Window>,
    /// When it ended, ns, CLOCK_MONOTONIC.
    pub(super) at: u64,
}

impl HintWindows {
    /// All requests to a service.
    pub fn of_service(&self, service: &SocketAddr) -> Option<&Window> {
        self.windows.get(&About::Service(*service))
    }

    /// The requests on a connection that has its own hint.
    pub fn of_connection(&self, cookie: u64) -> Option<&Window> {
        self.windows.get(&About::Connection(cookie))
    }

    /// The requests to a service on connections that have no hint of their own.
    pub(super) fn of_whole_service(&self, service: &SocketAddr) -> Option<&Window> {
        self.windows.get(&About::Remainder(*service))
    }

    /// Adds the interval that followed.
    pub(super) fn add(&mut self, next: &Self) {
        for (about, window) in &next.windows {
            let so_far = self.windows.entry(*about).or_default();
            so_far.time += window.time;
            so_far.integral = so_far.integral.saturating_add(window.integral);
            so_far.total = so_far.total.saturating_add(window.total);
        }
        self.at = next.at;
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
            let own = r
                .cookie
                .map_or(About::Remainder(r.service), About::Connection);
            for about in [About::Service(r.service), own] {
                windows.windows.entry(about).or_default().add(&window);
            }
            windows.at = windows.at.max(r.at);
            seen.insert(r.id, r.queue);
        }
        self.previous = seen;
        windows
    }
}
