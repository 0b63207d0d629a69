//! What a source may ask for: a credit that every admitted burst draws on, whether it then comes or not.
//! The credit comes back at a share of the link's rate, so what a source can take from others is at most
//! that share.

use super::Rules;

/// A source's credit: the time at which it is full again, ns. A source of which nothing is kept has a
/// full one. (The generic cell rate algorithm, ITU-T I.371.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// ns.
    pub full_at: u64,
}

impl Credit {
    /// Whether it is the same as that of an unknown source.
    pub fn is_full(self, now: u64) -> bool {
        self.full_at <= now
    }

    /// The credit after so many bytes were drawn; `None` if it does not have them.
    pub fn draw(self, rules: &Rules, now: u64, bytes: u32) -> Option<Self> {
        let full_at = self.full_at.max(now) + rules.refill_time(bytes);
        let depth = rules.refill_time(rules.source_bytes);
        (full_at - now <= depth).then_some(Self { full_at })
    }
}
