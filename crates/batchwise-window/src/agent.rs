//! The agent as a set knows it: looked for, found, and lost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::link::Link;
use crate::protocol::Slot;
use crate::set::Mode;
use crate::timer::now;

/// An agent is looked for so often, ns; …
const LOOK: u64 = 1_000_000_000;
/// … one that lets us wait ever less often, down to this.
const LONGEST_PAUSE: u64 = 64 * LOOK;

pub struct Agent {
    link: Option<Arc<Link>>,
    /// Links so far: the number of the one that there is.
    pub links: u32,
    /// Why there is none.
    why: String,
    /// When one is looked for next, ns, …
    look_at: u64,
    /// … and how long after that, if it lets us wait.
    pause: u64,
    /// Doorbells that found no room, as last seen.
    lost: u32,
}

impl Agent {
    /// Not looked for yet.
    pub fn new() -> Self {
        Self {
            link: None,
            links: 0,
            why: String::new(),
            look_at: 0,
            pause: LOOK,
            lost: 0,
        }
    }

    /// The link to it, if there is one.
    pub fn link(&self) -> Option<Arc<Link>> {
        self.link.clone()
    }

    /// A slot of the memory that we share through it.
    pub fn slot(&self, index: u32) -> Option<&Slot> {
        self.link.as_ref()?.slots.get(index)
    }

    /// Whether it is there, or why not.
    pub fn mode(&self) -> Mode {
        match self.link {
            Some(_) => Mode::Agent,
            None => Mode::Fallback(self.why.clone()),
        }
    }

    /// Looks for one if there is none and it is time; whoever finds one has `watch` listen to it.
    pub fn look(&mut self, watch: impl FnOnce(&Link) -> io::Result<()>) {
        if self.link.is_some() || now() < self.look_at {
            return;
        }
        match Link::reach().and_then(|link| watch(&link).map(|()| link)) {
            Ok(link) => {
                self.link = Some(Arc::new(link));
                self.links += 1;
                (self.lost, self.pause) = (0, LOOK);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                "the agent does not answer".clone_into(&mut self.why);
                self.pause = (2 * self.pause).min(LONGEST_PAUSE);
            }
            Err(error) => {
                self.why = error.to_string();
                self.pause = LOOK;
            }
        }
        self.look_at = now() + self.pause;
    }

    /// It has hung up: the link that there was.
    pub fn lose(&mut self) -> Option<Arc<Link>> {
        let link = self.link.take()?;
        "the agent ended".clone_into(&mut self.why);
        self.look_at = now() + self.pause;
        Some(link)
    }

    /// Whether bells found no room since the last call.
    pub fn has_lost_bells(&mut self) -> bool {
        let lost = self
            .slot(0)
            .map_or(0, |slot| slot.rung.load(Ordering::Relaxed));
        std::mem::replace(&mut self.lost, lost) != lost
    }
}
