//! What the balancer's controller does, and what never happens whatever it is told.

use batchwise_core::balance::controller::params;
use batchwise_core::balance::{Controller, Observation, Observed, UNIT, Verdict, Why, standardise};
use proptest::prelude::*;

mod doubted;

const MS: f64 = 1e6;

fn seen(id: u16, latency_ms: f64) -> Observed {
    Observed {
        id,
        base: 100,
        serving: true,
        latency_ns: Some(latency_ms * MS),
        samples: 500,
        connections: 20,
        busy: 0,
        confirmed: false,
        flows: 500,
    }
}

fn silent(seen: Observed) -> Observed {
    Observed {
        latency_ns: None,
        samples: 0,
        ..seen
    }
}

fn steps(controller: &mut Controller, times: usize, seen: &[Observed]) -> Vec<Verdict> {
    let mut last = Vec::new();
    for _ in 0..times {
        last = controller.step(seen);
    }
    last
}

fn all_configured(verdicts: &[Verdict]) -> bool {
    verdicts.iter().all(|v| v.weight == 100 * UNIT)
}

fn all_because(why: Why, verdicts: &[Verdict]) -> bool {
    verdicts.iter().all(|v| v.why == why)
}

fn share(verdicts: &[Verdict], at: usize) -> f64 {
    let all: f64 = verdicts.iter().map(|v| f64::from(v.weight)).sum();
    f64::from(verdicts[at].weight) / all
}

#[test]
fn equal_servers_keep_their_configured_weights() {
    let mut c = Controller::default();
    let all = [seen(1, 10.0), seen(2, 10.5), seen(3, 11.0), seen(4, 9.5)];
    let v = steps(&mut c, 50, &all);
    assert!(all_configured(&v) && all_because(Why::Steady, &v), "{v:?}");
}

#[test]
fn a_slow_server_gives_weight_and_gets_it_back_when_it_is_well() {
    let mut c = Controller::default();
    let well: Vec<_> = (1..5).map(|id| seen(id, 10.0)).collect();
    steps(&mut c, 5, &well);
    let mut sick = well.clone();
    sick[1].latency_ns = Some(60.0 * MS);
    let v = steps(&mut c, 6, &sick);
    assert!(share(&v, 1) < 0.1 && v[1].why == Why::Slow, "{v:?}");
    assert!(v[0].weight > 100 * UNIT);
    let v = steps(&mut c, 30, &well);
    assert!((share(&v, 1) - 0.25).abs() < 0.01, "{v:?}");
}

#[test]
fn a_slow_server_stays_slow_when_its_configured_weight_changes() {
    let mut c = Controller::default();
    let mut all: Vec<_> = (1..5).map(|id| seen(id, 10.0)).collect();
    all[1].latency_ns = Some(60.0 * MS);
    let before = steps(&mut c, 10, &all)[1].weight;
    assert_eq!(c.rebase(2, 100, 50), Some(before / 2));
    all[1].base = 50;
    let after = c.step(&all)[1];
    assert_eq!(after.before, before / 2);
    assert!(
        after.weight.abs_diff(before / 2) <= before / 10,
        "{after:?}"
    );
    assert_eq!(c.rebase(9, 100, 50), None);
}

#[test]
fn a_weight_from_before_a_restart_follows_a_configured_weight_that_has_changed_since() {
    let mut c = Controller::default();
    c.resume(1, 20 * UNIT);
    assert_eq!(c.rebase(1, 100, 50), Some(10 * UNIT));
    let mut all = [1, 2].map(|id| silent(seen(id, 10.0)));
    all[0].base = 50;
    let v = c.step(&all);
    assert!(v[0].weight < 20 * UNIT, "{v:?}");
}

#[test]
fn what_is_slow_for_ever_is_not_starved_further_and_further() {
    let mut c = Controller::default();
    let all = [seen(1, 10.0), seen(2, 20.0)];
    let soon = steps(&mut c, 20, &all);
    let late = steps(&mut c, 500, &all);
    assert_eq!(soon[1].weight, late[1].weight);
    assert!(share(&late, 1) > 0.25);
}

#[test]
fn servers_that_are_all_slow_alike_change_nothing() {
    let mut c = Controller::default();
    let well: Vec<_> = (1..5).map(|id| seen(id, 10.0)).collect();
    steps(&mut c, 20, &well);
    let slow: Vec<_> = (1..5).map(|id| seen(id, 100.0)).collect();
    let v = steps(&mut c, 4, &slow);
    assert!(all_configured(&v) && all_because(Why::AllSlow, &v), "{v:?}");
}

#[test]
fn nobody_takes_more_than_the_cap_in_an_interval() {
    let mut c = Controller::default();
    steps(&mut c, 3, &[seen(1, 10.0), seen(2, 10.0), seen(3, 10.0)]);
    for v in c.step(&[seen(1, 10.0), seen(2, 5000.0), seen(3, 5000.0)]) {
        assert!(
            f64::from(v.weight) <= f64::from(v.before) * (1.0 + params::CAP) + 1.0,
            "{v:?}"
        );
    }
}

#[test]
fn a_server_that_comes_back_starts_low_and_grows_by_the_cap() {
    let mut c = Controller::default();
    let well: Vec<_> = (1..5).map(|id| seen(id, 10.0)).collect();
    steps(&mut c, 5, &well);
    let mut down = well.clone();
    down[0] = silent(down[0]);
    down[0].serving = false;
    let v = steps(&mut c, 5, &down);
    assert!(v[0].weight == 0 && v[0].why == Why::Down, "{v:?}");
    let v = c.step(&well);
    assert!(
        v[0].weight > 0 && share(&v, 0) < 0.06 && v[0].why == Why::Returning,
        "{v:?}"
    );
    let v = steps(&mut c, 30, &well);
    assert!((share(&v, 0) - 0.25).abs() < 0.01, "{v:?}");
}

#[test]
fn servers_that_are_there_before_a_service_has_begun_start_with_their_configured_weights() {
    let mut c = Controller::default();
    let mut all: Vec<_> = (1..5).map(|id| seen(id, 10.0)).collect();
    all[1..].iter_mut().for_each(|s| s.serving = false);
    c.step(&all);
    for n in 1..4 {
        all[n].serving = true;
        let v = c.step(&all);
        assert_eq!(v[n].weight, 100 * UNIT, "{v:?}");
    }
    // one that is mentioned for the first time, too
    let mut few = Controller::default();
    let idle = [1, 2, 3].map(|id| silent(seen(id, 1.0)));
    steps(&mut few, 50, &idle[..2]);
    let v = few.step(&idle);
    assert_eq!(v[2].weight, 100 * UNIT, "{v:?}");
}

#[test]
fn a_new_server_of_a_service_that_has_begun_starts_low_whenever_it_is_first_seen() {
    for unhealthy_first in [false, true] {
        let mut c = Controller::default();
        let mut all: Vec<_> = (1..4).map(|id| seen(id, 10.0)).collect();
        steps(&mut c, 10, &all);
        all.push(seen(4, 10.0));
        if unhealthy_first {
            all[3].serving = false;
            c.step(&all);
            all[3].serving = true;
        }
        let v = c.step(&all);
        assert!(
            share(&v, 3) < 0.06 && v[3].why == Why::Returning,
            "{unhealthy_first}: {v:?}"
        );
        let v = steps(&mut c, 30, &all);
        assert!((share(&v, 3) - 0.25).abs() < 0.01, "{v:?}");
    }
}

#[test]
fn a_server_that_comes_back_between_steps_begins_as_the_next_step_would_begin_with_it() {
    let mut c = Controller::default();
    let all: Vec<_> = (1..4).map(|id| seen(id, 10.0)).collect();
    steps(&mut c, 10, &all);
    assert_eq!(c.turn(2, 100, false).weight, 0);
    let back = c.turn(2, 100, true);
    assert_eq!((back.weight, back.why), (10 * UNIT, Why::Returning));
    assert_eq!(c.turn(1, 100, true).weight, 100 * UNIT, "it did not go");
    let v = c.step(&all);
    assert_eq!((v[1].before, v[1].why), (10 * UNIT, Why::Returning));
    assert!(v[1].weight <= 13 * UNIT, "{v:?}");
    // one that was never seen, and one that was resumed
    assert_eq!(c.turn(9, 50, true).weight, 5 * UNIT);
    let mut next = Controller::default();
    next.resume(1, 30 * UNIT);
    assert_eq!(next.turn(1, 100, true).weight, 30 * UNIT);
    assert_eq!(Controller::default().turn(1, 100, true).weight, 100 * UNIT);
}

#[test]
fn without_responses_a_low_weight_grows_back_so_that_it_can_prove_itself() {
    let mut c = Controller::default();
    let mut all = vec![seen(1, 10.0), seen(2, 10.0), seen(3, 900.0)];
    let low = steps(&mut c, 20, &all);
    assert!(low[2].weight > 0);
    all[2] = silent(all[2]);
    let v = steps(&mut c, 30, &all);
    assert!(
        v[2].why == Why::Stale && share(&v, 2) > 3.0 * share(&low, 2),
        "{low:?} {v:?}"
    );
}

#[test]
fn a_server_that_answers_nothing_while_connections_wait_does_not_get_its_weight_back() {
    let mut c = Controller::default();
    let mut all = vec![seen(1, 10.0), seen(2, 10.0), seen(3, 90.0)];
    let low = steps(&mut c, 20, &all);
    (all[2].latency_ns, all[2].samples, all[2].busy) = (None, 0, 5);
    let v = steps(&mut c, 100, &all);
    assert_eq!(v[2].why, Why::Unanswered);
    assert_eq!(v[2].weight, low[2].weight, "{low:?} {v:?}");
    // nor does one lose weight whose connections wait for good reasons
    let mut polls = Controller::default();
    let mut all = vec![seen(1, 10.0), seen(2, 10.0)];
    steps(&mut polls, 5, &all);
    (all[1].latency_ns, all[1].samples, all[1].busy) = (None, 0, 5);
    let v = steps(&mut polls, 100, &all);
    assert!(all_configured(&v), "{v:?}");
}

#[test]
fn few_responses_are_no_reason() {
    let mut c = Controller::default();
    let mut all = [seen(1, 10.0), seen(2, 10.0)];
    (all[1].latency_ns, all[1].samples) = (Some(500.0 * MS), 2);
    let v = steps(&mut c, 2, &all);
    assert!(
        v[1].weight == 100 * UNIT && v[1].why == Why::FewSamples,
        "{v:?}"
    );
}

#[test]
fn a_fast_server_with_less_freshness_than_a_slow_one_takes_nothing() {
    let mut c = Controller::default();
    let mut all = [seen(1, 10.0), seen(2, 10.0), seen(3, 90.0)];
    all[0].connections = 500;
    let v = c.step(&all);
    assert!(
        v[0].why == Why::NotFresh && v[0].weight <= 100 * UNIT,
        "{v:?}"
    );
    assert!(v[1].why == Why::Takes || v[1].why == Why::Capped, "{v:?}");
}

#[test]
fn weights_survive_a_restart() {
    let all = [seen(1, 10.0), seen(2, 40.0)];
    let mut c = Controller::default();
    let before = steps(&mut c, 20, &all);
    let mut next = Controller::default();
    for v in &before {
        next.resume(v.id, v.weight);
    }
    let v = next.step(&all);
    assert_eq!(v[1].before, before[1].weight);
    assert!(
        (share(&v, 1) - share(&before, 1)).abs() < 0.02,
        "{before:?} {v:?}"
    );
}

#[test]
fn latencies_of_near_and_far_clients_are_told_apart_from_servers() {
    let cell = |group, backend, samples, ms: f64| Observation {
        group,
        backend,
        samples,
        latency_ns: ms * MS,
    };
    // Backend 2 has most of the far clients; backend 3 is really slower, by 10 ms.
    let all = [
        cell(1, 1, 900, 12.0),
        cell(2, 1, 100, 92.0),
        cell(1, 2, 100, 12.0),
        cell(2, 2, 900, 92.0),
        cell(1, 3, 500, 22.0),
        cell(2, 3, 500, 102.0),
    ];
    let s = standardise(&all);
    assert!(
        (s[0].latency_ns - s[1].latency_ns).abs() < 0.5 * MS,
        "{s:?}"
    );
    assert!(
        (s[2].latency_ns - s[0].latency_ns - 10.0 * MS).abs() < 0.5 * MS,
        "{s:?}"
    );
    assert!((s[0].latency_ns - 52.0 * MS).abs() < 1.0 * MS, "{s:?}");
    assert!(standardise(&[]).is_empty());
    assert!(standardise(&[cell(1, 1, 0, 1.0), cell(1, 1, 5, f64::NAN)]).is_empty());
}

fn any_latency() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        Just(None),
        (1e3..1e10).prop_map(Some),
        prop::sample::select(vec![0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX, 1e-300])
            .prop_map(Some),
    ]
}

fn any_seen() -> impl Strategy<Value = Vec<Observed>> {
    let counts = prop_oneof![Just(0u64), 1u64..2000, Just(u64::MAX)];
    let one = (
        any_latency(),
        counts.clone(),
        counts,
        0u32..10_000,
        prop::bool::weighted(0.8),
        any::<bool>(),
        0u64..2,
    );
    prop::collection::vec(one, 1..12).prop_map(|all| {
        let make =
            |(id, (latency_ns, samples, connections, base, serving, confirmed, busy))| Observed {
                busy,
                base,
                serving,
                latency_ns,
                samples,
                connections,
                confirmed,
                ..seen(id, 1.0)
            };
        (1u16..).zip(all).map(make).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn weights_stay_within_bounds_whatever_is_seen(history in prop::collection::vec(any_seen(), 1..20)) {
            let mut c = Controller::default();
        let mut factors = [1.0_f64; 13];
        for all in history {
            let verdicts = c.step(&all);
            prop_assert_eq!(verdicts.len(), all.len());
            for (s, v) in all.iter().zip(&verdicts) {
                let unit = f64::from(s.base) * f64::from(UNIT);
                let serves = s.serving && s.base > 0;
                prop_assert_eq!(v.weight > 0, serves);
                prop_assert!(!serves || f64::from(v.weight) >= params::FLOOR * unit - 1.0);
                prop_assert!(f64::from(v.weight) <= params::MOST * unit + 1.0);
                if serves {
                    let before = &mut factors[usize::from(v.id)];
                    let factor = f64::from(v.weight) / unit;
                    let doubted = v.why == Why::Suspicious;
                    prop_assert!(!doubted || factor <= before.max(1.0) + 2.0 / unit);
                    *before = factor + 0.5 / unit; // the most that was rounded to it
                }
            }
        }
    }

    #[test]
    fn the_order_of_backends_does_not_matter(history in prop::collection::vec(any_seen(), 1..8)) {
        let (mut a, mut b) = (Controller::default(), Controller::default());
        for all in history {
            let backwards: Vec<_> = all.iter().rev().copied().collect();
            let mut other = b.step(&backwards);
            other.reverse();
            prop_assert_eq!(a.step(&all), other);
        }
    }
}
