//! What became of marked packets, by source: the first so many sources by name, all that come later together.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use batchwise_bpf::burst::Source;
use batchwise_core::burst::Verdict;

use super::discipline::SOURCES;

/// Takes all its memory at the start.
pub struct Sources(HashMap<IpAddr, Source>);

/// All sources that came when there was no room.
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

impl Sources {
    pub fn new() -> Self {
        Self(HashMap::with_capacity(SOURCES + 1))
    }

    /// A marked packet.
    pub fn count(&mut self, address: IpAddr, verdict: Verdict) {
        let has_room = self.0.len() < SOURCES || self.0.contains_key(&address);
        let address = if has_room { address } else { OTHERS };
        let source = self.0.entry(address).or_insert(Source {
            address,
            admitted: 0,
            refused: 0,
            ignored: 0,
            dropped: 0,
        });
        source.admitted += u32::from(verdict == Verdict::Admitted);
        source.refused += u32::from(verdict == Verdict::Refused);
        source.ignored += u32::from(verdict == Verdict::Taken);
        source.dropped += u32::from(!verdict.is_in());
    }

    pub fn all(&self) -> Vec<Source> {
        self.0.values().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_is_counted_for_its_source_or_for_the_others() {
        let mut sources = Sources::new();
        let before = sources.0.capacity();
        let own = |n: u32| IpAddr::from(n.to_be_bytes());
        for n in 0..2 * SOURCES as u32 {
            sources.count(own(n), Verdict::Refused);
            sources.count(own(n), Verdict::Denied);
            sources.count(own(0), Verdict::Admitted);
        }
        let all = sources.all();
        assert_eq!(all.len(), SOURCES + 1);
        assert_eq!(sources.0.capacity(), before);
        let of = |address| {
            all.iter()
                .find(|s| s.address == address)
                .expect("it is known")
        };
        assert_eq!(of(own(0)).admitted as usize, 2 * SOURCES);
        assert_eq!((of(own(1)).refused, of(own(1)).dropped), (1, 2));
        assert_eq!(of(OTHERS).refused as usize, SOURCES);
    }
}
