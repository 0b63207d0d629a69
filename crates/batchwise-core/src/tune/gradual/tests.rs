//! Where the limit goes, and where it does not.
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::sense::report::Side;
use crate::tune::Policy;

const TICK: u64 = 4_000_000;

/// A service as its meter and its ticks show it.
#[derive(Clone, Copy)]
struct Show {
    latency: f64,
    rate: f64,
    confidence: f64,
    outstanding: u64,
    bytes: f64,
}

const CALM: Show = Show {
    latency: 50e3,
    rate: 100e3,
    confidence: 0.9,
    outstanding: 500,
    bytes: 100.0,
};

struct Fake(Show);

impl Meter for Fake {
    fn restart(&mut self) {}
    fn measure(&mut self) -> Option<Measurement> {
        (self.0.rate > 0.0).then_some(Measurement {
            latency: self.0.latency,
            throughput: self.0.rate,
            message_bytes: self.0.bytes,
            confidence: self.0.confidence,
        })
    }
}

struct Bench {
    gradual: Gradual,
    now: u64,
}

impl Bench {
    fn new(wish: Arm) -> Self {
        let tuning = Tuning::new(Policy::Latency, Side::Client);
        Self {
            gradual: Gradual::new(tuning, 0, wish),
            now: 0,
        }
    }

    /// A tick of a service that is so under each limit.
    fn tick(&mut self, show: impl Fn(u32) -> Show) -> Command {
        self.now += TICK;
        let s = show(self.gradual.limit());
        let done = (s.rate * TICK as f64 / 1e9) as u64;
        let vitals = Vitals {
            now: self.now,
            connections: 4,
            wish: self.gradual.wish(),
            bytes: 100 * done,
            outstanding: s.outstanding,
            retransmits: 0,
            rtt: 20_000,
            quick: Some(Quick {
                waited: s.latency * done as f64,
                done,
            }),
            peer: None,
        };
        self.gradual.tick(&vitals, &mut Fake(s))
    }

    /// The limits that it had, in order.
    fn run(&mut self, ticks: usize, show: impl Fn(u32) -> Show) -> Vec<u32> {
        let mut limits = Vec::from([self.gradual.limit()]);
        for _ in 0..ticks {
            self.tick(&show);
            limits.push(self.gradual.limit());
        }
        limits.dedup();
        limits
    }
}

#[test]
fn the_limit_climbs_by_one_segment_while_batching_helps() {
    let mut bench = Bench::new(Arm::Off);
    let limits = bench.run(3_000, |limit| Show {
        latency: 50e3 - 0.5 * f64::from(limit),
        ..CALM
    });
    let last = limits.len() - 1;
    assert_eq!(limits[last], MOST_LIMIT);
    let steps = limits[..last].windows(2);
    assert!(steps.into_iter().all(|w| w[1] - w[0] == STEP), "{limits:?}");
}

#[test]
fn the_limit_falls_by_half_each_time_that_it_hurts() {
    let mut bench = Bench::new(Arm::Off);
    let limits = bench.run(2_000, |limit| Show {
        latency: if limit > 10_000 { 100e3 } else { 50e3 },
        ..CALM
    });
    let hurt: Vec<_> = limits.windows(2).filter(|w| w[0] > 10_000).collect();
    assert!(hurt.len() > 3);
    assert!(hurt.iter().all(|w| w[1] == w[0] / 2), "{limits:?}");
}

#[test]
fn a_limit_under_two_messages_is_nodelay() {
    let mut bench = Bench::new(Arm::On);
    assert_eq!(bench.gradual.arm(), Arm::On);
    bench.run(20, |_| CALM);
    let mut off = 0;
    for _ in 0..3_000 {
        let command = bench.tick(|limit| Show {
            latency: if limit >= 200 { 500e3 } else { 50e3 },
            ..CALM
        });
        let under_two = bench.gradual.limit() < 200;
        assert_eq!(command.arm == Some(Arm::Off), under_two);
        off += u32::from(under_two);
    }
    assert!(off > 100, "{off}");
}

#[test]
fn an_overload_doubles_the_limit() {
    let mut bench = Bench::new(Arm::Off);
    let mut queue = 1_000_000.0;
    let mut limits = Vec::new();
    for _ in 0..250 {
        queue *= 1.05;
        let overload = Show {
            latency: 20e6,
            outstanding: queue as u64,
            ..CALM
        };
        bench.tick(|_| overload);
        limits.push(bench.gradual.limit());
    }
    limits.dedup();
    assert_eq!(limits[..5], [0, STEP, 2 * STEP, 4 * STEP, 8 * STEP]);
}

#[test]
fn without_evidence_the_limit_stays_put() {
    let idle = Show { rate: 0.0, ..CALM };
    let distrusted = Show {
        confidence: 0.2,
        ..CALM
    };
    let nothing_under_way = Show {
        rate: 600.0,
        ..CALM
    };
    for show in [idle, distrusted, nothing_under_way] {
        let mut bench = Bench::new(Arm::Off);
        bench.run(100, |_| CALM);
        let limit = bench.gradual.limit();
        assert!(limit > 0);
        // what began before is measured to its end
        bench.run(12, |_| show);
        let limit = bench.gradual.limit();
        assert_eq!(bench.run(1_000, |_| show), [limit]);
    }
}

#[test]
fn a_stall_of_the_machine_moves_nothing() {
    let mut bench = Bench::new(Arm::Off);
    bench.run(300, |_| CALM);
    let mut limits = Vec::new();
    for tick in 0..500 {
        let stalled = tick % 50 == 0;
        bench.tick(|_| Show {
            latency: if stalled { 5e6 } else { 50e3 },
            ..CALM
        });
        limits.push(bench.gradual.limit());
    }
    assert!(limits.is_sorted(), "{limits:?}");
}

#[test]
fn another_load_is_no_comparison() {
    let mut bench = Bench::new(Arm::Off);
    let before = bench.run(400, |_| CALM);
    let after = bench.run(400, |_| Show {
        latency: 80e3,
        rate: 250e3,
        ..CALM
    });
    assert!(
        before.is_sorted() && after.is_sorted(),
        "{before:?} {after:?}"
    );
}

#[test]
fn other_messages_begin_from_nothing() {
    let mut bench = Bench::new(Arm::Off);
    bench.run(400, |_| CALM);
    assert!(bench.gradual.limit() > STEP);
    let after = bench.run(60, |_| Show {
        bytes: 4_000.0,
        ..CALM
    });
    assert_eq!(after[1], 0, "{after:?}");
    assert_eq!(bench.gradual.arm(), Arm::Off);
}

#[test]
fn until_first_measured_sockets_are_as_their_applications_asked() {
    for wish in [Arm::On, Arm::Off] {
        let mut bench = Bench::new(wish);
        let command = bench.tick(|_| CALM);
        assert_eq!((bench.gradual.arm(), command.arm), (wish, None));
    }
}

#[test]
fn only_what_doubles_or_halves_it_is_told() {
    let mut bench = Bench::new(Arm::Off);
    bench.run(3_000, |_| CALM);
    let told: Vec<_> = bench.gradual.events();
    assert_eq!(told[0].happened, Happened::Start);
    let limits: Vec<_> = told[1..].iter().filter_map(|e| e.limit).collect();
    assert_eq!(limits, [1, 2, 4, 8, 16, 32].map(|n| n * STEP));
}

proptest! {
    #[test]
    fn the_limit_stays_in_bounds_whatever_comes(
        on in any::<bool>(),
        ticks in prop::collection::vec(
            (prop_oneof![0.0..1e9, Just(f64::INFINITY), Just(f64::NAN)], 0.0..1e7,
             0.0..=1.0, 0..u64::MAX >> 24),
            0..600,
        ),
    ) {
        let mut bench = Bench::new(if on { Arm::On } else { Arm::Off });
        for (latency, rate, confidence, outstanding) in ticks {
            let before = bench.gradual.limit();
            bench.tick(|_| Show { latency, rate, confidence, outstanding, bytes: 100.0 });
            let after = bench.gradual.limit();
            prop_assert!(after <= MOST_LIMIT);
            prop_assert!(after >= before / 2 || after == 0);
        }
    }

    #[test]
    fn it_climbs_wherever_latency_falls_with_the_limit(
        gain in 0.05..0.9, rate in 20e3..500e3, start in 30e3..500e3,
    ) {
        let mut bench = Bench::new(Arm::Off);
        let limits = bench.run(1_500, |limit| Show {
            latency: start * (1.0 - gain * f64::from(limit) / f64::from(MOST_LIMIT)),
            rate,
            ..CALM
        });
        prop_assert!(limits.is_sorted());
        prop_assert!(limits.len() > 20);
    }

    #[test]
    fn it_never_stays_where_batching_hurts(worse in 1.2..20.0) {
        let mut bench = Bench::new(Arm::Off);
        let limits = bench.run(2_000, |limit| Show {
            latency: if limit > 20_000 { 50e3 * worse } else { 50e3 },
            ..CALM
        });
        for w in limits.windows(2).filter(|w| w[0] > 20_000) {
            prop_assert!(w[1] <= 20_000 || w[1] == w[0] / 2);
        }
    }
}
