//! The models against the paper, against measurements and against each other.

mod requests;

use batchwise_core::tune::Arm;

use super::costs::Costs;
use super::policies::Kind;
use super::run::{Outcome, run};
use super::scenarios::{self, Scenario};
use requests::Requests;

/// Figure 1 of the paper: α = 2, β = 4, three requests wait. Mean latency, and when the last
/// response was done with.
#[test]
fn what_batching_does_to_latency_and_throughput_depends_on_the_client() {
    for (c, batched, single) in [
        // a cheap client: both improve
        (1.0, (12.0, 13.0), (13.0, 19.0)),
        // an expensive one: both degrade
        (5.0, (20.0, 25.0), (17.0, 23.0)),
        // between them: throughput improves, latency degrades
        (3.0, (16.0, 19.0), (15.0, 21.0)),
    ] {
        let costs = Costs {
            alpha: 2.0,
            beta: 4.0,
            c,
            packet_server: 0.0,
            rtt: 0.0,
            ..Costs::B64
        };
        let at_once = |most| Requests::waiting_at_server(costs, 3, most);
        assert_eq!((at_once(3), at_once(1)), (batched, single), "{c}");
    }
}

/// Mean latencies by request and in closed form, ns.
fn both_models(costs: Costs, arm: Arm, load: f64) -> (f64, f64) {
    let n = (load as usize).clamp(400, 40_000);
    let single = Requests::open_loop(costs, arm, load, n, 1);
    (single.0, costs.outcome(arm, load).latency)
}

#[test]
fn the_closed_form_follows_single_requests_at_every_size_and_load() {
    for (costs, loads) in [
        (Costs::B64, vec![20e3, 100e3, 200e3, 250e3]),
        (Costs::B512, vec![20e3, 100e3, 150e3]),
        (Costs::KIB4, vec![20e3, 100e3, 200e3]),
        (Costs::KIB16, vec![20e3, 60e3, 90e3]),
        (Costs::TWO_WRITES, vec![20.0, 1e3, 20e3]),
    ] {
        for load in loads {
            for arm in [Arm::On, Arm::Off] {
                let (single, closed) = both_models(costs, arm, load);
                let ratio = closed / single;
                assert!(
                    (0.6..1.4).contains(&ratio),
                    "{} B, {load}/s, {arm:?}: {single} and {closed}",
                    costs.bytes
                );
            }
        }
    }
}

#[test]
fn both_models_agree_on_the_better_arm_where_it_matters() {
    for (costs, load, better) in [
        (Costs::B64, 250e3, Arm::On),
        (Costs::B64, 270e3, Arm::On),
        (Costs::B512, 150e3, Arm::Off),
        (Costs::KIB4, 100e3, Arm::Off),
        (Costs::KIB16, 60e3, Arm::Off),
        (Costs::TWO_WRITES, 20e3, Arm::Off),
    ] {
        let (on, off) = (
            both_models(costs, Arm::On, load),
            both_models(costs, Arm::Off, load),
        );
        assert_eq!(on.0 < off.0, better == Arm::On, "{load}: {on:?} {off:?}");
        assert_eq!(costs.better(load).0, better, "{load}");
    }
}

#[test]
fn overload_begins_at_the_same_load_in_both_models() {
    for arm in [Arm::On, Arm::Off] {
        let capacity = Costs::B64.outcome(arm, 0.0).capacity;
        let latency =
            |share: f64| Requests::open_loop(Costs::B64, arm, share * capacity, 100_000, 1).0;
        assert!(latency(0.9) < 500e3, "{arm:?}");
        assert!(latency(1.2) > 2e6, "{arm:?}");
    }
}

/// The shape of what was measured on Redis over veth with both arms.
#[test]
fn parameters_resemble_redis() {
    let us = |costs: Costs, arm, load| costs.outcome(arm, load).latency / 1e3;
    let nodelay = Costs::B64.outcome(Arm::Off, 0.0).capacity;
    let nagle = Costs::B64.outcome(Arm::On, 0.0).capacity;
    assert!((250e3..300e3).contains(&nodelay), "{nodelay}");
    assert!((600e3..700e3).contains(&nagle), "{nagle}");
    let ratio = |costs, load| us(costs, Arm::On, load) / us(costs, Arm::Off, load);
    assert!((0.75..1.3).contains(&ratio(Costs::B64, 100e3)));
    assert!((1.2..2.5).contains(&ratio(Costs::B512, 150e3)));
    for (costs, load) in [
        (Costs::KIB4, 100e3),
        (Costs::KIB4, 200e3),
        (Costs::KIB16, 60e3),
        (Costs::KIB16, 90e3),
    ] {
        assert!((2.5..9.0).contains(&ratio(costs, load)), "{load}");
    }
}

fn scenario(name: &str, seconds: f64) -> Scenario {
    let mut all = scenarios::all(seconds).into_iter();
    all.find(|s| s.name == name)
        .unwrap_or_else(|| panic!("there is no scenario {name:?}"))
}

fn outcomes(name: &str, seconds: f64) -> [Outcome; 3] {
    let scenario = scenario(name, seconds);
    [
        Kind::Static(Arm::On),
        Kind::Static(Arm::Off),
        Kind::Controller,
    ]
    .map(|kind| run(&scenario, kind, 1))
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let [_, _, a] = outcomes(scenarios::STEPS, 60.0);
    let [_, _, b] = outcomes(scenarios::STEPS, 60.0);
    assert_eq!((a.latency_ns, a.trace), (b.latency_ns, b.trace));
}

#[test]
fn under_a_stationary_load_batchwise_comes_within_five_percent_of_the_better_arm() {
    for name in [
        "steady 64 B, 20 k/s",
        "steady 64 B, 250 k/s",
        "steady 512 B, 150 k/s",
        "steady 4 KiB, 100 k/s",
        "steady 4 KiB, 200 k/s",
        "steady 16 KiB, 60 k/s",
        "overload of both: 64 B, 800 k/s",
    ] {
        let [on, off, own] = outcomes(name, 300.0);
        let waited = |o: &Outcome| o.windows.iter().skip(2).sum::<f64>();
        let ratio = waited(&own) / waited(&on).min(waited(&off));
        assert!(ratio < 1.05, "{name}: {ratio}");
    }
}

#[test]
fn where_the_default_is_right_no_ten_seconds_lose_more_than_the_budget() {
    for name in [
        "steady 512 B, 150 k/s",
        "steady 4 KiB, 100 k/s",
        "steady 16 KiB, 60 k/s",
        "idle: two writes, 20/s",
    ] {
        let [_, off, own] = outcomes(name, 300.0);
        for (a, b) in own.windows.iter().zip(&off.windows) {
            assert!(a / b < 1.02, "{name}: {}", a / b);
        }
    }
}

#[test]
fn the_summary_follows_from_the_points_of_a_result() {
    let scenario = scenario("steady 64 B, 250 k/s", 20.0);
    let points = super::compare(&scenario, 1).unwrap();
    let result = serde_json::json!({
        "experiment": "regret", "machine": {}, "complete": true, "points": points,
        "simulated_s": 140.0, "seeds": 1,
    });
    let replayed = crate::engine::summarise("regret", &result).unwrap();
    let own = points.iter().find(|p| p.policy == "batchwise").unwrap();
    assert_eq!(replayed["worst_stationary"], own.vs_best_static);
    assert_eq!(replayed["worst_settle_s"], 0.0, "nothing changed");
}
