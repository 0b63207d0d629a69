//! The models against the paper, against measurements and against each other.
use batchwise_core::tune::Arm;

use super::costs::Costs;
use super::requests::{Requests, Shown};

/// Figure 1 of the paper: α = 2, β = 4, three requests wait.
fn figure_1(c: f64) -> (Shown, Shown) {
    let costs = Costs {
        alpha: 2.0,
        beta: 4.0,
        c,
        packet_server: 0.0,
        rtt: 0.0,
        ..Costs::B64
    };
    (
        Requests::waiting_at_server(costs, 3, 3),
        Requests::waiting_at_server(costs, 3, 1),
    )
}

#[test]
fn with_a_cheap_client_batching_improves_latency_and_throughput() {
    let (batched, single) = figure_1(1.0);
    assert_eq!((batched.latency, batched.end), (12.0, 13.0));
    assert_eq!((single.latency, single.end), (13.0, 19.0));
}

#[test]
fn with_an_expensive_client_batching_degrades_latency_and_throughput() {
    let (batched, single) = figure_1(5.0);
    assert_eq!((batched.latency, batched.end), (20.0, 25.0));
    assert_eq!((single.latency, single.end), (17.0, 23.0));
}

#[test]
fn in_between_batching_improves_throughput_and_degrades_latency() {
    let (batched, single) = figure_1(3.0);
    assert_eq!((batched.latency, batched.end), (16.0, 19.0));
    assert_eq!((single.latency, single.end), (15.0, 21.0));
}
