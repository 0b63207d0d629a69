//! What tuning decides: tests that are told apart from chance, and when they come.

use batchwise_core::tune::{
    Arm, Controller, Glimpse, Load, Next, Outcome, Params, Policy, Reason, Recalled, Slice,
    Switchback,
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
        held: 0.0,
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
        limit: 1_200 * MS,
        reason: Reason::New,
    };
    assert_eq!(c.see(&glimpse(3 * S, 1e6, 2.0)), test);
}

#[test]
fn messages_that_nagles_algorithm_holds_back_are_reason_enough_however_few() {
    let held = Glimpse {
        held: 2e6,
        ..glimpse(S, 1e3, 0.1)
    };
    let mut c = Controller::new(Params::default());
    let next = c.see(&held);
    let Next::Test { reason, slice, .. } = next else {
        panic!("{next:?}");
    };
    assert_eq!((reason, slice), (Reason::Held, 100 * MS));
    let mut c = Controller::new(Params::default());
    let little = Glimpse { held: 5e5, ..held };
    assert_eq!(c.see(&little), Next::Stay);
}

#[test]
fn a_hold_that_was_ended_is_not_brought_back_to_test_it() {
    let at = |now, bytes, overlap| Glimpse {
        app_setting: Arm::On,
        ..glimpse(now, bytes, overlap)
    };
    let held = Glimpse {
        held: 2e7,
        ..at(S, 1e3, 0.1)
    };
    let mut c = Controller::new(Params::default());
    assert!(matches!(c.see(&held), Next::Test { .. }));
    let mut test = Switchback::new(Policy::Latency, Params::default(), Arm::On, Arm::On, 7);
    while let Some(arm) = test.next() {
        let served = match arm {
            Arm::On => slice(70.0, 43e6),
            Arm::Off => slice(7_000.0, 3e5),
        };
        test.add(served, 17e6);
    }
    c.tested(Reason::Held, test.outcome(), S..2 * S);
    assert_eq!(c.adopted(), Some(Arm::Off));
    // a hundred times as much, several segments under way, and three of them where Nagle's algorithm had made two
    for s in 3..300 {
        let mut seen = at(s * S, [1e5, 3e5][s as usize % 2], 3.0);
        seen.load.segments *= 1.5;
        assert_eq!(c.see(&seen), Next::Stay);
    }
    // other messages may be served better without it
    let mut other = at(300 * S, 1e5, 3.0);
    other.load.segments /= 4.0;
    let next = c.see(&other);
    assert!(matches!(next, Next::Test { .. }), "{next:?}");
}

#[test]
fn the_next_agent_goes_on_with_what_this_one_had_in_force() {
    let then = adopted().in_force().expect("Nagle's algorithm");
    let mut next = Controller::new(Params::default());
    next.resume(then);
    assert_eq!(next.see(&glimpse(S, 0.0, 0.0)), Next::Stay);
    let resumed = next.see(&glimpse(2 * S, 1e6, 2.0));
    assert_eq!(resumed, Next::Recall(Recalled::Before));
    assert_eq!(next.adopted(), Some(Arm::On));
    // and soon tests whether that is still so
    let due = next.next_test().expect("a time");
    assert_eq!(due, 2 * S + Params::default().first_rest);
    let load = then.load.bytes;
    assert_eq!(next.see(&glimpse(3 * S, load, 2.0)), Next::Stay);
    let other = next.see(&glimpse(4 * S, 2.0 * load, 2.0));
    assert!(
        matches!(
            other,
            Next::Test {
                reason: Reason::Shift,
                ..
            }
        ),
        "{other:?}"
    );
    // the application has asked for it meanwhile
    let mut next = Controller::new(Params::default());
    next.resume(then);
    let asks = Glimpse {
        app_setting: Arm::On,
        ..glimpse(S, 1e6, 0.1)
    };
    assert_eq!(next.see(&asks), Next::Stay);
}

#[test]
fn three_pairs_decide_what_is_plain() {
    // a second write waits 43 ms for a delayed acknowledgment
    let served = |arm| match arm {
        Arm::On => slice(23.0, 43e6),
        Arm::Off => slice(2_300.0, 3e5),
    };
    let found = run(Policy::Latency, 7, |arm, _| served(arm));
    assert_eq!((found.better, found.pairs), (Some(false), 3));
    // ten requests a second: some slices have none
    let mut idle = 0;
    let found = run(Policy::Latency, 7, |_, n| {
        idle += u32::from(n % 2 == 0);
        if n % 2 == 0 {
            Slice {
                time: 15e6,
                ..Slice::default()
            }
        } else {
            slice(100.0, 4e7)
        }
    });
    assert!(found.pairs > 3 && idle > 3, "{found:?}");
}

#[test]
fn a_test_ends_undecided_when_its_time_is_up() {
    let mut test = Switchback::new(Policy::Latency, Params::default(), Arm::Off, Arm::Off, 1)
        .within(1_200 * MS);
    let mut time = 0;
    while test.next().is_some() {
        test.add(slice(1e5, 1e5), 85e6);
        time += 85;
    }
    assert!((850..=1_200).contains(&time), "{time}");
    assert_eq!(test.outcome().better, None);
}

#[test]
fn slices_are_longer_where_less_is_sent() {
    let slice_of =
        |bytes: f64| match Controller::new(Params::default()).see(&glimpse(S, bytes, 2.0)) {
            Next::Test { slice, .. } => slice,
            next => panic!("{next:?}"),
        };
    let (p, fast, slow) = (Params::default(), slice_of(1e9), slice_of(1e3));
    assert_eq!((fast, slow), (p.shortest, p.longest.min(80 * MS)));
}

#[test]
fn the_same_answer_is_asked_for_less_and_less_often_and_a_shift_asks_at_once() {
    let mut c = Controller::new(Params::default());
    let (mut now, mut last, mut rests) = (S, S, Vec::new());
    let mut reason = Reason::New;
    for _ in 0..9 {
        while !matches!(c.see(&glimpse(now, 1e6, 2.0)), Next::Test { .. }) {
            now += 200 * MS;
        }
        rests.push((now - last) / S);
        last = now;
        c.tested(reason, outcome(Some(true)), now - 100 * MS..now);
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

/// The service was seen at so many bytes a second, and a test found this out by 1 s.
fn tested(bytes: f64, better: Option<bool>) -> Controller {
    let mut c = Controller::new(Params::default());
    let next = c.see(&glimpse(900 * MS, bytes, 2.0));
    assert!(matches!(next, Next::Test { .. }), "{next:?}");
    c.tested(Reason::New, outcome(better), 900 * MS..S);
    c
}

/// Nagle's algorithm was adopted at 1 s, and has left the load at 1e6 bytes a second.
fn adopted() -> Controller {
    let mut c = tested(1e6, Some(true));
    assert_eq!(c.see(&glimpse(S + 500 * MS, 1e6, 2.0)), Next::Stay);
    c
}

#[test]
fn what_was_adopted_stays_though_it_changed_the_load_and_leaves_nothing_to_be_seen() {
    let mut c = adopted();
    for (n, bytes) in [1e6, 1e8, 1e3, 0.0].into_iter().enumerate() {
        let later = glimpse((2 + n as u64) * S, bytes, 0.1);
        assert_eq!(c.see(&later), Next::Stay, "{bytes}");
    }
    // to test would be to have some of them wait again
    let due = c.next_test().expect("it was tested");
    assert_eq!(c.see(&glimpse(due, 1e6, 0.1)), Next::Stay);
    c.passed_over(Reason::Shift, due..due + S);
    assert_eq!(c.adopted(), Some(Arm::On), "an aborted test shows nothing");
    c.tested(Reason::Due, outcome(None), due + S..due + 2 * S);
    assert_eq!(c.adopted(), Some(Arm::On), "nor does an undecided one");
}

#[test]
fn a_load_that_was_tested_is_not_tested_again_for_a_while() {
    let mut c = Controller::new(Params::default());
    let mut tests = Vec::new();
    let loads = [1e6, 1.5e6, 0.6e6, 2.2e6];
    for n in 0..570 {
        let now = S + n * 200 * MS;
        let load = loads[(n / 3 % 4) as usize] * [0.95, 1.05][(n % 2) as usize];
        if let Next::Test { reason, .. } = c.see(&glimpse(now, load, 2.0)) {
            c.tested(reason, outcome(Some(false)), now..now + 100 * MS);
            tests.push(n / 5);
        }
    }
    assert_eq!(tests.len(), loads.len(), "{tests:?}");
    let next = c.see(&glimpse(116 * S, 2e7, 2.0));
    assert!(matches!(next, Next::Test { .. }), "{next:?}");
}

#[test]
fn what_a_test_found_under_a_load_is_in_force_whenever_the_load_comes_back() {
    let mut c = adopted();
    let see = |c: &mut Controller, at, bytes| {
        // until what the switch has made of the load is seen
        let seen = [0, 500].map(|ms| c.see(&glimpse(at * S + ms * MS, bytes, 2.0)));
        seen[0]
    };
    let next = see(&mut c, 3, 1e7);
    assert!(matches!(next, Next::Test { .. }), "{next:?}");
    c.tested(Reason::Shift, outcome(Some(false)), 3 * S..3 * S + 100 * MS);
    assert_eq!(see(&mut c, 4, 1e7), Next::Stay);
    let recall = |age| Next::Recall(Recalled::Test(age));
    assert_eq!(see(&mut c, 6, 1e6), recall(5 * S));
    assert_eq!(c.adopted(), Some(Arm::On));
    assert_eq!(see(&mut c, 8, 1e7), recall(4 * S + 900 * MS));
    assert_eq!(c.adopted(), None);
    // but not for ever
    let next = see(&mut c, 130, 1e6);
    assert!(matches!(next, Next::Test { .. }), "{next:?}");
}

#[test]
fn what_is_held_all_of_a_sudden_is_tested_at_once_and_no_more_than_that() {
    let mut c = tested(1e6, Some(false));
    assert_eq!(c.see(&glimpse(2 * S, 1e6, 2.0)), Next::Stay);
    let held = |now| Glimpse {
        held: 2e6,
        ..glimpse(now, 1e6, 0.1)
    };
    let next = c.see(&held(3 * S));
    let Next::Test { reason, .. } = next else {
        panic!("{next:?}");
    };
    assert_eq!(reason, Reason::Held);
    c.tested(reason, outcome(None), 3 * S..3 * S + 100 * MS);
    assert_eq!(c.see(&held(4 * S)), Next::Stay);
}

#[test]
fn a_stall_or_a_burst_in_one_look_is_no_other_load() {
    let mut c = adopted();
    let at = |[least, most]: [f64; 2]| Glimpse {
        bytes: [least, most],
        ..glimpse(2 * S, (least + most) / 2.0, 2.0)
    };
    assert_eq!(c.see(&at([0.0, 1e6])), Next::Stay);
    assert_eq!(c.see(&at([1e6, 9e6])), Next::Stay);
    for other in [[1.5e6, 9e6], [0.0, 0.7e6]] {
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
    let mut c = adopted();
    let mut asks = glimpse(2 * S, 1e6, 2.0);
    asks.app_setting = Arm::On;
    assert_eq!(c.see(&asks), Next::GiveBack);
    assert_eq!(c.adopted(), None);
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

    /// Whatever is seen and found: tests take no more than the budget in any minute, and what a test adopts it has shown.
    #[test]
    fn tests_stay_in_their_budget_and_adopt_what_they_show(
        seen in prop::collection::vec(
            (0_u64..5_000, 1e3..1e8_f64, 0.0..4.0_f64, 0.0..2e6_f64, 0_u8..3),
            1..200,
        ),
    ) {
        let p = Params::default();
        let mut c = Controller::new(p);
        let (mut now, mut tests) = (0, Vec::new());
        for (wait, bytes, overlap, held, found) in seen {
            now += wait * MS;
            let glimpse = Glimpse { held, ..glimpse(now, bytes, overlap) };
            let Next::Test { reason, slice, limit } = c.see(&glimpse) else {
                continue;
            };
            let is_there_why = overlap > 1.0 || held >= p.held;
            prop_assert!(is_there_why);
            prop_assert!((p.shortest..=p.longest).contains(&slice));
            let better = [None, Some(false), Some(true)][usize::from(found)];
            let before = c.adopted();
            now += limit;
            c.tested(reason, outcome(better), now - limit..now);
            let adopted = better.map_or(before, |better| better.then_some(Arm::On));
            prop_assert_eq!(c.adopted(), adopted);
            tests.push((now, limit));
            let lately = tests.iter().filter(|(end, _)| end + 60 * S > now);
            let took: u64 = lately.map(|(_, took)| took).sum();
            prop_assert!(took as f64 <= p.budget * 60e9 + 1.0, "{}", took);
        }
    }
}
