//! Passages for the tests of this experiment.

use batchwise_core::sense::report::{
    Estimator, Latency, Line, Nagle, Side, Stages, Tails, Unit, View,
};
use batchwise_testbed::load::LoadInterval;

use super::moment::{Moment, Recording};
use super::plan::{Climb, PASSES, Plan, SLICE};
use crate::arm::Arm;

/// When climbs begin, ns since the Unix epoch.
pub const ZERO: u64 = 1_000_000_000_000;

/// A slice of the generator that ends at `ts_ns`.
pub fn interval(ts_ns: u64, offered_rps: f64, mean_ns: f64) -> LoadInterval {
    LoadInterval {
        ts_ns,
        interval_ns: SLICE.as_nanos() as u64,
        phase: 0,
        offered_rps,
        achieved_rps: offered_rps,
        mean_from_intended_ns: Some(mean_ns),
        mean_from_send_ns: Some(mean_ns),
        p50_ns: Some(mean_ns),
        p99_ns: Some(mean_ns * 3.0),
        p99_from_send_ns: Some(mean_ns * 3.0),
    }
}

/// A line of a watcher that ends at `ts_ns`.
pub fn line(side: Side, ts_ns: u64, total_ns: f64) -> Line {
    let total = total_ns as u64;
    Line {
        ts_ns,
        interval_ns: SLICE.as_nanos() as u64,
        service: "10.77.0.1:6379".into(),
        netns: 0,
        side,
        process: None,
        advice: None,
        connection: None,
        vantage: "socket".into(),
        estimator: Estimator::TwoSided,
        view: Some(View::Local),
        unit: Unit::Sends,
        connections: 1,
        confidence: 0.97,
        throughput_per_s: 100_000.0,
        why: None,
        stderr_ns: Latency::default(),
        latency_ns: Latency {
            network: Some(total * 2 / 3),
            turnaround: Some(total / 3),
            total: Some(total),
        },
        stages_ns: Stages {
            unacked: Some(total / 2),
            unread_local: Some(total / 8),
            unread_remote: Some(total / 8),
            ackdelay_remote: Some(total / 12),
            ..Stages::default()
        },
        tails_ns: Tails {
            p99: Some(total * 3),
            ..Tails::default()
        },
        matched: 400,
        under_way: Some(0),
        oldest_ns: None,
        nagle: if side == Side::Client {
            Nagle::Off
        } else {
            Nagle::On
        },
        cost: 0.009,
        coverage: 0.2,
        lost_events: 0,
    }
}

/// A climb of which nothing was read yet.
pub fn recording(arm: Arm, pass: u32) -> Recording {
    Recording::new(Climb { arm, pass }, Plan::new(false), 0, 2)
}

/// A passage of a full run in which each slice takes about `mean_ns`; estimates are 10 % too low.
pub fn moment(arm: Arm, pass: u32, bin: usize, mean_ns: f64) -> Moment {
    let mut recording = recording(arm, pass);
    let plan = Plan::new(false);
    let slices = (plan.climb / plan.bins as u32).as_nanos() / SLICE.as_nanos();
    let load = plan.load_of(bin);
    for number in 0..(bin as u64 + 1) * slices as u64 {
        let ts_ns = ZERO + (number + 1) * SLICE.as_nanos() as u64;
        let mean = mean_ns * (0.95 + 0.1 * ((number * 7 + u64::from(pass)) % 10) as f64 / 10.0);
        recording.intervals.push(interval(ts_ns, load, mean));
        for (lines, side) in [
            (&mut recording.client, Side::Client),
            (&mut recording.server, Side::Server),
        ] {
            if arm != Arm::Batchwise {
                lines.push(line(side, ts_ns, mean * 0.9));
            }
        }
    }
    recording.moment(bin).expect("the climb came to this bin")
}

/// All climbs of a full run, of which requests take `mean_ns`, by arm and load.
pub fn climbs(mean_ns: impl Fn(Arm, u64) -> f64) -> Vec<Moment> {
    let plan = Plan::new(false);
    let mut moments = Vec::new();
    for arm in Arm::ALL {
        for (pass, bin) in (0..PASSES).flat_map(|p| (0..plan.bins).map(move |bin| (p, bin))) {
            let mean = mean_ns(arm, plan.load_of(bin) as u64);
            moments.push(moment(arm, pass, bin, mean));
        }
    }
    moments
}

/// So much of every passage is cut.
pub fn cut(moments: &mut [Moment], slices: usize) {
    for moment in moments {
        for slice in moment.slices.iter_mut().take(slices) {
            slice.stalled = true;
        }
    }
}
