//! The decision log: every decision of every service, for people and for programs. The JSON line is
//! a contract; fields may be added, never renamed.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use batchwise_core::sense::report::Side;
use batchwise_core::tune::{Arm, Event, Happened, Known, Policy};
use serde::Serialize;

use super::service::{Service, name};
use crate::clock::wall_clock_ns;
use crate::output::aside::Aside;
use crate::output::pipe;

/// How decisions are shown on standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Style {
    /// Text.
    #[default]
    Auto,
    /// A line of text a decision.
    #[value(alias = "text")]
    Plain,
    /// One JSON object a decision, as in --log.
    Jsonl,
}

/// A decision as programs read it.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// ns since 1970.
    ts_ns: u64,
    service: String,
    side: Side,
    event: Entry,
    policy: String,
    /// What is in force after this line: `on`, `off`, or `app` where each application's own
    /// setting is.
    nagle: &'a str,
    /// What most applications asked for.
    wish: Arm,
    load_per_s: f64,
    message_bytes: f64,
    arms: Arms,
    /// What exploration may still cost: ns of waiting, summed over messages.
    budget_left_ns: f64,
    peer: Option<PeerLine>,
    /// Bytes that may be held back, with `--hold aimd`; 0 is TCP_NODELAY.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_bytes: Option<u32>,
    dry_run: bool,
    why: &'a str,
}

/// What a line is about.
#[derive(Clone, Copy, Debug, Serialize)]
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
#[derive(Debug, Serialize)]
struct Arms {
    on: Option<Known>,
    off: Option<Known>,
}

#[derive(Debug, Serialize)]
struct PeerLine {
    nagle: Arm,
    probing: bool,
}

/// Writes decisions.
pub struct Decisions {
    log: Option<File>,
    out: Aside,
    style: Style,
    policy: Policy,
    dry_run: bool,
    held: Option<Arm>,
}

impl Decisions {
    /// Opens the log. `held` is the arm that `--hold` keeps in force, whatever would be decided.
    ///
    /// # Errors
    /// The file cannot be opened for appending.
    pub fn open(
        log: Option<&Path>,
        style: Style,
        policy: Policy,
        dry_run: bool,
        held: Option<Arm>,
    ) -> anyhow::Result<Self> {
        let log = log
            .map(|path| {
                let file = OpenOptions::new().create(true).append(true).open(path);
                file.with_context(|| {
                    let path = path.display();
                    format!("cannot write {path}: --log needs a folder that exists, and leave to write there")
                })
            })
            .transpose()?;
        Ok(Self {
            log,
            out: Aside::stdout(),
            style,
            policy,
            dry_run,
            held,
        })
    }

    /// Writes one decision.
    ///
    /// # Errors
    /// The log or standard output cannot be written.
    pub fn event(&mut self, server: SocketAddr, side: Side, e: &Event) -> anyhow::Result<()> {
        let line = Line {
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
            wish: e.wish,
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
            why: &e.why,
        };
        self.write(&line)
    }

    /// The agent stops: all sockets go back to their applications' settings.
    ///
    /// # Errors
    /// As for [`Self::event`].
    pub fn stop(&mut self, server: SocketAddr, side: Side, s: &Service) -> anyhow::Result<()> {
        let line = Line {
            ts_ns: wall_clock_ns(),
            service: server.to_string(),
            side,
            event: Entry::Stop,
            policy: self.policy.to_string(),
            nagle: "app",
            wish: s.decider().wish(),
            load_per_s: s.decider().load(),
            message_bytes: s.decider().message_bytes(),
            arms: Arms {
                on: s.decider().known(Arm::On),
                off: s.decider().known(Arm::Off),
            },
            budget_left_ns: s.decider().budget_left(),
            peer: None,
            limit_bytes: None,
            dry_run: self.dry_run,
            why: "the agent ends: every socket has its application's own setting back",
        };
        self.write(&line)
    }

    fn write(&mut self, line: &Line) -> anyhow::Result<()> {
        let json = serde_json::to_string(line).context("encoding a decision")?;
        if let Some(log) = &mut self.log {
            writeln!(log, "{json}").context("cannot write the log")?;
        }
        match self.style {
            Style::Jsonl => self.print(&json),
            Style::Auto | Style::Plain => self.print(&text(line)),
        }
    }

    /// Why things are as they are.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn explain(&mut self, server: SocketAddr, side: Side, s: &Service) -> anyhow::Result<()> {
        let c = s.decider();
        let arm = |a| match c.known(a) {
            Some(k) => format!(
                "{} (confidence {:.2}, {:.1} s ago)",
                micros(k.latency_ns),
                k.confidence,
                k.age_ns as f64 / 1e9
            ),
            None => "not known".to_owned(),
        };
        self.print(&format!(
            "{}: {} connections, {:.0}/s of {:.0} B; Nagle {}, the applications ask for {}\n    on: {}\n    off: {}\n    {}",
            name(server, side),
            s.connections(),
            c.load(),
            c.message_bytes(),
            match self.held {
                Some(held) => format!("held {}", word(held)),
                None => word(c.arm()).to_owned(),
            },
            word(c.wish()),
            arm(Arm::On),
            arm(Arm::Off),
            c.explain()
        ))
    }

    fn print(&mut self, text: &str) -> anyhow::Result<()> {
        pipe::write_all(&mut self.out, format!("{text}\n").as_bytes())
    }
}

fn text(line: &Line) -> String {
    let known = |k: Option<Known>| k.map_or("–".to_owned(), |k| micros(k.latency_ns));
    format!(
        "{} {} {:<10} Nagle {:<3} on {}  off {}  {:.0}/s of {:.0} B: {}",
        clock(line.ts_ns),
        line.service,
        line.event,
        line.nagle,
        known(line.arms.on),
        known(line.arms.off),
        line.load_per_s,
        line.message_bytes,
        line.why
    )
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
