//! What disciplines, TCP and the network do, as behaviours.

use super::abuse::{Strategy, carried};
use super::discipline::Which;
use super::network::{Outcomes, Spec, run};
use super::rules::Variant;
use super::scenarios::{GBIT, MBIT, Scenario, Traffic};
use super::tcp::Recovery;

const INCAST: Scenario = Scenario {
    traffic: Traffic::Incast { packets: 10 },
    rate: GBIT,
    recovery: Recovery::Rack,
};

fn spec(which: Which) -> Spec {
    INCAST.spec(which, Variant::NONE, 1)
}

/// The first flow alone.
fn alone(which: Which, packets: u32) -> Outcomes {
    let mut spec = spec(which);
    spec.flows.truncate(1);
    spec.flows[0].total = Some(packets);
    run(&spec, 1)
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for which in Which::ALL {
        assert_eq!(run(&spec(which), 3), run(&spec(which), 3), "{which:?}");
    }
}

#[test]
fn a_flow_alone_needs_two_round_trips_and_its_sending_time_under_every_discipline() {
    for which in Which::ALL {
        let outcomes = alone(which, 10);
        let took = outcomes.flows[0].took.unwrap();
        // 100 µs there and back for the SYN, half of that for the data, 10 × 12 µs
        assert!((270_000..285_000).contains(&took), "{which:?}: {took} ns");
        assert_eq!(outcomes.dropped, 0, "{which:?}");
    }
}

#[test]
fn the_initial_window_is_10() {
    let took = |packets| alone(Which::DropTail, packets).flows[0].took.unwrap();
    // at 10 Gbit/s at the sender, and 12 µs a packet: the eleventh waits for an acknowledgment
    assert!(took(10) - took(9) < 13_000);
    let mut far = spec(Which::DropTail);
    far.flows.truncate(1);
    far.access_delay = 10_000_000;
    let mut took = |packets| {
        far.flows[0].total = Some(packets);
        run(&far, 1).flows[0].took.unwrap()
    };
    // but for what the first ten need to leave
    assert!(took(11) - took(10) > 19_900_000);
}

#[test]
fn every_segment_arrives_once_however_many_are_dropped() {
    for recovery in [Recovery::Rack, Recovery::Cliff] {
        for which in Which::ALL {
            let scenario = Scenario { recovery, ..INCAST };
            let mut spec = scenario.spec(which, Variant::NONE, 2);
            spec.count_from = 0;
            let outcomes = run(&spec, 2);
            assert!(outcomes.dropped > 0, "{which:?}");
            for flow in outcomes.flows {
                assert!(flow.is_complete, "{which:?}");
                assert_eq!(flow.arrived, 10, "{which:?}");
            }
        }
    }
}

#[test]
fn a_queue_that_nobody_marks_for_is_drop_tail() {
    let run_of = |which| {
        let mut spec = spec(which);
        for flow in &mut spec.flows {
            flow.marks = super::network::Marks::Never;
        }
        run(&spec, 4)
    };
    assert_eq!(run_of(Which::Batchwise), run_of(Which::DropTail));
}

#[test]
fn the_link_carries_its_rate_and_fair_queues_share_it() {
    let scenario = Scenario {
        traffic: Traffic::OneOf50 {
            unit: 1,
            jumbo: false,
        },
        rate: 100 * MBIT,
        recovery: Recovery::Rack,
    };
    let middle_half = [Which::DropTail, Which::Cake].map(|which| {
        let mut spec = scenario.spec(which, Variant::NONE, 1);
        spec.until = 4_000_000_000;
        let mut arrived: Vec<_> = run(&spec, 1).flows.iter().map(|f| f.arrived).collect();
        let all: u64 = arrived.iter().sum();
        // three seconds of 12,000 bits a packet
        assert!((23_000..=25_010).contains(&all), "{which:?}: {all}");
        arrived.sort_unstable();
        arrived[37] - arrived[12]
    });
    let [drop_tail, cake] = middle_half;
    assert!(3 * cake < drop_tail, "{middle_half:?}");
}

#[test]
fn a_liar_takes_next_to_nothing() {
    let marks_everything = Strategy::Tcp {
        share: 1.0,
        claims: 10,
    };
    let honest = |which| {
        let of = |seed| carried(marks_everything, which, Variant::NONE, seed).honest;
        (1..=3).map(of).sum::<u64>() as f64
    };
    let own = honest(Which::Batchwise) / honest(Which::DropTail);
    assert!(own > 0.98, "{own}");
}
