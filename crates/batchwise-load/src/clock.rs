//! The one clock of a run: nanoseconds of CLOCK_MONOTONIC since the run began, and how they map
//! to the wall clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time to start the generator's thread in.
const LEAD: Duration = Duration::from_millis(10);

/// Monotonic nanoseconds since the start of the run, which is a moment after the clock is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    base: Instant,
    wall_base_ns: u64,
}

impl Clock {
    pub fn start() -> Self {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            base: Instant::now() + LEAD,
            wall_base_ns: (wall + LEAD).as_nanos() as u64,
        }
    }

    /// Keeps the CPU busy until the run starts.
    pub fn wait_for_start(&self) {
        while self.now() == 0 {
            std::hint::spin_loop();
        }
    }

    /// Nanoseconds since the start; 0 before it.
    pub fn now(&self) -> u64 {
        let elapsed = self.base.elapsed();
        elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos())
    }

    /// The wall-clock time, ns since the Unix epoch, at `ns` after the start.
    pub fn wall(&self, ns: u64) -> u64 {
        self.wall_base_ns + ns
    }
}
