//! Behaviour of the summary on made-up points, and of what is read from packets.

use std::collections::BTreeMap;

use batchwise_core::sense::report::Side;
use batchwise_testbed::load::samples::window;

use super::summary::{Against, Summary};
use super::wire::{Answered, Kind, Packet, Sizes, answered};
use super::{Budget, End, Percentiles, Point};
use crate::engine::Verdict;

fn end(p50: f64, p99: Option<f64>) -> End {
    End {
        estimated: Percentiles {
            p50: Some(p50),
            p99,
        },
        matched: 1000,
        confidence: 0.5,
        cost: 0.01,
        beside_ns: 0,
        captured: None,
        late_ns: [0; 2],
    }
}

/// The generator measured 100 µs.
fn point(budget: Budget, client: End) -> Point {
    Point {
        workload: "64B".into(),
        budget,
        step_rps: 1000,
        repeat: 0,
        attempt: 0,
        load: window(1000.0, 100.0),
        saturated: false,
        ends: BTreeMap::from([(Side::Client, client)]),
    }
}

#[test]
fn the_headline_is_the_clients_with_the_default_budget() {
    let points = [
        point(Budget::Default, end(90e3, Some(120e3))),
        point(Budget::Off, end(100e3, Some(100e3))),
    ];
    let found = &Summary::of(&points, &points).per_workload["64B"];
    assert!((found.headline.p50_rel_error.unwrap() - 0.1).abs() < 1e-9);
    assert!((found.headline.p99_bias.unwrap() - 0.2).abs() < 1e-9);
    assert_eq!((found.headline.points, found.load_invalid), (1, 2));
    let off = &found.by_budget[&Budget::Off][&Against::Client];
    assert_eq!(off.p50_rel_error, Some(0.0));
}

#[test]
fn a_verdict_takes_fifteen_points_and_those_beyond_saturation_are_none() {
    let mut points = vec![point(Budget::Default, end(105e3, Some(150e3))); 15];
    let headline = |points: &[Point]| {
        let found = &Summary::of(points, &[]).per_workload["64B"].headline;
        (found.p50_verdict, found.p99_verdict)
    };
    assert_eq!(headline(&points), (Verdict::Met, Verdict::Missed));
    points[3].saturated = true;
    assert_eq!(headline(&points).0, Verdict::Undecided);
}

#[test]
fn a_percentile_that_is_not_known_is_missing_and_no_error() {
    let points = [point(Budget::Default, end(100e3, None))];
    let found = &Summary::of(&points, &[]).per_workload["64B"].headline;
    assert_eq!((found.missing, found.p99_rel_error), (1, None));
}

#[test]
fn a_servers_own_part_is_compared_without_the_network() {
    let mut server = end(90e3, Some(90e3));
    server.beside_ns = 30_000;
    server.captured = Some(Percentiles {
        p50: Some(60e3),
        p99: Some(120e3),
    });
    let mut one = point(Budget::Off, server.clone());
    one.ends = BTreeMap::from([(Side::Server, server)]);
    let found = Summary::of(&[one], &[]);
    let by = &found.per_workload["64B"].by_budget[&Budget::Off];
    assert!((by[&Against::Server].p50_bias.unwrap() + 0.1).abs() < 1e-9);
    assert!(by[&Against::ServerWire].p50_rel_error.unwrap() < 1e-9);
    assert!((by[&Against::ServerWire].p99_bias.unwrap() + 0.5).abs() < 1e-9);
    assert_eq!(by[&Against::Client].missing, 1);
}

/// Packets of one connection, `(at, from the server, bytes, begins)`, its greeting before them.
fn packets(of: &[(u64, bool, u64, Option<Kind>)]) -> Vec<Packet> {
    let mut next = [u32::MAX - 20, 7];
    let greeting = [(0, false, 6, None), (0, true, 7, None)];
    let all = greeting.iter().chain(of);
    all.map(|&(at_ns, from_server, length, begins)| {
        let sequence = &mut next[usize::from(from_server)];
        let packet = Packet {
            at_ns,
            from_server,
            sequence: *sequence,
            length: length as u32,
            begins,
        };
        *sequence = sequence.wrapping_add(length as u32);
        packet
    })
    .collect()
}

/// "*3 $3 SET $16 key $64 value" and "*2 $3 GET $16 key" with their line ends.
const SET: u64 = 4 + 9 + 23 + 71;
const GET: u64 = 4 + 9 + 23;
const SETS: Option<Kind> = Some(Kind::Set);

fn latencies(of: &[(u64, bool, u64, Option<Kind>)]) -> Option<Vec<u64>> {
    let found = answered(&packets(of), &Sizes::of(64))?;
    Some(found.iter().map(|a| a.latency_ns).collect())
}

#[test]
fn a_request_lasts_from_its_last_byte_to_the_first_of_its_response() {
    let found = answered(
        &packets(&[
            (100, false, SET - 7, SETS),
            (110, false, 7, None),
            (150, true, 5, None),
            (200, false, SET, SETS),
        ]),
        &Sizes::of(64),
    );
    let expected = Answered {
        at_ns: 150,
        latency_ns: 40,
    };
    assert_eq!(found, Some(vec![expected]));
}

#[test]
fn requests_that_share_packets_are_told_apart_by_their_lengths() {
    let found = latencies(&[
        (100, false, 2 * SET + 3, SETS),
        (130, false, SET - 3, None),
        (140, true, 10, None),
        (190, true, 5, None),
        (200, false, SET, SETS),
    ]);
    assert_eq!(found, Some(vec![40, 40, 60]));
}

#[test]
fn a_get_among_sets_is_found_by_the_bytes_and_its_reply_is_longer() {
    let found = latencies(&[
        (100, false, SET + GET, SETS),
        (120, false, GET, Some(Kind::Get)),
        (130, true, 5 + 71, None),
        (170, true, 71, None),
        (200, false, SET, SETS),
    ]);
    assert_eq!(found, Some(vec![30, 30, 50]));
}

#[test]
fn packets_out_of_order_arrive_when_the_gap_is_filled() {
    let mut all = packets(&[
        (100, false, SET, SETS),
        (110, false, SET, SETS),
        (150, true, 10, None),
        (200, false, SET, SETS),
    ]);
    all.swap(2, 3);
    (all[2].at_ns, all[3].at_ns) = (100, 110);
    let found = answered(&all, &Sizes::of(64)).unwrap();
    let latencies = found.iter().map(|a| a.latency_ns);
    assert!(latencies.eq([40, 40]));
}

#[test]
fn a_packet_that_the_capture_missed_leaves_the_truth_unknown() {
    let mut all = packets(&[(100, false, SET, SETS), (200, false, SET, SETS)]);
    all[3].sequence = all[3].sequence.wrapping_add(1);
    assert_eq!(answered(&all, &Sizes::of(64)), None);
    all[3].sequence = all[3].sequence.wrapping_sub(1 + SET as u32);
    assert_eq!(
        answered(&all, &Sizes::of(64)),
        Some(Vec::new()),
        "sent again"
    );
}
