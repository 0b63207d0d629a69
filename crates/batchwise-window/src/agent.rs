//! The agent as a set knows it: looked for, found, and lost.

use std::io;
use std::sync::Arc;

use crate::layout::Slot;
use crate::link::Link;
use crate::timer::now;

/// An agent is looked for so often, ns; …
const LOOK: u64 = 1_000_000_000;
/// … one that did not answer in time, so often.
const BUSY: u64 = 2 * LOOK;

/// Who rings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The agent has the kernel ring when TCP can send.
    Agent,
    /// There is no agent, for this reason: the kernel rings when nothing waits any more
    /// (`TCP_NOTSENT_LOWAT`), and up to two segments more than TCP can send are handed over.
    Fallback(String),
    /// The socket is in no set, for this reason: a write takes what the buffer has room for.
    Unwindowed(String),
}

pub struct Agent {
    link: Option<Arc<Link>>,
    /// Links so far: the number of the one that there is.
    pub links: u32,
    /// Why there is none.
    why: String,
    /// When one is looked for next, ns.
    look_at: u64,
}

/// Up to a quarter sooner, so that many applications do not ask together.
fn after(pause: u64) -> u64 {
    let now = now();
    now + pause - now % (pause / 4)
}

impl Agent {
    /// Not looked for yet.
    pub fn new() -> Self {
        Self {
            link: None,
            links: 0,
            why: String::new(),
            look_at: 0,
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

    /// Whether one is to be looked for: there is none, it is time, and nobody else looks.
    pub fn is_wanted(&mut self) -> bool {
        let wanted = self.link.is_none() && now() >= self.look_at;
        if wanted {
            self.look_at = after(LOOK);
        }
        wanted
    }

    /// What came of looking for one.
    pub fn found(&mut self, looked: io::Result<Link>) {
        let mut pause = LOOK;
        match looked {
            Ok(link) => {
                self.link = Some(Arc::new(link));
                self.links += 1;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                "the agent does not answer".clone_into(&mut self.why);
                pause = BUSY;
            }
            Err(error) => self.why = error.to_string(),
        }
        self.look_at = after(pause);
    }

    /// The link that there was, if the agent has hung up.
    pub fn lose_dead(&mut self) -> io::Result<Option<Arc<Link>>> {
        if !self
            .link
            .as_ref()
            .map_or(Ok(false), |link| link.is_dead())?
        {
            return Ok(None);
        }
        "the agent ended".clone_into(&mut self.why);
        self.look_at = after(LOOK);
        Ok(self.link.take())
    }
}
