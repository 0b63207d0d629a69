//! What systemd is told of an agent that it started with `Type=notify`: that it is ready, that its loop
//! goes round, that it ends. Whoever started it otherwise (no NOTIFY_SOCKET) is told nothing.

use std::time::{Duration, Instant};

use sd_notify::{NotifyState, notify, watchdog_enabled};

/// Signs of life in the time after which systemd takes the agent for hung: one may come late.
const SIGNS: u32 = 3;

pub struct Supervisor {
    /// When it was last told anything; `None`: not even that the agent is ready.
    told: Option<Instant>,
    /// Between two signs of life, if any are wanted.
    every: Option<Duration>,
    stopping: bool,
}

impl Supervisor {
    /// What the environment says.
    pub fn new() -> Self {
        Self {
            told: None,
            every: watchdog_enabled().map(|patience| patience / SIGNS),
            stopping: false,
        }
    }

    /// The loop goes round. When it does so first, programs are attached and outputs are open.
    pub fn alive(&mut self) {
        let now = Instant::now();
        let Some(told) = self.told else {
            self.told = Some(now);
            return tell(&[NotifyState::Ready]);
        };
        if self.every.is_some_and(|every| now - told >= every) {
            self.told = Some(now);
            tell(&[NotifyState::Watchdog]);
        }
    }

    /// The loop ends.
    pub fn stopping(&mut self) {
        if self.told.is_some() && !self.stopping {
            self.stopping = true;
            tell(&[NotifyState::Stopping]);
        }
    }
}

impl Drop for Supervisor {
    /// Not every loop ends in order.
    fn drop(&mut self) {
        self.stopping();
    }
}

/// Does what reads files again; until then the agent is reloading.
pub fn reloading<T>(work: impl FnOnce() -> T) -> T {
    // systemd wants to know since when
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
    let done = work();
    tell(&[NotifyState::Ready]);
    done
}

fn tell(what: &[NotifyState<'_>]) {
    if let Err(error) = notify(what) {
        tracing::warn!("systemd cannot be told how this agent is (NOTIFY_SOCKET): {error}");
    }
}
