//! When waiting sockets are looked at although nothing has rung: one descriptor for all of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use crate::key::Key;

pub struct Timer {
    fd: OwnedFd,
    /// The earliest first.
    deadlines: BinaryHeap<Reverse<(u64, Key)>>,
    /// When it goes off, ns; none: it does not.
    set_to: Option<u64>,
}

/// ns, CLOCK_MONOTONIC.
pub fn now() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl Timer {
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self {
            fd: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            deadlines: BinaryHeap::new(),
            set_to: None,
        })
    }

    pub fn add(&mut self, at: u64, key: Key) -> io::Result<()> {
        self.deadlines.push(Reverse((at, key)));
        match self.set_to {
            Some(earlier) if earlier <= at => Ok(()),
            _ => self.set(Some(at)),
        }
    }

    /// Whose time has come, of those that still wait for it.
    pub fn expired(
        &mut self,
        waits: impl Fn(u64, Key) -> bool,
        keys: &mut Vec<Key>,
    ) -> io::Result<()> {
        let now = now();
        while let Some(&Reverse((at, key))) = self.deadlines.peek() {
            let still = waits(at, key);
            if still && at > now {
                return self.set(Some(at));
            }
            self.deadlines.pop();
            keys.extend(still.then_some(key));
        }
        self.set(None)
    }

    /// To set it takes back that it has gone off.
    pub fn set(&mut self, at: Option<u64>) -> io::Result<()> {
        self.set_to = at;
        let at = at.map_or(0, |at| at.max(1));
        let it_value = Timespec {
            tv_sec: (at / 1_000_000_000) as i64,
            tv_nsec: (at % 1_000_000_000) as _,
        };
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value,
        };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
