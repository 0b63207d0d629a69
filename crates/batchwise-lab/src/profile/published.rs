//! What the paper and its artifact published, beside what was measured here.

use batchwise_core::profile::Component;
use serde::Serialize;

use super::compared::Compared;
use super::pattern::Pattern;

/// A published number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beside {
    pub what: String,
    pub published: f64,
    /// The median over rounds, the lowest and the highest.
    pub ours: [f64; 3],
}

/// Gbit/s a core of a long flow (§3.1): without optimisations, with TSO and GRO, with all.
const PER_CORE: [(Pattern, f64); 3] = [
    (Pattern::Plain, 4.8),
    (Pattern::Single, 15.0),
    (Pattern::Jumbo, 41.2),
];

/// The receiver's shares, with all optimisations. The paper's "etc" is what we call other.
const RECEIVER: [(Component, f64); 8] = [
    (Component::Copy, 0.543),
    (Component::Device, 0.183),
    (Component::Memory, 0.11),
    (Component::Skb, 0.037),
    (Component::Scheduling, 0.03),
    (Component::TcpIp, 0.022),
    (Component::Other, 0.018),
    (Component::Lock, 0.006),
];

/// What a core carries when 1.5 % are lost, over what it carries when nothing is (§3.6).
const LOSS: f64 = 0.76;

/// All of it that was measured.
pub fn beside(patterns: &[Compared]) -> Vec<Beside> {
    let of = |pattern| patterns.iter().find(|c| c.pattern == pattern);
    let per_core = PER_CORE.into_iter().filter_map(|(pattern, published)| {
        Some(Beside {
            what: format!("{}: Gbit/s a core", pattern.label()),
            published,
            ours: of(pattern)?.gbit_per_core,
        })
    });
    let receiver = RECEIVER.into_iter().filter_map(|(component, published)| {
        Some(Beside {
            what: format!(
                "{}: {} of the receiver",
                Pattern::Jumbo.label(),
                component.label()
            ),
            published,
            ours: *of(Pattern::Jumbo)?.receiver.get(&component)?,
        })
    });
    let loss = of(Pattern::Loss0)
        .zip(of(Pattern::Loss150))
        .map(|(none, lost)| {
            let [none, low, high] = none.gbit_per_core;
            let [lost, lost_low, lost_high] = lost.gbit_per_core;
            Beside {
                what: "Gbit/s a core with 1.5 % lost, over none lost".to_owned(),
                published: LOSS,
                ours: [lost / none, lost_low / high, lost_high / low],
            }
        });
    per_core.chain(receiver).chain(loss).collect()
}
