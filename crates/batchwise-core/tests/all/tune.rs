//! What tuning decides: tests that are told apart from chance, and when they come.

use batchwise_core::tune::{
    Arm, Controller, Glimpse, Load, Next, Outcome, Params, Policy, Reason, Slice, Switchback,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// A slice of 15 ms.
fn slice(rate: f64, latency: f64) -> Slice {
    let done = rate * 0.015;
    Slice {
        time: 15e6,
        bytes: 100.0 * done,
        waited: done * latency,
        done,
        ..Slice::default()
    }
}

/// A test to its end; `serve` says what the n-th slice was like.
fn run(policy: Policy, seed: u64, mut serve: impl FnMut(Arm, u32) -> Slice) -> Outcome {
    let mut test = Switchback::new(policy, Params::default(), Arm::Off, Arm::Off, seed);
    for n in 0.. {
        let Some(arm) = test.next() else {
            return test.outcome();
        };
        test.add(serve(arm, n), 17e6);
    }
    unreachable!("a test ends");
}

fn glimpse(now: u64, bytes: f64, overlap: f64) -> Glimpse {
    Glimpse {
        now,
        app_setting: Arm::Off,
        load: Load {
            bytes,
            segments: bytes / 100.0,
        },
        bytes: [bytes; 2],
        span: 200 * MS,
        overlap,
    }
}

fn outcome(better: Option<bool>) -> Outcome {
    let rate = |arm| match (arm, better) {
        (Arm::On, Some(true)) => 2e5,
        (Arm::On, Some(false)) => 5e4,
        _ => 1e5,
    };
    run(Policy::Latency, 7, |arm, _| slice(rate(arm), 1e5))
}

#[test]
fn a_setting_that_serves_twice_as_much_is_found_in_as_few_pairs_as_can_tell() {
    let found = outcome(Some(true));
    assert_eq!((found.better, found.pairs), (Some(true), 9));
    assert!((found.of(Arm::On).messages - 2e5).abs() < 1.0);
    assert!((found.of(Arm::Off).messages - 1e5).abs() < 1.0);
    let Params {
        weight,
        fewest_pairs,
        ..
    } = Params::default();
    assert!((found.gain / 2_f64.powf(weight) - 1.0).abs() < 1e-6);
    let found = outcome(Some(false));
    assert_eq!((found.better, found.pairs), (Some(false), fewest_pairs));
}

#[test]
fn to_stay_where_one_is_takes_less_proof_than_to_change() {
    let fewest = Params::default().fewest_pairs;
    for (in_force, rate_on, pairs) in [
        (Arm::On, 2e5, fewest),
        (Arm::On, 5e4, 9),
        (Arm::Off, 2e5, 9),
    ] {
        let mut test = Switchback::new(Policy::Latency, Params::default(), Arm::Off, in_force, 3);
        while let Some(arm) = test.next() {
            test.add(slice(if arm == Arm::On { rate_on } else { 1e5 }, 1e5), 17e6);
        }
        let found = test.outcome();
        assert_eq!(
            (found.better, found.pairs),
            (Some(rate_on > 1e5), pairs),
            "{in_force:?}"
        );
    }
}

#[test]
fn settings_that_are_alike_are_not_told_apart() {
    let found = run(Policy::Latency, 1, |_, n| {
        slice(1e5 * (1.0 + 0.01 * f64::from(n % 2)), 1e5)
    });
    assert_eq!(found.better, None);
    assert_eq!(found.pairs, Params::default().most_pairs);
}

#[test]
fn where_both_serve_the_load_the_lower_latency_wins() {
    let served = |arm| slice(1e5, if arm == Arm::On { 2e4 } else { 5e4 });
    assert_eq!(
        run(Policy::Latency, 3, |arm, _| served(arm)).better,
        Some(true)
    );
    assert_eq!(
        run(Policy::Throughput, 3, |arm, _| served(arm)).better,
        Some(true)
    );
}

#[test]
fn latency_outweighs_throughput_that_differs_by_chance() {
    let found = run(Policy::Latency, 5, |arm, n| {
        let latency = if arm == Arm::On { 1.3e5 } else { 1e5 };
        slice(1e5 * (1.0 + 0.08 * f64::from(n % 5) - 0.16), latency)
    });
    assert_eq!(found.better, Some(false), "{found:?}");
}

#[test]
fn a_stall_in_one_slice_changes_nothing_but_its_pair() {
    let found = run(Policy::Latency, 5, |arm, n| {
        let latency = if arm == Arm::On { 2e4 } else { 5e4 };
        slice(if n == 4 { 2e4 } else { 1e5 }, latency)
    });
    assert_eq!(found.better, Some(true), "{found:?}");
    assert!(found.pairs <= 12, "{found:?}");
}

#[test]
fn where_senders_fall_behind_throughput_outweighs_latency() {
    // 8 % more with Nagle's algorithm, scattered by 5 %, at 30 % more latency
    let found = run(Policy::Latency, 5, |arm, n| {
        let scattered = 1.0 + 0.05 * (f64::from(n * 7 % 5) / 2.0 - 1.0);
        match arm {
            Arm::On => slice(1.08e5 * scattered, 1.3e5),
            Arm::Off => slice(1e5 * scattered, 1e5),
        }
    });
    assert_eq!(found.better, Some(true), "{found:?}");
}

/// A client whose requests, of 100 bytes both ways, cost it 4 µs each and 6 µs a segment; its clock moves
/// only in every other slice.
fn costly(arm: Arm, n: u32, per_segment: f64) -> Slice {
    let served = slice(1e5, 1e5);
    let segments = served.done / if arm == Arm::On { per_segment } else { 1.0 };
    Slice {
        sent: served.bytes / 2.0,
        segments,
        mss: 1_000.0,
        cpu: f64::from(n % 4 / 2) * 2.0 * (4e3 * served.done + 6e3 * segments),
        ..served
    }
}

#[test]
fn what_both_settings_would_carry_follows_from_the_cpu_time_and_segments_of_a_test() {
    let found = run(Policy::Latency, 3, |arm, n| costly(arm, n, 2.0));
    let room = found.room.expect("the client took CPU time");
    let messages = |arm| room.capacity(arm) / 100.0;
    assert!((messages(Arm::Off) / 100e3 - 1.0).abs() < 0.2);
    // twenty requests fill a segment
    assert!((messages(Arm::On) / 232e3 - 1.0).abs() < 0.25);
    let (alpha, beta) = room.costs().expect("segments have a price");
    assert!((alpha / 40.0 - 1.0).abs() < 0.5 && (beta / 6e3 - 1.0).abs() < 0.5);
}

#[test]
fn where_nagle_saves_no_segments_or_no_time_is_seen_nothing_is_made_up() {
    let found = run(Policy::Latency, 3, |arm, n| costly(arm, n, 1.1));
    let room = found.room.expect("the client took CPU time");
    assert_eq!(room.costs(), None);
    assert!((room.capacity(Arm::On) / room.capacity(Arm::Off) - 1.0).abs() < 0.3);
    let unseen = run(Policy::Latency, 3, |_, _| slice(1e5, 1e5));
    assert_eq!(unseen.room, None);
}

#[test]
fn an_slo_is_kept_first_and_then_throughput_counts() {
    let slo = Policy::Slo(500_000);
    let test = |on: Slice, off: Slice| {
        run(slo, 5, move |arm, _| if arm == Arm::On { on } else { off }).better
    };
    assert_eq!(test(slice(1e5, 4e5), slice(3e5, 6e5)), Some(true));
    assert_eq!(test(slice(3e5, 6e5), slice(1e5, 4e5)), Some(false));
    assert_eq!(test(slice(3e5, 9e6), slice(2e5, 8e6)), Some(true));
}

#[test]
fn a_setting_in_which_nothing_gets_through_loses() {
    let held = Slice {
        time: 15e6,
        waited: 15e6,
        ..Slice::default()
    };
    let found = run(Policy::Latency, 9, |arm, _| {
        if arm == Arm::On {
            held
        } else {
            slice(1e4, 1e5)
        }
    });
    assert_eq!(found.better, Some(false));
}

#[test]
fn a_test_comes_first_thing_where_there_is_something_to_batch_and_never_elsewhere() {
    let mut c = Controller::new(Params::default());
    assert_eq!(c.see(&glimpse(S, 1e6, 0.5)), Next::Stay);
    assert_eq!(c.see(&glimpse(2 * S, 0.0, 0.0)), Next::Stay);
    let test = Next::Test {
        slice: 20 * MS,
        reason: Reason::New,
    };
    assert_eq!(c.see(&glimpse(3 * S, 1e6, 2.0)), test);
}

#[test]
fn slices_are_longer_where_less_is_sent() {
    let slice_of =
        |bytes: f64| match Controller::new(Params::default()).see(&glimpse(S, bytes, 2.0)) {
            Next::Test { slice, .. } => slice,
            next => panic!("{next:?}"),
        };
    let (p, fast, slow) = (Params::default(), slice_of(1e9), slice_of(1e3));
    assert_eq!((fast, slow), (p.shortest, p.longest));
}

#[test]
fn the_same_answer_is_asked_for_less_and_less_often_and_a_shift_asks_at_once() {
    let mut c = Controller::new(Params::default());
    let (mut now, mut last, mut rests) = (0, 0, Vec::new());
    let mut reason = Reason::New;
    for _ in 0..9 {
        while !matches!(c.see(&glimpse(now, 1e6, 2.0)), Next::Test { .. }) {
            now += 200 * MS;
        }
        rests.push((now - last) / S);
        last = now;
        c.tested(reason, outcome(Some(true)), now);
        assert_eq!(c.adopted(), Some(Arm::On));
        reason = Reason::Due;
    }
    assert!(rests.windows(2).skip(1).all(|r| r[0] <= r[1]), "{rests:?}");
    assert_eq!(*rests.last().unwrap(), 120, "{rests:?}");
    // the load that was tested, then another
    assert_eq!(c.see(&glimpse(now + 10 * S, 1e6, 2.0)), Next::Stay);
    let Next::Test { reason, .. } = c.see(&glimpse(now + 11 * S, 2e6, 2.0)) else {
        panic!("a shift is tested");
    };
    assert_eq!(reason, Reason::Shift);
}

/// Nagle's algorithm was adopted at 1 s, at a load of 1e6 bytes a second.
fn adopted() -> Controller {
    let mut c = Controller::new(Params::default());
    c.tested(Reason::New, outcome(Some(true)), S);
    assert_eq!(c.see(&glimpse(S + 500 * MS, 1e6, 2.0)), Next::Stay);
    c
}

#[test]
fn what_was_adopted_under_another_load_is_given_back_where_it_cannot_be_tested() {
    let mut c = adopted();
    assert_eq!(
        c.see(&glimpse(2 * S, 1e6, 0.5)),
        Next::Stay,
        "the same load"
    );
    assert_eq!(c.see(&glimpse(2 * S, 1e4, 0.1)), Next::GiveBack);
    assert_eq!(c.adopted(), None);

    // or may not be: nothing more is lent
    let mut c = adopted();
    let hurts = outcome(Some(false));
    let mut last = Next::Stay;
    for n in 0..1_000 {
        let load = if n % 2 == 0 { 2e6 } else { 1e6 };
        last = c.see(&glimpse(2 * S, load, 2.0));
        match last {
            Next::Test { reason, .. } if n == 0 => c.tested(reason, outcome(Some(true)), 2 * S),
            Next::Test { reason, .. } => {
                c.tested(reason, hurts, 2 * S);
                c.tested(reason, outcome(Some(true)), 2 * S);
                c.see(&glimpse(2 * S + 500 * MS, load, 2.0));
            }
            _ => break,
        }
    }
    assert_eq!(last, Next::GiveBack);
}

#[test]
fn what_was_adopted_is_tested_again_where_batches_leave_little_under_way() {
    let mut c = adopted();
    let due = c.next_test().expect("it was tested");
    let next = c.see(&glimpse(due, 1e6, 0.5));
    assert!(
        matches!(
            next,
            Next::Test {
                reason: Reason::Due,
                ..
            }
        ),
        "{next:?}"
    );
}

#[test]
fn a_stall_or_a_burst_in_one_look_is_no_other_load() {
    let mut c = adopted();
    let at = |bytes| Glimpse {
        bytes,
        ..glimpse(2 * S, 1e6, 2.0)
    };
    assert_eq!(c.see(&at([0.0, 1e6])), Next::Stay);
    assert_eq!(c.see(&at([1e6, 9e6])), Next::Stay);
    for other in [[1.5e6, 9e6], [0.0, 0.5e6]] {
        assert!(matches!(
            c.see(&at(other)),
            Next::Test {
                reason: Reason::Shift,
                ..
            }
        ));
    }
}

#[test]
fn an_application_that_asks_for_what_was_adopted_has_it_as_its_own() {
    let mut c = Controller::new(Params::default());
    c.tested(Reason::New, outcome(Some(true)), S);
    let mut asks = glimpse(2 * S, 1e6, 2.0);
    asks.app_setting = Arm::On;
    assert_eq!(c.see(&asks), Next::GiveBack);
    assert_eq!(c.adopted(), None);
}

#[test]
fn a_test_that_hurt_is_followed_by_a_rest_that_pays_for_it() {
    let budget = Params::default().budget;
    let hurt = outcome(Some(false));
    let mut c = Controller::new(Params::default());
    c.tested(Reason::New, hurt, S);
    let cost = hurt.cost(Arm::Off, Params::default().counting);
    assert!((c.debt(S) - cost).abs() < 1.0);
    let paid = (S + (cost / budget) as u64).max(S + Params::default().first_rest);
    let same = c.see(&glimpse(S, 0.0, 2.0));
    assert_eq!(same, Next::Stay);
    assert_eq!(c.see(&glimpse(paid - 1, 0.0, 2.0)), Next::Stay);
    assert!(matches!(c.see(&glimpse(paid, 0.0, 2.0)), Next::Test { .. }));
    // another load may borrow, but not for ever
    let mut tests = 0;
    for n in 0..1_000 {
        let load = if n % 2 == 0 { 1e6 } else { 2e6 };
        if let Next::Test { reason, .. } = c.see(&glimpse(2 * S, load, 2.0)) {
            c.tested(reason, hurt, 2 * S);
            tests += 1;
        }
    }
    let most = Params::default().longest_rest as f64 * budget / cost;
    assert!(
        (2..=most.ceil() as u32).contains(&tests),
        "{tests} of {most}"
    );
    // nobody lost what a better setting gave: only counting is paid for
    let helped = outcome(Some(true));
    assert!((helped.cost(Arm::Off, 0.07) - 0.07 * helped.time).abs() < 1.0);
    assert!(helped.cost(Arm::On, 0.07) > 0.2 * helped.time);
}

proptest! {
    /// A stall spoils the pair that it is in.
    #[test]
    fn two_stalls_do_not_decide(seed in any::<u64>(), stalls in prop::array::uniform2(0_u32..20)) {
        let served = |arm, n: u32| {
            let rate = if arm == Arm::On { 1.9e5 } else { 1e5 };
            slice(if stalls.contains(&n) { rate / 100.0 } else { rate }, 1e5)
        };
        let found = run(Policy::Latency, seed, served);
        prop_assert_eq!(found.better, Some(true), "{} won, {} lost", found.wins, found.losses);
    }

    #[test]
    fn both_settings_have_as_many_slices_and_every_test_ends(
        seed in any::<u64>(),
        rates in prop::collection::vec(1e2..1e6_f64, 120),
    ) {
        let mut of_arm = [0_u32; 2];
        let found = run(Policy::Latency, seed, |arm, n| {
            of_arm[usize::from(arm == Arm::On)] += 1;
            slice(rates[n as usize], 1e9 / rates[n as usize])
        });
        prop_assert_eq!(of_arm[0], of_arm[1]);
        prop_assert_eq!(of_arm[0], found.pairs);
        prop_assert!(found.pairs <= Params::default().most_pairs);
        prop_assert!(found.wins + found.losses <= found.pairs);
        prop_assert!((0.0..=1.0).contains(&found.confidence()));
    }

    /// Whatever is seen and found: the next test is never before the last one is paid for, and what is
    /// in force is either the applications' own or what the last test has shown to be better.
    #[test]
    fn nothing_is_adopted_without_a_test_that_shows_it(
        seen in prop::collection::vec((0_u64..5_000, 1e3..1e8_f64, 0.0..4.0_f64, 0_u8..3), 1..200),
    ) {
        let p = Params::default();
        let mut c = Controller::new(p);
        let (mut now, mut paid) = (0, 0);
        for (wait, bytes, overlap, found) in seen {
            now += wait * MS;
            let Next::Test { reason, slice } = c.see(&glimpse(now, bytes, overlap)) else {
                continue;
            };
            let borrows = reason == Reason::Shift;
            prop_assert!(now >= paid || borrows && paid - now < p.longest_rest);
            prop_assert!(overlap > 1.0 || c.adopted().is_some());
            prop_assert!((p.shortest..=p.longest).contains(&slice));
            let better = [None, Some(false), Some(true)][usize::from(found)];
            c.tested(reason, outcome(better), now);
            prop_assert_eq!(c.adopted().is_some(), better == Some(true));
            paid = now + (c.debt(now) / p.budget) as u64;
        }
    }
}
