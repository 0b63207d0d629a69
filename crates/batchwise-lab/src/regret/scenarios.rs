//! Loads to decide under: stationary, drifting, bursty, adversarial.

use batchwise_core::tune::Arm;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution as _, Exp1};

use super::costs::Costs;
use super::world::{Load, Noise};

/// Scenarios that are drawn.
pub const TURNS: &str = "64 B and 4 KiB in turn, 5 s";
/// See [`TURNS`].
pub const STEPS: &str = "random steps of 5 s, 64 B and 4 KiB";

/// How load goes over time.
#[derive(Clone, Debug)]
pub enum Pattern {
    /// Always the same.
    Steady(Load),
    /// Between two rates, as a sine of the logarithm with this period, s.
    Sine { low: Load, high: f64, period: f64 },
    /// One after the other, each for as long, s.
    Cycle { each: f64, loads: Vec<Load> },
    /// Any of them at random, each for an exponential time of this mean, s.
    Steps { mean: f64, loads: Vec<Load> },
    /// Changes to the next one in the moment that a trial begins.
    AtProbes(Vec<Load>),
}

/// A pattern under way.
pub struct Offers<'a> {
    pattern: &'a Pattern,
    rng: StdRng,
    index: usize,
    until: f64,
    probing: bool,
}

impl<'a> Offers<'a> {
    pub fn new(pattern: &'a Pattern, seed: u64) -> Self {
        Self {
            pattern,
            rng: StdRng::seed_from_u64(seed ^ 0x10ad),
            index: 0,
            until: 0.0,
            probing: false,
        }
    }

    /// The load at a time, s; `probing`: whether a trial is under way.
    pub fn next(&mut self, at: f64, probing: bool) -> Load {
        let begins = probing && !self.probing;
        self.probing = probing;
        match self.pattern {
            Pattern::Steady(load) => *load,
            Pattern::Sine { low, high, period } => {
                let part = (1.0 - (std::f64::consts::TAU * at / period).cos()) / 2.0;
                let rate = low.rate * (high / low.rate).powf(part);
                Load { rate, ..*low }
            }
            Pattern::Cycle { each, loads } => loads[(at / each) as usize % loads.len()],
            Pattern::Steps { mean, loads } => {
                if at >= self.until {
                    let time: f64 = Exp1.sample(&mut self.rng);
                    self.until = at + mean * time;
                    self.index = self.rng.random_range(0..loads.len());
                }
                loads[self.index]
            }
            Pattern::AtProbes(loads) => {
                if begins {
                    self.index = (self.index + 1) % loads.len();
                }
                loads[self.index]
            }
        }
    }
}

/// A world to decide in.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub pattern: Pattern,
    /// What the application asked for.
    pub app_setting: Arm,
    pub noise: Noise,
    /// Both ends have an agent.
    pub two_ends: bool,
    /// How long, s.
    pub seconds: f64,
}

/// All of them, each `seconds` long.
pub fn all(seconds: f64) -> Vec<Scenario> {
    let new = |name, pattern| Scenario {
        name,
        pattern,
        app_setting: Arm::Off,
        noise: Noise::SHARED,
        two_ends: false,
        seconds,
    };
    let steady = |name, costs, rate| new(name, Pattern::Steady(Load::new(costs, rate)));
    let b64 = |rate| Load::new(Costs::B64, rate);
    let kib4 = |rate| Load::new(Costs::KIB4, rate);
    let cycle = |name, each, loads| new(name, Pattern::Cycle { each, loads });
    let mut all = vec![
        steady("steady 64 B, 20 k/s", Costs::B64, 20e3),
        steady("steady 64 B, 100 k/s", Costs::B64, 100e3),
        steady("steady 64 B, 250 k/s", Costs::B64, 250e3),
        steady("steady 64 B, 270 k/s", Costs::B64, 270e3),
        steady("overload of NODELAY: 64 B, 500 k/s", Costs::B64, 500e3),
        steady("overload of both: 64 B, 800 k/s", Costs::B64, 800e3),
        steady("steady 512 B, 150 k/s", Costs::B512, 150e3),
        steady("steady 4 KiB, 100 k/s", Costs::KIB4, 100e3),
        steady("steady 4 KiB, 200 k/s", Costs::KIB4, 200e3),
        steady("steady 16 KiB, 60 k/s", Costs::KIB16, 60e3),
        steady("steady, arms alike: 64 B, 215 k/s", Costs::B64, 215e3),
        steady("idle: 64 B, 20/s", Costs::B64, 20.0),
        steady("idle: two writes, 20/s", Costs::TWO_WRITES, 20.0),
        new(
            "sine 64 B, 50 to 500 k/s in 60 s",
            Pattern::Sine {
                low: b64(50e3),
                high: 500e3,
                period: 60.0,
            },
        ),
        cycle(TURNS, 5.0, vec![b64(300e3), kib4(100e3)]),
        cycle(
            "shift 1 s: 64 B at 100, 300, 500 k/s, 4 KiB",
            1.0,
            vec![
                b64(100e3),
                b64(300e3),
                b64(500e3),
                kib4(50e3),
                kib4(100e3),
                b64(300e3),
            ],
        ),
        cycle(
            "on and off: 64 B, 400 k/s, 3 s",
            3.0,
            vec![b64(400e3), b64(10.0)],
        ),
        new(
            STEPS,
            Pattern::Steps {
                mean: 5.0,
                loads: vec![
                    b64(50e3),
                    b64(250e3),
                    b64(400e3),
                    kib4(50e3),
                    kib4(150e3),
                    b64(550e3),
                ],
            },
        ),
        cycle(
            "the best arm flips every 2 s",
            2.0,
            vec![b64(270e3), kib4(100e3)],
        ),
        cycle(
            "load alternates every 0.25 s",
            0.25,
            vec![b64(100e3), b64(350e3)],
        ),
        new(
            "changes at each probe",
            Pattern::AtProbes(vec![b64(150e3), b64(400e3), kib4(100e3)]),
        ),
        cycle(
            "around equal arms: 64 B, 190 and 230 k/s, 1 s",
            1.0,
            vec![b64(190e3), b64(230e3)],
        ),
    ];
    for (name, costs) in [
        ("bursts of noise: 64 B, 100 k/s", Costs::B64),
        ("bursts of noise: 4 KiB, 100 k/s", Costs::KIB4),
    ] {
        all.push(Scenario {
            noise: Noise::BURSTS,
            ..steady(name, costs, 100e3)
        });
    }
    let wants_nagle = "4 KiB, 100 k/s, the application wants Nagle";
    all.push(Scenario {
        app_setting: Arm::On,
        ..steady(wants_nagle, Costs::KIB4, 100e3)
    });
    let both = |rate| Load {
        back: Some(Costs::KIB4),
        ..b64(rate)
    };
    all.push(Scenario {
        two_ends: true,
        ..cycle(
            "an agent at each end, load alternates every 10 s",
            10.0,
            vec![both(100e3), both(255e3)],
        )
    });
    all
}
