//! The controller under any sequence of ticks and measurements, and its behaviour in short stories.
//! How well it decides is the business of the lab's simulator.

use batchwise_core::sense::report::Side;
use batchwise_core::tune::{
    Arm, Command, Controller, Happened, Measurement, Meter, Peer, Policy, Quick, Tuning, Vitals,
};
use proptest::prelude::*;

const TICK: u64 = 4_000_000;

/// A meter that measures the same each time.
struct FixedMeter(Option<Measurement>);

impl Meter for FixedMeter {
    fn restart(&mut self) {}
    fn measure(&mut self) -> Option<Measurement> {
        self.0
    }
}

fn arm() -> impl Strategy<Value = Arm> {
    prop_oneof![Just(Arm::On), Just(Arm::Off)]
}

fn measurement() -> impl Strategy<Value = Option<Measurement>> {
    let any = (0.0..1e10, 0.0..1e7, 1.0..1e6, 0.0..1.0);
    proptest::option::weighted(
        0.9,
        any.prop_map(
            |(latency, throughput, message_bytes, confidence)| Measurement {
                latency,
                throughput,
                message_bytes,
                confidence,
            },
        ),
    )
}

fn vitals() -> impl Strategy<Value = Vitals> {
    let counts = (0u64..2000, 0u64..10_000_000, 0u64..10_000_000);
    let rare = prop_oneof![9 => Just(0u64), 1 => 0u64..1000];
    let quick = (0.0..1e12, 0u64..100_000).prop_map(|(waited, done)| Quick { waited, done });
    let peer = proptest::option::of(
        (arm(), proptest::bool::weighted(0.2)).prop_map(|(arm, probing)| Peer { arm, probing }),
    );
    (
        counts,
        rare,
        0u64..1_000_000_000,
        proptest::option::weighted(0.9, quick),
        peer,
        proptest::bool::weighted(0.02),
    )
        .prop_map(
            |((connections, bytes, outstanding), retransmits, rtt, quick, peer, flipped)| Vitals {
                now: 0,
                connections,
                wish: if flipped { Arm::On } else { Arm::Off },
                bytes,
                outstanding,
                retransmits,
                rtt,
                quick,
                peer,
            },
        )
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::Latency),
        Just(Policy::Throughput),
        (1u64..10_000_000_000).prop_map(Policy::Slo),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_happens_a_command_makes_sense(
        ticks in proptest::collection::vec((vitals(), measurement(), 0u64..300), 1..400),
        policy in policy(),
        dry_run in any::<bool>(),
        server in any::<bool>(),
    ) {
        let side = if server { Side::Server } else { Side::Client };
        let tuning = Tuning { dry_run, ..Tuning::new(policy, side) };
        let mut controller = Controller::new(tuning, 0, Arm::Off);
        let mut now = 0;
        for (mut v, m, gap) in ticks {
            now += gap * 1_000_000;
            v.now = now;
            let command = controller.tick(&v, &mut FixedMeter(m));
            prop_assert_ne!(command.arm, Some(v.wish), "sockets are left alone where they agree");
            prop_assert!(!command.probing || command.sensing, "a trial is watched");
            prop_assert!(!command.pulse || !command.sensing, "a pulse is not worth counting");
            prop_assert_eq!(controller.arm(), command.arm.unwrap_or(v.wish));
            if dry_run {
                prop_assert!(!command.probing && !command.pulse && command.arm.is_none());
            }
            for event in controller.events() {
                prop_assert!(event.budget_left.is_finite());
                prop_assert!(!event.why.is_empty());
            }
        }
    }

    #[test]
    fn spending_exceeds_the_budget_by_no_more_than_one_trial(
        worse in 1.0..8.0f64,
        share in 0.002..0.1f64,
        noise in proptest::collection::vec(0.8..1.25f64, 2000..5000),
    ) {
        let tuning = Tuning { budget: share, ..Tuning::new(Policy::Latency, Side::Client) };
        let mut story = Story::new(tuning);
        let (mut extra, mut longest, mut trial) = (0.0, 0.0f64, 0.0);
        let ticks = noise.len() as f64;
        for factor in noise {
            let latency = if story.arm() == Arm::Off { 40e3 } else { 40e3 * worse };
            story.tick(latency * factor, 1e5);
            let cost = if story.arm() == Arm::Off { 0.0 } else { (worse - 1.0) * TICK as f64 / 1e9 };
            trial = if story.command.probing { trial + cost } else { 0.0 };
            (extra, longest) = (extra + cost, longest.max(trial));
        }
        let seconds = ticks * TICK as f64 / 1e9;
        let allowed = share / 2.0 * (10.0 + seconds);
        // an arm that is worse by less than the margin may stay
        if worse > 1.3 {
            prop_assert!(extra <= allowed + 2.0 * longest + 0.1, "{extra} of {allowed}, {longest}");
        }
    }
}

/// A service told tick by tick.
struct Story {
    controller: Controller,
    command: Command,
    now: u64,
    sum: (f64, u64),
    peer: Option<Peer>,
    happened: Vec<Happened>,
}

impl Story {
    fn new(tuning: Tuning) -> Self {
        Self {
            controller: Controller::new(tuning, 0, Arm::Off),
            command: Command {
                arm: None,
                sensing: true,
                probing: false,
                pulse: false,
            },
            now: 0,
            sum: (0.0, 0),
            peer: None,
            happened: Vec::new(),
        }
    }

    fn arm(&self) -> Arm {
        self.controller.arm()
    }

    /// A tick in which messages of 100 bytes took so long, ns.
    fn tick(&mut self, latency: f64, rate: f64) -> Command {
        self.lossy_tick(latency, rate, 0)
    }

    fn lossy_tick(&mut self, latency: f64, rate: f64, retransmits: u64) -> Command {
        self.now += TICK;
        let done = (rate * TICK as f64 / 1e9) as u64;
        let waited = latency * done as f64;
        self.sum = (self.sum.0 + waited, self.sum.1 + done);
        let vitals = Vitals {
            now: self.now,
            connections: 10,
            wish: Arm::Off,
            bytes: 100 * done,
            outstanding: (latency * rate / 1e7) as u64,
            retransmits,
            rtt: 20_000,
            quick: self.command.sensing.then_some(Quick { waited, done }),
            peer: self.peer,
        };
        let mut meter = FixedMeter((done > 0).then_some(Measurement {
            latency,
            throughput: rate,
            message_bytes: 100.0,
            confidence: 0.95,
        }));
        self.command = self.controller.tick(&vitals, &mut meter);
        let events = self.controller.events();
        self.happened.extend(events.iter().map(|e| e.happened));
        self.command
    }

    /// For so many s, with a latency for each arm.
    fn run(&mut self, seconds: f64, on: f64, off: f64, rate: f64) {
        for _ in 0..(seconds * 1e9) as u64 / TICK {
            let latency = if self.arm() == Arm::On { on } else { off };
            self.tick(latency, rate);
        }
    }
}

fn latency() -> Tuning {
    Tuning::new(Policy::Latency, Side::Client)
}

#[test]
fn a_better_arm_is_found_within_a_second_and_stays() {
    let mut story = Story::new(latency());
    story.run(1.0, 20e3, 60e3, 1e5);
    assert_eq!(story.command.arm, Some(Arm::On), "{:?}", story.happened);
    story.run(60.0, 20e3, 60e3, 1e5);
    assert_eq!(story.command.arm, Some(Arm::On));
    let adopted = |h: &&Happened| **h == Happened::Adopt;
    assert_eq!(story.happened.iter().filter(adopted).count(), 1);
}

#[test]
fn a_worse_arm_is_tried_for_milliseconds_and_less_and_less() {
    let mut story = Story::new(latency());
    let mut worse = [0; 6];
    for window in &mut worse {
        for _ in 0..2500 {
            let off = story.arm() == Arm::Off;
            story.tick(if off { 40e3 } else { 200e3 }, 1e5);
            *window += u32::from(!off);
        }
    }
    assert!(worse[0] > 0, "it was tried");
    assert!(worse[0] < 2500 / 50, "{worse:?}");
    assert!(worse[5] < worse[0] / 2, "{worse:?}");
}

#[test]
fn what_was_better_under_a_load_is_recalled_when_the_load_comes_back() {
    let mut story = Story::new(latency());
    story.run(5.0, 20e3, 60e3, 2e5);
    story.run(5.0, 60e3, 20e3, 2e4);
    assert_eq!(story.arm(), Arm::Off);
    story.run(0.5, 20e3, 60e3, 2e5);
    assert_eq!(story.arm(), Arm::On, "{:?}", story.happened);
    assert!(story.happened.contains(&Happened::Recall));
}

#[test]
fn equal_arms_do_not_flap() {
    let mut story = Story::new(latency());
    story.run(300.0, 40e3, 40e3, 1e5);
    assert!(!story.happened.contains(&Happened::Adopt));
    let probes = story.happened.iter().filter(|h| **h == Happened::Probe);
    assert!(probes.count() < 30, "{:?}", story.happened);
}

#[test]
fn an_idle_service_is_left_alone() {
    let mut story = Story::new(latency());
    story.run(30.0, 1e3, 1e9, 0.0);
    story.run(30.0, 20e3, 20e3, 250.0);
    assert!(
        !story.happened.contains(&Happened::Probe),
        "{:?}",
        story.happened
    );
    assert_eq!(story.command.arm, None);
}

#[test]
fn loss_is_no_evidence() {
    let mut story = Story::new(latency());
    for tick in 0..5000 {
        story.lossy_tick(if tick % 3 == 0 { 300e3 } else { 30e3 }, 1e5, 5);
    }
    assert_eq!(story.happened, []);
}

#[test]
fn the_server_gives_way_to_the_client() {
    let tuning = Tuning::new(Policy::Latency, Side::Server);
    let mut story = Story::new(tuning);
    while !story.command.probing {
        story.tick(40e3, 1e5);
    }
    story.peer = Some(Peer {
        arm: Arm::On,
        probing: true,
    });
    assert!(!story.tick(40e3, 1e5).probing);
    assert!(story.happened.contains(&Happened::Yield));
    story.run(5.0, 40e3, 40e3, 1e5);
    let probes = story.happened.iter().filter(|h| **h == Happened::Probe);
    assert_eq!(
        probes.count(),
        1,
        "it waits for as long as the client tries"
    );
}

#[test]
fn an_overload_is_answered_at_the_second_look_though_its_cause_is_unknown() {
    let mut story = Story::new(latency());
    story.run(3.0, 30e3, 30e3, 1e5);
    let mut ticks = 0;
    // 200 messages under way on each connection
    while story.arm() == Arm::Off && ticks < 250 {
        story.tick(20e6, 1e5);
        ticks += 1;
    }
    assert!(ticks < 50, "{ticks} ticks: {:?}", story.happened);
}

#[test]
fn an_arm_that_was_overwhelmed_is_not_gone_back_to_where_both_are_alike() {
    let mut story = Story::new(latency());
    story.run(3.0, 30e3, 20e6, 3e5);
    assert_eq!(story.arm(), Arm::On);
    story.run(30.0, 30e3, 30e3, 5e4);
    assert_eq!(story.arm(), Arm::On, "{:?}", story.happened);
}

#[test]
fn a_dry_run_says_what_it_would_do() {
    let mut story = Story::new(Tuning {
        dry_run: true,
        ..latency()
    });
    story.run(5.0, 20e3, 60e3, 1e5);
    assert!(story.happened.contains(&Happened::WouldProbe));
    assert_eq!(story.command.arm, None);
}

/// A sender whose CPU is busy: with NODELAY it serves `most` messages/s, and what it is behind waits
/// inside it, where no queue shows it. Nagle serves twice as many.
fn run_behind_a_sender(story: &mut Story, seconds: f64, offered: f64, most: f64) -> f64 {
    let mut behind = 0.0f64;
    let tick = TICK as f64 / 1e9;
    for _ in 0..(seconds * 1e9) as u64 / TICK {
        let able = if story.arm() == Arm::Off {
            most
        } else {
            2.0 * most
        };
        let served = (behind / tick + offered).min(able);
        behind += (offered - served) * tick;
        story.tick(30e3, served);
    }
    behind / offered
}

#[test]
fn a_sender_that_fell_behind_is_found_though_its_queues_are_short() {
    let mut story = Story::new(latency());
    story.run(30.0, 30e3, 30e3, 2e5);
    assert_eq!(story.arm(), Arm::Off);
    let behind = run_behind_a_sender(&mut story, 3.0, 2.2e5, 2.1e5);
    assert_eq!(story.arm(), Arm::On, "{:?}", story.happened);
    assert!(behind < 1e-3, "{behind} s are still waiting");
}

#[test]
fn pulses_are_short_and_rare_and_change_nothing_where_all_is_served() {
    let mut story = Story::new(latency());
    let (mut ticks, mut longest, mut length) = (0, 0, 0);
    for _ in 0..15_000 {
        let command = story.tick(30e3, 2e5);
        length = if command.pulse { length + 1 } else { 0 };
        (ticks, longest) = (ticks + i32::from(command.pulse), longest.max(length));
    }
    assert!(ticks > 0, "there were some");
    assert!(longest <= 4, "{longest} ticks");
    assert!(ticks < 15_000 / 50, "{ticks} ticks");
    assert!(!story.happened.contains(&Happened::Adopt));
}

#[test]
fn neither_a_server_nor_an_idle_client_has_pulses() {
    let mut server = Story::new(Tuning::new(Policy::Latency, Side::Server));
    let mut idle = Story::new(latency());
    for _ in 0..15_000 {
        assert!(!server.tick(30e3, 2e5).pulse);
        assert!(!idle.tick(30e3, 2e3).pulse);
    }
}

#[test]
fn an_application_that_changes_its_mind_ends_a_pulse() {
    let mut controller = Story::new(latency());
    while !controller.tick(30e3, 2e5).pulse {}
    let vitals = Vitals {
        now: controller.now + TICK,
        connections: 10,
        wish: Arm::On,
        bytes: 0,
        outstanding: 0,
        retransmits: 0,
        rtt: 20_000,
        quick: None,
        peer: None,
    };
    let command = controller.controller.tick(&vitals, &mut FixedMeter(None));
    assert!(!command.pulse);
    assert_eq!(command.arm, None, "what it asks for is in force");
}
