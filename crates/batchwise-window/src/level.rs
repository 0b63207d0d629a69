//! What a set goes by between two questions to the kernel.

use std::sync::atomic::Ordering;

use crate::info::Info;
use crate::protocol::Slot;

/// Bytes that TCP can send, as of an acknowledgment.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    pub space: u32,
    /// The same, if the device would take it. Only what this lacks is told of by an acknowledgment.
    pub window: u32,
    /// [`Slot::events`] then: when it has changed, the slot knows better.
    pub events: u32,
}

impl Level {
    /// What the slot says.
    pub fn of(slot: &Slot, events: u32) -> Self {
        Self {
            space: slot.space.load(Ordering::Acquire),
            window: slot.window.load(Ordering::Acquire),
            events,
        }
    }

    /// What the kernel says, and whether that is worth being woken for.
    pub fn asked(info: &Info, at_least: u32, events: u32) -> (Self, bool) {
        let ready = info.ready(at_least, 0);
        let space = ready.unwrap_or_else(|| info.space(0));
        let level = Self {
            space,
            window: info.allowed().max(space),
            events,
        };
        (level, ready.is_some())
    }

    /// After so many bytes were written.
    pub fn less(self, bytes: u32) -> Self {
        Self {
            space: self.space.saturating_sub(bytes),
            window: self.window.saturating_sub(bytes),
            ..self
        }
    }
}
