//! Latencies that are too good to be believed.

use batchwise_core::balance::{Controller, UNIT, Why};

use super::{MS, all_configured, seen, share, steps};

#[test]
fn fast_errors_attract_nothing_until_a_health_check_vouches_for_them() {
    let mut c = Controller::default();
    let well: Vec<_> = (1..5).map(|id| seen(id, 10.0)).collect();
    steps(&mut c, 10, &well);
    let mut failing = well.clone();
    failing[2].latency_ns = Some(0.3 * MS);
    let v = steps(&mut c, 20, &failing);
    assert!(v[2].why == Why::Suspicious && all_configured(&v), "{v:?}");
    failing[2].confirmed = true;
    let v = steps(&mut c, 20, &failing);
    assert!(share(&v, 2) > 0.4, "{v:?}");
}

#[test]
fn a_fast_latency_that_nobody_vouches_for_is_not_believed_however_long_it_lasts() {
    let mut c = Controller::default();
    let mut all = [seen(1, 10.0), seen(2, 10.0), seen(3, 60.0), seen(4, 10.0)];
    let well = steps(&mut c, 20, &all);
    assert!(well[3].weight > 100 * UNIT, "{well:?}");
    all[3].latency_ns = Some(0.3 * MS);
    for _ in 0..3000 {
        let v = c.step(&all);
        assert!(
            v[3].weight <= 100 * UNIT && v[3].why == Why::Suspicious,
            "it has its configured weight at most: {v:?}"
        );
        assert!(v[..2].iter().all(|v| v.weight >= 100 * UNIT), "{v:?}");
    }
}

#[test]
fn what_was_answered_while_it_failed_is_no_standard_when_it_is_well_again() {
    let mut c = Controller::default();
    let well = [seen(1, 10.0), seen(2, 10.0), seen(3, 10.0)];
    steps(&mut c, 10, &well);
    let mut failing = well;
    (failing[2].latency_ns, failing[2].samples) = (Some(0.3 * MS), 25_000);
    steps(&mut c, 10, &failing);
    for _ in 0..10 {
        let v = c.step(&well);
        assert!(all_configured(&v), "{v:?}");
    }
}

#[test]
fn a_doubted_server_that_has_come_back_grows_to_its_configured_weight() {
    let mut c = Controller::default();
    let mut all = [seen(1, 10.0), seen(2, 10.0), seen(3, 10.0)];
    steps(&mut c, 10, &all);
    all[2].serving = false;
    steps(&mut c, 5, &all);
    // the others are overloaded without it
    (all[2].serving, all[2].latency_ns) = (true, Some(0.5 * MS));
    let v = steps(&mut c, 30, &all);
    let full = (99 * UNIT..=100 * UNIT).contains(&v[2].weight);
    assert!(full && v[2].why == Why::Suspicious, "{v:?}");
}

#[test]
fn of_two_servers_after_a_restart_both_keep_what_they_have_while_nobody_knows_which_is_odd() {
    for (before, fast, times) in [([100, 100], 0.3, 30), ([180, 20], 10.0, 1000)] {
        let mut c = Controller::default();
        c.resume(1, before[0] * UNIT);
        c.resume(2, before[1] * UNIT);
        let odd = [seen(1, fast), seen(2, 60.0)];
        let v = steps(&mut c, times, &odd);
        let weights = [v[0].weight, v[1].weight].map(|w| w / UNIT);
        assert_eq!(v[0].why, Why::Suspicious);
        assert_eq!(weights, before, "{v:?}");
        let mut confirmed = odd;
        confirmed[0].confirmed = true;
        let v = steps(&mut c, 20, &confirmed);
        assert!(share(&v, 0) > 0.75, "{v:?}");
    }
}

#[test]
fn of_two_servers_that_were_never_alike_the_slow_one_gives_something_after_a_while() {
    let mut c = Controller::default();
    let mut all = [seen(1, 10.0), seen(2, 60.0)];
    let v = steps(&mut c, 30, &all);
    assert_eq!(v[1].weight, 100 * UNIT);
    let v = steps(&mut c, 60, &all);
    assert!((0.25..0.4).contains(&share(&v, 1)), "{v:?}");
    // it may be the other one that fails: no more than that is given
    let late = steps(&mut c, 1000, &all);
    assert_eq!(late, v);
    // less load brings it near enough to be judged, and to be known from then on
    all[1].latency_ns = Some(25.0 * MS);
    steps(&mut c, 2, &all);
    all[1].latency_ns = Some(60.0 * MS);
    let v = steps(&mut c, 10, &all);
    assert!(share(&v, 1) < 0.25 && v[0].why != Why::Suspicious, "{v:?}");
}
