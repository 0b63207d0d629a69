//! A thread of the agent: it is told what to look after, and tells what it finds. One that has ended
//! ends the agent too, which can be started again: packets are forwarded meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::frame::clock::monotonic_ns;

/// A worker's loop goes round at least so often, …
pub const ROUND: Duration = Duration::from_secs(1);
/// … and hangs if it has not for so long.
const HUNG: Duration = Duration::from_secs(5);
/// Who is told nothing any more ends within this time, or is left behind: the agent's end must not hang with it.
const GOODBYE: Duration = Duration::from_secs(2);

/// That the worker's loop goes round.
#[derive(Clone)]
pub struct Pulse(Arc<AtomicU64>);

impl Pulse {
    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(monotonic_ns())))
    }

    pub fn beat(&self) {
        self.0.store(monotonic_ns(), Ordering::Relaxed);
    }

    fn age(&self) -> Duration {
        let last = self.0.load(Ordering::Relaxed);
        Duration::from_nanos(monotonic_ns().saturating_sub(last))
    }
}

/// Told `I`, finds `O`.
pub struct Worker<I, O> {
    name: &'static str,
    wanted: Option<UnboundedSender<I>>,
    found: Receiver<O>,
    pulse: Pulse,
    thread: JoinHandle<()>,
}

impl<I: Send + 'static, O: Send + 'static> Worker<I, O> {
    /// Starts the thread, in the calling thread's network namespace. `work` is to return when nobody
    /// can tell it anything any more, and
    /// to beat each [`ROUND`].
    pub fn start(
        name: &'static str,
        work: impl FnOnce(UnboundedReceiver<I>, Sender<O>, &Pulse) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let (wanted, told) = unbounded_channel();
        let (tell, found) = channel();
        let pulse = Pulse::new();
        let beats = pulse.clone();
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(told, tell, &beats))
            .with_context(|| format!("starting the thread {name:?}"))?;
        Ok(Self {
            name,
            wanted: Some(wanted),
            found,
            pulse,
            thread,
        })
    }

    /// Its loop goes round; it may have ended.
    pub fn is_well(&self) -> bool {
        self.pulse.age() < HUNG
    }

    /// From now on this is looked after.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn want(&self, wanted: I) -> anyhow::Result<()> {
        let sent = self.wanted.as_ref().map(|w| w.send(wanted));
        ensure!(matches!(sent, Some(Ok(()))), ended(self.name));
        Ok(())
    }

    /// What it found since the last call.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn found(&self) -> anyhow::Result<Vec<O>> {
        ensure!(!self.thread.is_finished(), ended(self.name));
        Ok(self.found.try_iter().collect())
    }
}

fn ended(name: &str) -> String {
    format!("the thread {name:?} has ended, without which there can be no agent: start it again")
}

impl<I, O> Drop for Worker<I, O> {
    fn drop(&mut self) {
        self.wanted = None;
        let end = Instant::now() + GOODBYE;
        while !self.thread.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_worker_that_hangs_is_left_behind() {
        let (free, hang) = mpsc::channel::<()>();
        let work = move |_: UnboundedReceiver<()>, _: Sender<()>, _: &Pulse| {
            // until the test is over
            let _ = hang.recv();
        };
        drop(Worker::start("one that hangs", work).expect("a thread"));
        drop(free);
    }
}
