//! A table of fixed size: what has gone stale makes room, and what finds no room is not kept.

use alloc::boxed::Box;
use alloc::vec;

/// Slots in which a key may be.
const WAYS: usize = 8;

/// Values by key; a key is a hash already, which nobody outside can choose.
#[derive(Clone, Debug)]
pub(super) struct Slots<V> {
    slots: Box<[(u64, V)]>,
}

impl<V: Copy + Default> Slots<V> {
    /// With at least so many slots.
    pub fn new(slots: usize) -> Self {
        let slots = slots.next_power_of_two().max(WAYS);
        Self {
            slots: vec![(0, V::default()); slots].into(),
        }
    }

    /// The key's value, or a new one in the place of one that is stale. `None`: no room.
    pub fn entry(&mut self, key: u64, is_stale: impl Fn(&V) -> bool) -> Option<&mut V> {
        let sets = self.slots.len() / WAYS;
        let start = (key as usize & (sets - 1)) * WAYS;
        let set = &mut self.slots[start..start + WAYS];
        let of_key = set.iter().position(|(k, v)| *k == key && !is_stale(v));
        let found = of_key.or_else(|| set.iter().position(|(_, v)| is_stale(v)))?;
        if of_key.is_none() {
            set[found] = (key, V::default());
        }
        Some(&mut set[found].1)
    }
}
