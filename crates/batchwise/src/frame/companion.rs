//! A thread that works beside an agent's loop, until what it works for is dropped.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use anyhow::Context as _;

/// Until it is dropped.
#[derive(Debug)]
pub struct Companion {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Companion {
    /// The work ends when the receiver's other end is gone.
    pub fn start(
        name: &str,
        work: impl FnOnce(Receiver<()>) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(stopped));
        let thread = thread.with_context(|| format!("cannot start the thread {name}"))?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // a panic in the thread has been printed
            let _ = thread.join();
        }
    }
}
