//! The decision log: every decision of every service, for people and for programs. The JSON line is
//! a contract; fields may be added, never renamed.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use batchwise_core::sense::report::Side;
use batchwise_core::tune::{Arm, Event, Happened, Known, Policy};
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
    event: Entry,
    /// The policy, as `--policy` has it.
    policy: String,
    /// Nagle's algorithm after this line: `on`, `off`, or `app` where each application's own
    /// setting is in force.
    nagle: &'static str,
    /// What most applications asked for.
    #[serde(rename = "wish")]
    app_setting: Arm,
    /// The present load, requests a second.
    load_per_s: f64,
    /// Mean size of a request and its response, bytes.
    message_bytes: f64,
    /// What is known of each setting under the present load.
    arms: Arms,
    /// What trials may still cost: waiting, summed over messages, ns.
    budget_left_ns: f64,
    /// What the other end's agent says. null: it has not said anything.
    peer: Option<PeerLine>,
    /// Bytes that may be held back; 0 is TCP_NODELAY. Absent: without `--hold aimd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_bytes: Option<u32>,
    /// Whether it was only logged, with `--dry-run`.
    dry_run: bool,
    /// The reason, in words.
    why: String,
}

/// What a line is about.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum Entry {
    /// The agent stops.
    Stop,
    /// By the name that the controller's own type has.
    #[serde(untagged)]
    Happened(Happened),
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// What is known of both arms under this load.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Arms {
    /// Nagle on. null: not seen under this load.
    on: Option<Known>,
    /// Nagle off. null: not seen under this load.
    off: Option<Known>,
}

#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PeerLine {
    /// The setting in force there.
    nagle: Arm,
    /// Whether it tries the other one at the moment.
    probing: bool,
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
    held: Option<Arm>,
}

impl Decisions {
    /// Opens the log and standard output. `held` is the arm that `--hold` keeps in force, whatever would be decided.
    pub fn open(
        log: Option<&Path>,
        format: Format,
        policy: Policy,
        dry_run: bool,
        held: Option<Arm>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            log: log.map(LogFile::open).transpose()?,
            output: Output::open(format.without_live()?, WhenUnread::GoOn, String::new())?,
            policy,
            dry_run,
            held,
        })
    }

    pub fn event(&mut self, server: SocketAddr, side: Side, e: &Event) -> anyhow::Result<()> {
        let decision = Decision {
            ts_ns: wall_clock_ns(),
            service: server.to_string(),
            side,
            event: Entry::Happened(e.happened),
            policy: self.policy.to_string(),
            nagle: match (self.held, e.is_wish, e.arm) {
                (Some(held), ..) => word(held),
                (None, true, _) => "app",
                (None, false, arm) => word(arm),
            },
            app_setting: e.wish,
            load_per_s: e.load,
            message_bytes: e.message_bytes,
            arms: Arms {
                on: e.on,
                off: e.off,
            },
            budget_left_ns: e.budget_left,
            peer: e.peer.map(|p| PeerLine {
                nagle: p.arm,
                probing: p.probing,
            }),
            limit_bytes: e.limit,
            dry_run: self.dry_run,
            why: e.why.clone(),
        };
        self.write(decision)
    }

    /// The agent stops: all sockets go back to their applications' settings.
    pub fn stop(&mut self, server: SocketAddr, side: Side, s: &Service) -> anyhow::Result<()> {
        let decision = Decision {
            ts_ns: wall_clock_ns(),
            service: server.to_string(),
            side,
            event: Entry::Stop,
            policy: self.policy.to_string(),
            nagle: "app",
            app_setting: s.decider.app_setting(),
            load_per_s: s.decider.load(),
            message_bytes: s.decider.message_bytes(),
            arms: Arms {
                on: s.decider.known(Arm::On),
                off: s.decider.known(Arm::Off),
            },
            budget_left_ns: s.decider.budget_left(),
            peer: None,
            limit_bytes: None,
            dry_run: self.dry_run,
            why: "the agent ends: every socket has its application's own setting back".to_owned(),
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
    pub fn explain(&mut self, server: SocketAddr, side: Side, s: &Service) -> anyhow::Result<()> {
        let c = &s.decider;
        let arm = |a| match c.known(a) {
            Some(k) => format!(
                "{} (confidence {:.2}, {:.1} s ago)",
                micros(k.latency_ns),
                k.confidence,
                k.age_ns as f64 / 1e9
            ),
            None => "not known".to_owned(),
        };
        self.output.say(&format!(
            "{server} ({}): {} connections, {:.0}/s of {:.0} B; Nagle {}, the applications ask for {}\n    on: {}\n    off: {}\n    {}\n",
            human::word(&side),
            s.connections(),
            c.load(),
            c.message_bytes(),
            match self.held {
                Some(held) => format!("held {}", word(held)),
                None => word(c.arm()).to_owned(),
            },
            word(c.app_setting()),
            arm(Arm::On),
            arm(Arm::Off),
            c.explain()
        ))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_one_name_for_people_and_for_programs() {
        let give_back = Entry::Happened(Happened::GiveBack);
        for (entry, name) in [(Entry::Stop, "stop"), (give_back, "give_back")] {
            assert_eq!(format!("{entry:<10}|"), format!("{name:<10}|"));
            assert_eq!(
                serde_json::to_string(&entry).expect("JSON"),
                format!("{name:?}")
            );
        }
    }
}
