//! What a set goes by between two questions to the kernel.

use std::sync::atomic::Ordering;

use crate::info::Info;
use crate::layout::Slot;

/// Bytes that TCP can send, as of an acknowledgment.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    pub space: u32,
    /// What congestion window and peer allow, whatever the device takes. Only what this lacks is told of by an
    /// acknowledgment.
    pub allowed: u32,
    /// [`Slot::events`] then: when it has changed, the slot knows better.
    pub events: u32,
}

impl Level {
    /// What the slot says.
    pub fn of(slot: &Slot, events: u32) -> Self {
        Self {
            space: slot.space.load(Ordering::Acquire),
            allowed: slot.allowed.load(Ordering::Acquire),
            events,
        }
    }

    /// What the kernel says.
    pub fn asked(info: &Info, events: u32) -> Self {
        Self {
            space: info.space(0),
            allowed: info.allowed(),
            events,
        }
    }

    /// Whether it is worth being woken for.
    pub fn is_ready(&self, at_least: u32) -> bool {
        self.space > 0 && self.allowed >= at_least
    }

    /// After so many bytes were written.
    pub fn less(self, bytes: u32) -> Self {
        Self {
            space: self.space.saturating_sub(bytes),
            allowed: self.allowed.saturating_sub(bytes),
            ..self
        }
    }
}
