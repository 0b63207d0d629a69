//! The process's set for streams, and the thread that wakes their tasks: it belongs to no runtime.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::task::Waker;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};

use crate::key::Key;
use crate::set::Set;

pub struct Driver {
    pub set: Set,
    wakers: Mutex<HashMap<Key, Waker>>,
}

impl Driver {
    /// The process's; the first call starts its thread. A child that was forked has one of its own.
    pub fn get() -> io::Result<&'static Self> {
        static DRIVER: Mutex<Option<(u32, &'static Driver)>> = Mutex::new(None);
        let mut current = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if let Some((of, driver)) = *current
            && of == process
        {
            return Ok(driver);
        }
        let driver: &'static Self = Box::leak(Box::new(Self {
            set: Set::new()?,
            wakers: Mutex::default(),
        }));
        let builder = thread::Builder::new().name("batchwise-window".to_owned());
        builder.spawn(|| driver.run())?;
        *current = Some((process, driver));
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
