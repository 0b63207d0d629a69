//! A sender without a protocol: bursts at intervals, whatever becomes of them.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::host::{FULL, Link};
use crate::burst::packet::{Burst, Kind, Packet};

#[derive(Clone, Copy, Debug)]
pub struct SourceSpec {
    pub start: u64,
    /// Between two bursts, ns.
    pub gap: u64,
    /// Packets of a burst.
    pub sends: u32,
    /// What the mark says of it.
    pub claims: u32,
    /// Of the bursts, so many are marked.
    pub share: f64,
    /// Each burst is a new flow's.
    pub new_flows: bool,
    /// Each burst has another address.
    pub spoofs: bool,
}

pub struct Source {
    pub link: Link,
    rng: StdRng,
    bursts: u32,
}

/// Beyond the flows that are simulated.
const FLOWS: u32 = 1 << 20;

impl Source {
    pub fn new(seed: u64) -> Self {
        Self {
            link: Link::default(),
            rng: StdRng::seed_from_u64(seed),
            bursts: 0,
        }
    }

    /// A burst of the source of this number.
    pub fn emit(&mut self, spec: &SourceSpec, number: usize) -> Vec<Packet> {
        self.bursts += 1;
        let marked = self.rng.random_bool(spec.share);
        let claims = if marked { spec.claims } else { 0 };
        let own = FLOWS + (number as u32) * FLOWS;
        let fresh = own + self.bursts;
        let packet = |burst| Packet {
            flow: if spec.new_flows { fresh } else { own },
            source: if spec.spoofs { fresh } else { own },
            bytes: FULL,
            kind: Kind::Noise,
            burst,
        };
        Burst::marks(self.bursts, spec.sends, claims)
            .map(packet)
            .collect()
    }
}
