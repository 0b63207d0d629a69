//! Properties of the balancer's table.

use std::collections::BTreeMap;

use batchwise_core::balance::maglev::{BackendId, Member, SLOTS, delta, fill, identity};
use proptest::prelude::*;

fn members(weights: &[u32]) -> Vec<Member> {
    (1..=BackendId::MAX)
        .zip(weights)
        .map(|(id, &weight)| Member {
            id,
            identity: identity(&format!("10.0.0.{id}")),
            weight,
        })
        .collect()
}

fn counts(table: &[BackendId]) -> BTreeMap<BackendId, usize> {
    let mut counts = BTreeMap::new();
    for id in table {
        *counts.entry(*id).or_default() += 1;
    }
    counts
}

/// Turn-taking as in Katran's second version: who is due claims its next free slot.
fn turns(members: &[Member], slots: usize) -> Vec<BackendId> {
    let hash = |m: &Member, what: &str| identity(&format!("{}{what}", m.identity)) as usize;
    let most = members.iter().map(|m| m.weight).max().unwrap();
    let mut state: Vec<_> = members
        .iter()
        .map(|m| (0, hash(m, "at") % slots, hash(m, "skip") % (slots - 1) + 1))
        .collect();
    let (mut table, mut left) = (vec![0; slots], slots);
    loop {
        for (member, (credit, at, skip)) in members.iter().zip(&mut state) {
            *credit += member.weight;
            if *credit < most {
                continue;
            }
            *credit -= most;
            while table[*at] != 0 {
                *at = (*at + *skip) % slots;
            }
            table[*at] = member.id;
            left -= 1;
            if left == 0 {
                return table;
            }
        }
    }
}

/// Slots that must move: what some own more than before.
fn must_move(old: &[BackendId], new: &[BackendId]) -> usize {
    let (before, after) = (counts(old), counts(new));
    let gained = |(id, n): (&BackendId, &usize)| n.saturating_sub(*before.get(id).unwrap_or(&0));
    after.iter().map(gained).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn shares_are_within_one_slot_of_the_weights(weights in prop::collection::vec(0u32..10_000_000, 1..60)) {
        let all: u64 = weights.iter().map(|w| u64::from(*w)).sum();
        prop_assume!(all > 0);
        let counts = counts(&fill(&members(&weights), SLOTS));
        for m in members(&weights) {
            let ideal = f64::from(m.weight) * SLOTS as f64 / all as f64;
            let own = *counts.get(&m.id).unwrap_or(&0) as f64;
            prop_assert!((own - ideal).abs() < 1.0, "{own} of {ideal}");
            prop_assert!(m.weight > 0 || own == 0.0);
        }
        prop_assert!(!counts.contains_key(&0));
    }

    #[test]
    fn one_member_less_moves_few_slots_of_the_others(
        weights in prop_oneof![
            prop::collection::vec(Just(100_000u32), 2..200),
            prop::collection::vec(20_000u32..200_000, 2..200),
        ],
        pick in any::<prop::sample::Index>(),
    ) {
        let all = members(&weights);
        let gone = all[pick.index(all.len())].id;
        let rest: Vec<_> = all.iter().copied().filter(|m| m.id != gone).collect();
        let (old, new) = (fill(&all, SLOTS), fill(&rest, SLOTS));
        let moved = old.iter().zip(&new).filter(|(a, b)| **a != gone && a != b).count();
        // Of what is left to the others, not only of the table; the issue allows 1 / n more.
        prop_assert!((moved as f64) < 0.01 * SLOTS as f64, "{moved}");
        prop_assert!(!new.contains(&gone));
    }

    #[test]
    fn the_order_of_members_does_not_matter(weights in prop::collection::vec(0u32..1000, 0..20), seed in any::<u64>()) {
        let all = members(&weights);
        let mut shuffled = all.clone();
        shuffled.sort_by_key(|m| m.identity.wrapping_mul(seed | 1));
        prop_assert_eq!(fill(&all, 1009), fill(&shuffled, 1009));
    }

    #[test]
    fn ids_are_only_labels(weights in prop::collection::vec(1u32..1000, 1..20), shift in 1u16..1000) {
        let all = members(&weights);
        let named: Vec<_> = all.iter().map(|m| Member { id: m.id + shift, ..*m }).collect();
        let expected: Vec<_> = fill(&all, 1009).iter().map(|id| id + shift).collect();
        prop_assert_eq!(expected, fill(&named, 1009));
    }

    #[test]
    fn weights_count_only_relative_to_each_other(weights in prop::collection::vec(1u32..1000, 1..20)) {
        let twice: Vec<_> = weights.iter().map(|w| w * 2).collect();
        prop_assert_eq!(fill(&members(&weights), 1009), fill(&members(&twice), 1009));
    }

    #[test]
    fn anything_fills_a_table_of_any_size(
        given in prop::collection::vec((0u16..9, 0u64..4, prop_oneof![0u32..3, Just(u32::MAX)]), 0..12),
        slots in 0usize..300,
    ) {
        let given: Vec<_> = given.into_iter().map(|(id, identity, weight)| Member { id, identity, weight }).collect();
        let table = fill(&given, slots);
        prop_assert_eq!(table.len(), slots);
        let somebody = given.iter().any(|m| m.id > 0 && m.weight > 0);
        // Repeated ids count once, which may be the one without weight.
        prop_assert!(somebody || table.iter().all(|id| *id == 0));
        prop_assert!(table.iter().all(|id| *id == 0) || !table.contains(&0));
    }

    #[test]
    fn a_delta_is_what_turns_one_table_into_the_other(a in prop::collection::vec(0u16..4, 50), b in prop::collection::vec(0u16..4, 50)) {
        let mut table = a.clone();
        let delta = delta(&a, &b);
        for (slot, id) in &delta {
            prop_assert_ne!(table[*slot as usize], *id);
            table[*slot as usize] = *id;
        }
        prop_assert_eq!(table, b);
    }
}

#[test]
fn thousands_of_tiny_weights_beside_a_large_one_fill_the_table() {
    let mut weights = vec![1; 4000];
    weights.push(10_000_000);
    let table = fill(&members(&weights), SLOTS);
    assert!(!table.contains(&0));
    let many = fill(&members(&vec![1; 65_535]), SLOTS);
    assert_eq!(counts(&many).len(), 65_535);
}

#[test]
fn the_table_is_the_same_on_every_machine_and_in_every_version() {
    let table = fill(&members(&[100_000, 100_000, 73_000, 50_000, 1]), SLOTS);
    let words: Vec<String> = table.iter().map(u16::to_string).collect();
    assert_eq!(identity(&words.join(",")), 1_087_413_206_275_259_636);
}

#[test]
fn a_small_change_of_one_weight_moves_little_more_than_it_must() {
    for (n, times) in [(2, 1.1), (4, 1.1), (10, 1.3), (30, 1.7), (100, 4.0)] {
        let weights = vec![100_000; n];
        let mut changed = weights.clone();
        changed[n / 2] = 105_000;
        let moves = |make: fn(&[Member], usize) -> Vec<BackendId>| {
            let (old, new) = (
                make(&members(&weights), SLOTS),
                make(&members(&changed), SLOTS),
            );
            delta(&old, &new).len() as f64 / must_move(&old, &new) as f64
        };
        let (own, by_turns) = (moves(fill), moves(turns));
        assert!(own <= times, "{n} members: {own:.2} times what must move");
        println!("{n} members: {own:.2} times what must move, by turns {by_turns:.2}");
        if n >= 30 {
            assert!(
                own < by_turns,
                "{n} members: {own:.2}, by turns {by_turns:.2}"
            );
        }
    }
}
