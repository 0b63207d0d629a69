//! The process's set for streams, and the thread that wakes their tasks: it belongs to no runtime.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};

use crate::set::{Key, Set};

pub struct Driver {
    pub set: Set,
    wakers: Mutex<HashMap<Key, Waker>>,
}

impl Driver {
    /// The process's; the first call starts its thread.
    pub fn get() -> io::Result<&'static Self> {
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        static STARTING: Mutex<()> = Mutex::new(());
        let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = DRIVER.get() {
            return Ok(driver);
        }
        let set = Set::new()?;
        let driver = DRIVER.get_or_init(|| Self {
            set,
            wakers: Mutex::default(),
        });
        let builder = thread::Builder::new().name("batchwise-window".to_owned());
        builder.spawn(|| driver.run())?;
        Ok(driver)
    }

    /// Whoever is to be woken when the key is ready.
    pub fn wake(&self, key: Key, waker: &Waker) {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.insert(key, waker.clone());
    }

    pub fn forget(&self, key: Key) {
        self.set.remove(key);
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.remove(&key);
    }

    fn run(&self) {
        let mut keys = Vec::new();
        loop {
            let mut fds = [PollFd::new(&self.set, PollFlags::IN)];
            // an interruption is as good as an event: there may be nothing to take
            let _ = poll(&mut fds, None);
            // what fails here fails in `wait` as well, where there is somebody to tell
            let _ = self.set.ready(&mut keys);
            let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
            let woken: Vec<Waker> = keys.drain(..).filter_map(|k| wakers.remove(&k)).collect();
            drop(wakers);
            woken.into_iter().for_each(Waker::wake);
        }
    }
}
