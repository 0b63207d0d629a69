//! The decision log: every decision of every service, for people and for programs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

use batchwise_bpf::monotonic_ns;
use batchwise_core::sense::connection::ServiceKey;
use batchwise_core::sense::report::Side;
use batchwise_core::tune::report::{Arms, Decision, DecisionEvent, Known};
use batchwise_core::tune::{Arm, Knob, OVERLAP, Outcome, Policy};

use super::service::Service;
use crate::frame::clock::wall_clock_ns;
use crate::frame::human::{self, word};
use crate::frame::log::LogFile;
use crate::frame::rows::{Column, Form, JsonLines, Output, View, plain};
use crate::frame::stdout::WhenUnread;

/// A decision, and as people read it: the service has its network namespace where another has the same name.
#[derive(Clone)]
struct Told {
    decision: Decision,
    named: Decision,
}

impl View for Told {
    type Row = Decision;

    const COLUMNS: &'static [Column<Decision>] = &[
        Column::left("time", 12, |d| plain(clock(d.ts_ns))),
        Column::left("service", 21, |d| plain(d.service.clone())),
        Column::left("side", 6, |d| plain(word(&d.side))),
        Column::left("event", 10, |d| plain(word(&d.event))),
        Column::left("knob", 6, |d| plain(word(&d.knob))),
        Column::left("is", 3, |d| plain(word(d.in_force()))),
        Column::right("on", 11, |d| plain(latency(d.arms.on))),
        Column::right("off", 11, |d| plain(latency(d.arms.off))),
        Column::right("load", 9, |d| plain(format!("{:.0}/s", d.load_per_s))),
        Column::right("message", 9, |d| plain(format!("{:.0} B", d.message_bytes))),
        Column::left("why", 0, |d| plain(why(d))),
    ];
    const NAME: &'static str = "tune";

    fn rows(&self) -> Vec<&Decision> {
        vec![&self.named]
    }

    fn json(&self, lines: &mut JsonLines) -> serde_json::Result<()> {
        lines.push(&self.decision)
    }
}

pub struct Decisions {
    log: Option<LogFile>,
    output: Output<Told>,
    policy: Policy,
    dry_run: bool,
    /// Services of which it was said why nothing is tested.
    untested: BTreeSet<ServiceKey>,
    /// The network namespaces of services that were told of.
    namespaces: BTreeMap<(SocketAddr, Side), BTreeSet<u32>>,
}

impl Decisions {
    /// Opens the log and standard output.
    pub fn open(
        log: Option<&Path>,
        form: Form,
        policy: Policy,
        dry_run: bool,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            log: log.map(LogFile::open).transpose()?,
            output: Output::open(form, WhenUnread::GoOn, String::new())?,
            policy,
            dry_run,
            untested: BTreeSet::new(),
            namespaces: BTreeMap::new(),
        })
    }

    fn name(&mut self, key: ServiceKey) -> String {
        let of_name = self.namespaces.entry((key.server, key.side)).or_default();
        of_name.insert(key.netns);
        match of_name.len() {
            1 => key.server.to_string(),
            _ => format!("{} in {}", key.server, key.netns),
        }
    }

    /// What happened to a service, and why.
    pub fn tell(
        &mut self,
        key: ServiceKey,
        s: &Service,
        event: DecisionEvent,
        why: String,
    ) -> anyhow::Result<()> {
        let (load_per_s, message_bytes) = s.messages();
        let last = s.controller.last().map(|(outcome, _)| outcome);
        let costs = costs(s);
        let in_force = |knob| {
            let arm = s.arm.filter(|_| event != DecisionEvent::Stop);
            arm.filter(|_| s.knob == knob).into()
        };
        let decision = Decision {
            ts_ns: wall_clock_ns(),
            service: key.server.to_string(),
            netns: key.netns,
            side: key.side,
            event,
            policy: self.policy.to_string(),
            knob: s.knob,
            nagle: in_force(Knob::Nagle),
            delack: in_force(Knob::Delack),
            lever: s.lever.filter(|_| event != DecisionEvent::Stop),
            app_setting: s.own(),
            load_per_s,
            message_bytes,
            arms: Arms {
                on: known(s, Arm::On),
                off: known(s, Arm::Off),
            },
            gain: last.map(|outcome| outcome.gain.min(MOST_GAIN)),
            message_cpu_ns: costs.map(|(message, _)| message as u64),
            segment_cpu_ns: costs.map(|(_, segment)| segment as u64),
            pairs: last.map_or(0, |outcome| outcome.pairs),
            budget_left_ns: s.controller.budget_left(monotonic_ns()),
            advice: s.advice(),
            dry_run: self.dry_run,
            why,
        };
        if let Some(log) = &mut self.log {
            log.line(&decision);
        }
        let named = Decision {
            service: self.name(key),
            ..decision.clone()
        };
        self.output.show(&Told { decision, named })
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
    pub fn explain(&mut self, key: ServiceKey, s: &Service) -> anyhow::Result<()> {
        let now = monotonic_ns();
        if s.controller.next_test().is_some() {
            self.untested.remove(&key);
        } else if !self.untested.insert(key) {
            return Ok(());
        }
        let arm = |a| match known(s, a) {
            Some(k) => {
                let carries = |n| format!("; a CPU here would carry {n:.0}/s");
                let capacity = k.capacity_per_s.map_or_else(String::new, carries);
                let acks = match s.knob {
                    Knob::Nagle => String::new(),
                    Knob::Delack => format!(" and {:.1} ACKs each", k.acks_per_message),
                };
                format!(
                    "{:.0}/s at {}{acks}{capacity}",
                    k.throughput_per_s,
                    micros(k.latency_ns)
                )
            }
            None => "not tested".to_owned(),
        };
        let found = match s.controller.last() {
            None if s.controller.next_test().is_none() => format!(
                "no test: nothing is held back, and below {OVERLAP} segments under way there is nothing to batch"
            ),
            None => "no test yet".to_owned(),
            Some((outcome, ended)) => format!(
                "{}, {:.0} s ago; the next in {:.0} s, or when the load is another; tests took {:.2} s of the last minute",
                found(s.knob, outcome),
                now.saturating_sub(*ended) as f64 / 1e9,
                s.controller.next_test().unwrap_or(now).saturating_sub(now) as f64 / 1e9,
                s.controller.tested_lately(now) as f64 / 1e9
            ),
        };
        let (load, bytes) = s.messages();
        let name = self.name(key);
        let costs = costs(s).map_or_else(String::new, |(message, segment)| {
            let [message, segment] = [message, segment].map(|ns| micros(ns as u64));
            format!("    CPU time here: {message} a message, {segment} a segment\n")
        });
        self.output.say(&format!(
            "{name} ({}): {} connections, {load:.0}/s of {bytes:.0} B, {:.1} segments under way on each; {} {}, the applications ask for {}\n    on: {}\n    off: {}\n{costs}    {found}\n",
            word(&key.side),
            s.sockets.len(),
            s.overlap,
            word(&s.knob),
            word(&s.in_force()),
            word(&s.own()),
            arm(Arm::On),
            arm(Arm::Off),
        ))
    }
}

/// What the service's last test found of a setting.
pub fn known(service: &Service, arm: Arm) -> Option<Known> {
    let (outcome, ended) = service.controller.last()?;
    let served = outcome.of(arm);
    let message = service.messages().1.max(1.0);
    Some(Known {
        latency_ns: served.latency as u64,
        throughput_per_s: served.messages,
        acks_per_message: served.acks,
        capacity_per_s: outcome.room.map(|room| room.capacity(arm) / message),
        confidence: outcome.confidence(),
        age_ns: monotonic_ns().saturating_sub(*ended),
    })
}

/// CPU time of a message and of a segment at this end, ns.
fn costs(service: &Service) -> Option<(f64, f64)> {
    let (outcome, _) = service.controller.last()?;
    let (byte, segment) = outcome.room?.costs()?;
    Some((byte * service.messages().1, segment))
}

fn why(decision: &Decision) -> String {
    let mut why = decision.why.clone();
    if let Some(lever) = &decision.lever {
        why += &format!("; by the {}", word(lever));
    }
    if let Some(advice) = &decision.advice {
        why += &format!(" ({})", word(advice));
    }
    why
}

/// More is not told: by how much a setting wins under which hardly anything gets through says nothing.
pub const MOST_GAIN: f64 = 1_000.0;

/// What a test found, in words.
pub fn found(knob: Knob, outcome: &Outcome) -> String {
    let other = knob.words(outcome.own.other());
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
    let gain = match *gain {
        gain if gain > MOST_GAIN => format!(">{MOST_GAIN:.0}"),
        gain => format!("{gain:.2}"),
    };
    format!(
        "{other} was {better}: {wins} of {pairs} pairs won, {losses} lost, {gain} times as good in the median"
    )
}

fn latency(known: Option<Known>) -> String {
    known.map_or_else(|| human::UNKNOWN.to_owned(), |k| micros(k.latency_ns))
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
