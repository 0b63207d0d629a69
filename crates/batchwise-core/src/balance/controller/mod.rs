//! Weights from latencies: the paper's §4 and what it leaves out (docs/research/balance.md, "The controller").

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

mod backend;
pub mod params;
mod shift;
mod suspect;
mod verdict;

use self::backend::Backend;
pub use self::verdict::{Observed, UNIT, Verdict, Why};
use super::maglev::BackendId;

/// Decides once an interval.
#[derive(Clone, Debug, Default)]
pub struct Controller {
    known: BTreeMap<BackendId, Backend>,
}

impl Controller {
    /// A backend had this weight before a restart, configured weight times [`UNIT`]. Before the
    /// first step.
    pub fn resume(&mut self, id: BackendId, weight: u32) {
        self.known.insert(id, Backend::resumed(weight));
    }

    /// The configured weight of a backend has changed, and nothing else of it: what is known of it
    /// stays. Its weight from now on, configured weight times [`UNIT`]; `None`: nothing is known.
    pub fn rebase(&mut self, id: BackendId, from: u32, to: u32) -> Option<u32> {
        Some(self.known.get_mut(&id)?.rebase(from, to))
    }

    /// Whether a backend, of this configured weight, gets connections is no longer what it was at the
    /// last step, and cannot wait for the next: what holds until then, as that will begin with it.
    pub fn turn(&mut self, id: BackendId, base: u32, serving: bool) -> Verdict {
        let begun = begun(&self.known);
        let backend = self.known.entry(id).or_default();
        backend.turn(serving && base > 0, base, begun);
        backend.verdict(id)
    }

    /// Decides on an interval; one verdict for each backend, in the order given. Backends that are
    /// not mentioned are forgotten.
    pub fn step(&mut self, seen: &[Observed]) -> Vec<Verdict> {
        let before = core::mem::take(&mut self.known);
        let begun = begun(&before);
        for s in seen {
            let mut backend = before.get(&s.id).cloned().unwrap_or_default();
            backend.observe(s, begun);
            self.known.insert(s.id, backend);
        }
        // In the order of ids from here on, so that sums do not depend on the order given.
        let mut serving: Vec<&mut Backend> =
            self.known.values_mut().filter(|b| b.serving).collect();
        suspect::judge(&mut serving);
        shift::decide(&mut serving);
        seen.iter()
            .filter_map(|s| Some(self.known.get_mut(&s.id)?.verdict(s.id)))
            .collect()
    }
}

fn begun(known: &BTreeMap<BackendId, Backend>) -> bool {
    known.values().any(Backend::has_begun)
}
