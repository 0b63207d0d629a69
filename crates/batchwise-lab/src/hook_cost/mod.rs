//! Experiment `hook-cost`: what the sensor adds to a request at each of its ends, a step at a time,
//! without waiting, waking or another CPU.

mod hooks;
mod summary;

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context as _, Result};
use batchwise_bpf::Ping;
use clap::ValueEnum;
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use crate::engine::color::{BATCHWISE, GREY, PARTS};
use crate::engine::text::{interval, name};
use crate::engine::{Experiment, Figure, NoMore, Report, Results, Round, Run, Strip, Table, Turn};
use crate::stats::quantile;
use hooks::Hooks;
use summary::{Summary, of_rounds};

pub struct HookCost;

/// What is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// Nothing.
    Nothing,
    /// Three hooks that do nothing.
    Empty,
    /// They find the socket's storage.
    LookUp,
    /// That, and they read the clock.
    Clock,
    /// `batchwise watch` that watches another service.
    Foreign,
    /// `batchwise watch`.
    Watch,
    /// `batchwise watch --count sends,bytes,packets`.
    Units,
}

/// Requests of a batch.
const REQUESTS: u32 = 500;
/// Batches of a turn.
const BATCHES: u32 = 30;
/// Of their times this share counts: what is above was interrupted.
const UNDISTURBED: f64 = 0.05;

/// One turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Turns of one round are compared with each other.
    pub round: u32,
    /// Position in the round, from 0.
    pub position: usize,
    pub arm: Arm,
    /// Time of a request at one of its ends, ns: the 5th percentile of batches.
    pub ns_per_request: f64,
}

/// The hooks, and the connection that passes them.
pub struct Stage {
    hooks: Hooks,
    ping: Ping,
}

/// The time that a request takes at one of its two ends, ns.
fn batch(ping: &mut Ping) -> Result<f64> {
    Ok(ping.requests(REQUESTS)? / 2.0)
}

/// Keeps this thread on the CPU where it is.
fn stay() -> Result<()> {
    let mut here = CpuSet::new();
    here.set(sched_getcpu()?)?;
    sched_setaffinity(Pid::from_raw(0), &here).context("staying on one CPU")
}

impl Experiment for HookCost {
    type Stage = Stage;
    type Arm = Arm;
    type Point = Point;
    type More = NoMore;
    type Summary = Summary;

    fn name(&self) -> &'static str {
        "hook-cost"
    }

    fn about(&self) -> &'static str {
        "what watching adds to a request at each end, from an empty hook to the whole"
    }

    fn rounds(&self, quick: bool) -> Result<Vec<Round<Arm>>> {
        Ok(Round::shuffled(
            if quick { 15 } else { 61 },
            Arm::value_variants(),
        ))
    }

    fn stage(&self, _context: &Context) -> Result<(Stage, Value)> {
        stay()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.context("listening on loopback")?;
        let hooks = Hooks::load(listener.local_addr()?.port())?;
        let mut ping = Ping::connect(&listener)?;
        batch(&mut ping)?; // warm
        Ok((Stage { hooks, ping }, Value::Null))
    }

    fn measure(
        &self,
        _run: &mut Run<'_, NoMore>,
        Stage { hooks, ping }: &mut Stage,
        turn: Turn<'_, Arm>,
    ) -> Result<Vec<Point>> {
        let attached = hooks.attach(*turn.arm)?;
        let batches = (0..BATCHES)
            .map(|_| batch(ping))
            .collect::<Result<Vec<_>>>()?;
        drop(attached);
        Ok(vec![Point {
            round: turn.round,
            position: turn.position,
            arm: *turn.arm,
            ns_per_request: quantile(&batches, UNDISTURBED).context("there are batches")?,
        }])
    }

    fn describe(&self, point: &Point) -> String {
        let (round, arm, ns) = (point.round + 1, name(point.arm), point.ns_per_request);
        format!("round {round}: {arm} {ns:.0} ns a request and end")
    }

    fn summary(&self, results: &Results<Point, NoMore>) -> Summary {
        Summary::of(&results.points)
    }

    fn report(&self, results: &Results<Point, NoMore>, summary: &Summary) -> Report {
        let drawn = [
            (Arm::Empty, GREY),
            (Arm::Clock, PARTS[2]),
            (Arm::Watch, BATCHWISE),
        ];
        let strips = drawn
            .map(|(arm, color)| Strip::new(name(arm), color, &of_rounds(&results.points, arm)));
        Report::new(
            "Hook cost: what watching adds to a request",
            "One thread is client and server of a connection over loopback: 64 B there, 5 B back. What \
             is attached changes from turn to turn, in random order within a round.",
        )
        .heading("Time added to a request at each of its ends")
        .table(Table::of(
            &summary.added_ns,
            &[
                ("attached", &|(arm, _)| name(arm)),
                ("added, ns", &|(_, added)| interval(Some(**added))),
            ],
        ))
        .figure(Figure::ratios(
            "hooks.svg",
            "Time of a request over that of the same round with nothing attached",
            "ratio",
            strips.into(),
        ))
        .text(
            "Medians of the rounds' differences with 95 % bootstrap intervals. A turn is the 5th \
             percentile of its batches. Both ends share a CPU, so cache lines that travel between \
             CPUs, elsewhere a part of the cost, are not in it.",
        )
    }
}
