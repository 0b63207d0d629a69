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

#[test]
fn zz_print() {
    for (name, costs, loads) in [
        (
            "64",
            Costs::B64,
            vec![20e3, 100e3, 200e3, 250e3, 270e3, 300e3, 500e3, 600e3],
        ),
        ("512", Costs::B512, vec![20e3, 100e3, 150e3, 200e3]),
        ("4k", Costs::KIB4, vec![20e3, 100e3, 200e3]),
        ("16k", Costs::KIB16, vec![20e3, 60e3, 90e3]),
        ("2w", Costs::TWO_WRITES, vec![20., 100., 1000., 20e3, 100e3]),
    ] {
        for load in loads {
            let n = (load as usize).min(40_000);
            let des = |arm| Requests::open_loop(costs, arm, load, n, 1).latency / 1e3;
            let cf = |arm| costs.outcome(arm, load);
            println!(
                "{name} {load}: des on {:.0} off {:.0}; cf on {:.0} ({:.0}) off {:.0} ({:.0})",
                des(Arm::On),
                des(Arm::Off),
                cf(Arm::On).latency / 1e3,
                cf(Arm::On).capacity,
                cf(Arm::Off).latency / 1e3,
                cf(Arm::Off).capacity
            );
        }
    }
}

#[test]
fn zz_table() {
    use super::{policies::Kind, run::run, scenarios};
    use batchwise_core::tune::Policy;
    let kinds = [
        Kind::Static(Arm::On),
        Kind::Static(Arm::Off),
        Kind::Oracle,
        Kind::Greedy {
            epsilon: 0.1,
            ticks: 10,
        },
        Kind::Controller,
    ];
    let secs = std::env::var("SECS").map_or(60.0, |s| s.parse().unwrap());
    let only = std::env::var("ONLY").unwrap_or_default();
    for s in scenarios::all(secs) {
        if !s.name.contains(&only) {
            continue;
        }
        let outs: Vec<_> = kinds
            .iter()
            .map(|&k| run(&s, k, Policy::Latency, 7, false))
            .collect();
        let default = if s.wish == Arm::On {
            &outs[0]
        } else {
            &outs[1]
        };
        println!("{}", s.name);
        for (k, o) in kinds.iter().zip(&outs) {
            let best = outs[0].latency_ns.min(outs[1].latency_ns);
            let worst = o
                .windows
                .iter()
                .zip(&default.windows)
                .map(|(a, b)| a / b - 1.0)
                .fold(f64::MIN, f64::max);
            let mut settle = o.settle_s.clone();
            settle.sort_by(f64::total_cmp);
            let q = |p: f64| {
                settle
                    .get(((settle.len() as f64 - 1.0) * p) as usize)
                    .copied()
                    .unwrap_or(-1.0)
            };
            println!(
                "   {:22} {:9.1}us vs best {:+6.1}% oracle {:+7.1}% worst10s {:+6.1}% wrong {:4.1}% sw/min {:5.1} probes {:5.1} sensing {:3.0}% settle {:.2} {:.2} {:.2} n{} both {}",
                k.name(),
                o.latency_ns / 1e3,
                100. * (o.latency_ns / best - 1.),
                100. * (o.latency_ns / outs[2].latency_ns - 1.),
                100. * worst,
                100. * o.wrong,
                o.switches_per_min,
                o.probes_per_min,
                100. * o.sensing,
                q(0.5),
                q(0.95),
                q(1.0),
                settle.len(),
                o.both_probing
            );
        }
        if !only.is_empty() {
            for e in outs[4]
                .events
                .iter()
                .take(std::env::var("EV").map_or(60, |s| s.parse().unwrap()))
            {
                println!(
                    "      {:8.3} {:?} {:?} load {:.0} budget {:.2e} {}",
                    e.at as f64 / 1e9,
                    e.happened,
                    e.arm,
                    e.load,
                    e.budget_left,
                    e.why
                );
            }
        }
    }
}
