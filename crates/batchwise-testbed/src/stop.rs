//! Being told to stop: Ctrl-C and SIGTERM set a flag that every wait of the lab looks at, so that
//! the ordinary path out of a run, which cleans up, is the only one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// How often a wait looks at the flag.
pub const POLL: Duration = Duration::from_millis(20);

/// The error of a run that was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped by a signal; what was measured so far is kept")
    }
}

impl std::error::Error for Stopped {}

/// A flag that SIGINT, SIGTERM and SIGHUP set.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A flag that signals set from now on.
    pub fn install() -> Result<Self> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, stop.0.clone())
                .with_context(|| format!("registering a handler for signal {signal}"))?;
        }
        Ok(stop)
    }

    /// Sets the flag, as a signal would.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Fails with [`Stopped`] once the flag is set.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            Err(Stopped.into())
        } else {
            Ok(())
        }
    }

    /// Sleeps, or fails with [`Stopped`] soon after the flag is set.
    pub fn sleep(&self, duration: Duration) -> Result<()> {
        self.wait_until(duration, || Ok(None::<()>)).map(|_| ())
    }

    /// Asks `ready` until it gives something (`Some`) or `limit` has passed (`None`).
    pub fn wait_until<T>(
        &self,
        limit: Duration,
        mut ready: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let end = Instant::now() + limit;
        loop {
            self.check()?;
            if let Some(found) = ready()? {
                return Ok(Some(found));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(POLL.min(left));
        }
    }
}

/// Work in a thread of its own; told to stop, and waited for, when dropped.
#[derive(Debug)]
pub(crate) struct Background<T> {
    stop: Stop,
    thread: Option<JoinHandle<Result<T>>>,
}

impl<T: Send + 'static> Background<T> {
    /// Begins `work`, which is to end soon after its flag is set.
    pub(crate) fn start(work: impl FnOnce(&Stop) -> Result<T> + Send + 'static) -> Self {
        let stop = Stop::default();
        let own = stop.clone();
        let thread = Some(std::thread::spawn(move || work(&own)));
        Self { stop, thread }
    }

    /// Tells it to stop; what it came to.
    pub(crate) fn finish(mut self) -> Result<T> {
        self.stop.set();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(done)) => done,
            _ => bail!("a thread panicked"),
        }
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            tracing::warn!("{error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_an_error_once_the_flag_is_set() {
        let stop = Stop::default();
        stop.set();
        let error = stop.sleep(Duration::from_secs(3600)).unwrap_err();
        assert!(error.is::<Stopped>());
    }

    #[test]
    fn a_wait_that_runs_out_of_time_gives_nothing() {
        let found = Stop::default()
            .wait_until(Duration::ZERO, || Ok(None::<u8>))
            .unwrap();
        assert_eq!(found, None);
    }
}
