//! The decision log: every decision of every service, for people and for programs. The JSON line is
//! a contract; fields may be added, never renamed.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use batchwise_bpf::monotonic_ns;
use batchwise_core::sense::report::Side;
use batchwise_core::tune::{Arm, Outcome, Policy};
use serde::Serialize;

use super::service::Service;
use crate::frame::clock::wall_clock_ns;
use crate::frame::human;
use crate::frame::log::LogFile;
use crate::frame::rows::{Column, Format, JsonLines, Output, View, plain};
use crate::frame::stdout::WhenUnread;

/// A decision as programs read it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Decision {
    /// When it was decided, ns since the Unix epoch.
    ts_ns: u64,
    /// `address:port` of the server.
    service: String,
    /// Which end this is.
    side: Side,
    /// What happened.
    event: Happened,
    /// The policy, as `--policy` has it.
    policy: String,
    /// Nagle's algorithm after this line: `on`, `off`, or `app` where each application's own
    /// setting is in force.
    nagle: &'static str,
    /// What most applications asked for.
    #[serde(rename = "wish")]
    app_setting: Arm,
    /// The present load, requests a second; before the first test, segments with data that were sent.
    load_per_s: f64,
    /// Mean size of a request and its response, bytes.
    message_bytes: f64,
    /// What the last test found of each setting.
    arms: Arms,
    /// How many times better the setting that the applications did not ask for was in the last test, in
    /// the policy's terms: median over pairs of slices. null: there was no test.
    gain: Option<f64>,
    /// CPU time that a message takes at this end, however many go into a segment (the paper's α), as of the
    /// last test, ns. null: both settings sent about as many segments, or no CPU time was seen.
    message_cpu_ns: Option<u64>,
    /// CPU time that a segment takes at this end (the paper's β), ns. null: as above.
    segment_cpu_ns: Option<u64>,
    /// Pairs of slices that the last test compared.
    pairs: u32,
    /// What tests have cost and is not paid for yet, as a negative number: ns of the service's time. 0:
    /// the next may come.
    budget_left_ns: f64,
    /// Always null: an agent needs none at the other end, and asks it nothing.
    peer: Option<()>,
    /// Whether it was only logged, with `--dry-run`.
    dry_run: bool,
    /// The reason, in words.
    why: String,
}

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    /// The service is seen for the first time.
    Start,
    /// A test of the other setting begins.
    Probe,
    /// A dry run would now test the other setting.
    WouldProbe,
    /// A test ended early.
    Abort,
    /// The other setting is in force from now on.
    Adopt,
    /// The applications' own settings stay or come back: the other was not shown to be better.
    Keep,
    /// The applications' own settings are back: what was tested is no longer the case.
    GiveBack,
    /// The agent stops.
    Stop,
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// What the last test found.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Arms {
    /// Nagle on. null: not tested.
    on: Option<Known>,
    /// Nagle off. null: not tested.
    off: Option<Known>,
}

/// How a setting served: medians over a test's slices.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Known {
    /// Mean latency of a message, ns, as far as this end sees it.
    pub latency_ns: u64,
    /// Messages a second.
    pub throughput_per_s: f64,
    /// Messages a second that one CPU of the applications at this end would carry, by the CPU time that
    /// they took in the test. null: no process that we may look at took any.
    pub capacity_per_s: Option<f64>,
    /// The share of the pairs that count and say what the test says; 0: it was undecided.
    pub confidence: f64,
    /// Time since the test, ns.
    pub age_ns: u64,
}

impl Known {
    /// What the service's last test found of a setting.
    pub fn of(service: &Service, arm: Arm) -> Option<Self> {
        let (outcome, ended) = service.controller.last()?;
        let served = outcome.of(arm);
        let message = service.messages().1.max(1.0);
        Some(Self {
            latency_ns: served.latency as u64,
            throughput_per_s: served.messages,
            capacity_per_s: outcome.room.map(|room| room.capacity(arm) / message),
            confidence: outcome.confidence(),
            age_ns: monotonic_ns().saturating_sub(*ended),
        })
    }
}

/// Decisions that were made at one time.
#[derive(Clone, Debug)]
struct Decided(Vec<Decision>);

impl View for Decided {
    type Row = Decision;

    const COLUMNS: &'static [Column<Decision>] = &[
        Column::left("time", 12, |d| plain(clock(d.ts_ns))),
        Column::left("service", 21, |d| plain(d.service.clone())),
        Column::left("event", 10, |d| plain(d.event.to_string())),
        Column::left("Nagle", 5, |d| plain(d.nagle)),
        Column::right("on", 11, |d| plain(latency(d.arms.on))),
        Column::right("off", 11, |d| plain(latency(d.arms.off))),
        Column::right("load", 9, |d| plain(format!("{:.0}/s", d.load_per_s))),
        Column::right("message", 9, |d| plain(format!("{:.0} B", d.message_bytes))),
        Column::left("why", 0, |d| plain(d.why.clone())),
    ];
    const NAME: &'static str = "tune";

    fn rows(&self) -> Vec<&Decision> {
        self.0.iter().collect()
    }

    fn json(&self, lines: &mut JsonLines) -> serde_json::Result<()> {
        self.0.iter().try_for_each(|decision| lines.push(decision))
    }
}

pub struct Decisions {
    log: Option<LogFile>,
    output: Output<Decided>,
    policy: Policy,
    dry_run: bool,
}

impl Decisions {
    /// Opens the log and standard output.
    pub fn open(
        log: Option<&Path>,
        format: Format,
        policy: Policy,
        dry_run: bool,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            log: log.map(LogFile::open).transpose()?,
            output: Output::open(format.without_live()?, WhenUnread::GoOn, String::new())?,
            policy,
            dry_run,
        })
    }

    /// What happened to a service, and why.
    pub fn tell(
        &mut self,
        (server, side): (SocketAddr, Side),
        s: &Service,
        event: Happened,
        why: String,
    ) -> anyhow::Result<()> {
        let (load_per_s, message_bytes) = s.messages();
        let last = s.controller.last().map(|(outcome, _)| outcome);
        let costs = costs(s);
        let decision = Decision {
            ts_ns: wall_clock_ns(),
            service: server.to_string(),
            side,
            event,
            policy: self.policy.to_string(),
            nagle: match s.arm {
                Some(arm) if event != Happened::Stop => word(arm),
                _ => "app",
            },
            app_setting: s.app_setting,
            load_per_s,
            message_bytes,
            arms: Arms {
                on: Known::of(s, Arm::On),
                off: Known::of(s, Arm::Off),
            },
            gain: last.map(|outcome| outcome.gain),
            message_cpu_ns: costs.map(|(message, _)| message as u64),
            segment_cpu_ns: costs.map(|(_, segment)| segment as u64),
            pairs: last.map_or(0, |outcome| outcome.pairs),
            budget_left_ns: -s.controller.debt(monotonic_ns()),
            peer: None,
            dry_run: self.dry_run,
            why,
        };
        self.write(decision)
    }

    fn write(&mut self, decision: Decision) -> anyhow::Result<()> {
        if let Some(log) = &mut self.log {
            log.line(&decision);
        }
        self.output.show(&Decided(vec![decision]))
    }

    /// Opens the log anew: it may have been moved away.
    pub fn reopen(&self) {
        if let Some(log) = &self.log {
            log.reopen();
        }
    }

    /// Lines of the log that were dropped.
    pub fn dropped(&self) -> u64 {
        self.log.as_ref().map_or(0, LogFile::dropped)
    }

    /// Why things are as they are.
    pub fn explain(
        &mut self,
        (server, side): (SocketAddr, Side),
        s: &Service,
    ) -> anyhow::Result<()> {
        let now = monotonic_ns();
        let arm = |a| match Known::of(s, a) {
            Some(k) => {
                let carries = |n| format!("; a CPU here would carry {n:.0}/s");
                let capacity = k.capacity_per_s.map_or_else(String::new, carries);
                format!(
                    "{:.0}/s at {}{capacity}",
                    k.throughput_per_s,
                    micros(k.latency_ns)
                )
            }
            None => "not tested".to_owned(),
        };
        let found = match s.controller.last() {
            None => "no test yet".to_owned(),
            Some((outcome, ended)) => format!(
                "{}, {:.0} s ago; the next in {:.0} s, or when the load is another",
                found(outcome),
                now.saturating_sub(*ended) as f64 / 1e9,
                s.controller.next_test().unwrap_or(now).saturating_sub(now) as f64 / 1e9
            ),
        };
        let (load, bytes) = s.messages();
        let costs = costs(s).map_or_else(String::new, |(message, segment)| {
            let [message, segment] = [message, segment].map(|ns| micros(ns as u64));
            format!("    CPU time here: {message} a message, {segment} a segment\n")
        });
        self.output.say(&format!(
            "{server} ({}): {} connections, {load:.0}/s of {bytes:.0} B, {:.1} segments under way on each; Nagle {}, the applications ask for {}\n    on: {}\n    off: {}\n{costs}    {found}\n",
            human::word(&side),
            s.sockets.len(),
            s.overlap,
            word(s.in_force()),
            word(s.app_setting),
            arm(Arm::On),
            arm(Arm::Off),
        ))
    }
}

/// CPU time of a message and of a segment at this end, ns.
fn costs(service: &Service) -> Option<(f64, f64)> {
    let (outcome, _) = service.controller.last()?;
    let (byte, segment) = outcome.room?.costs()?;
    Some((byte * service.messages().1, segment))
}

/// What a test found, in words.
pub fn found(outcome: &Outcome) -> String {
    let other = match outcome.own {
        Arm::On => "TCP_NODELAY",
        Arm::Off => "Nagle's algorithm",
    };
    let Outcome {
        pairs,
        wins,
        losses,
        gain,
        ..
    } = outcome;
    let better = match outcome.better {
        Some(true) => "better",
        Some(false) => "no better",
        None => "not clearly better",
    };
    format!(
        "{other} was {better}: {wins} of {pairs} pairs won, {losses} lost, {gain:.2} times as good in the median"
    )
}

fn latency(known: Option<Known>) -> String {
    known.map_or_else(|| human::UNKNOWN.to_owned(), |k| micros(k.latency_ns))
}

/// An arm as labels and texts have it.
pub fn word(arm: Arm) -> &'static str {
    match arm {
        Arm::On => "on",
        Arm::Off => "off",
    }
}

fn micros(ns: u64) -> String {
    format!("{:.1} us", ns as f64 / 1e3)
}

/// Hours, minutes and seconds, UTC.
fn clock(ts_ns: u64) -> String {
    let ms = ts_ns / 1_000_000;
    let (s, ms) = (ms / 1_000 % 86_400, ms % 1_000);
    format!("{:02}:{:02}:{:02}.{ms:03}", s / 3_600, s / 60 % 60, s % 60)
}
