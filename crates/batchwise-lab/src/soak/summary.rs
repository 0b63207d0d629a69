//! What follows from the looks: a slope of everything that must not grow.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::agents::{Has, Kind};
use super::trend::{Sample, Trend};
use super::{Look, Machine, More};
use crate::drills::Traffic;
use crate::engine::text::name;

/// Tables that keep so many flows or stacks at most are full after half an hour (`profile`, `passive`): an agent
/// is looked at after this time (s), …
const WARM_UP_S: f64 = 1_800.0;
/// … or after this share of a short soak.
const WARM_UP_SHARE: f64 = 0.4;

#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub hours: f64,
    pub connections: u64,
    pub requests: u64,
    pub broken_connections: u64,
    pub wrong_replies: u64,
    pub agents_died: usize,
    /// In words, also of connections.
    pub wrong: usize,
    /// Connections of random life, by `window`.
    pub lives: u64,
    pub faults: BTreeMap<String, u64>,
    pub seed: u64,
    pub agents: BTreeMap<Kind, AgentTrends>,
    pub machine: MachineTrends,
    /// What grows, as far as its interval tells.
    pub growing: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct AgentTrends {
    pub lives: usize,
    pub rss: Option<Trend>,
    pub descriptors: Option<Trend>,
    pub maps: Option<Trend>,
    pub programs: Option<Trend>,
    pub lost_events: Option<Trend>,
}

#[derive(Clone, Debug, Serialize)]
pub struct MachineTrends {
    pub pins: Option<Trend>,
    pub maps: Option<Trend>,
    pub programs: Option<Trend>,
}

/// When each look was, s since the first stage began: what was between stages is left out.
pub fn times(looks: &[Look]) -> Vec<f64> {
    let (mut before, mut last) = (0.0, (0, 0.0));
    let time = |look: &Look| {
        if look.part != last.0 {
            before += last.1;
        }
        last = (look.part, look.at_s);
        before + look.at_s
    };
    looks.iter().map(time).collect()
}

/// One life of all agents' and all stages' lives.
fn life(look: &Look, has: &Has) -> u32 {
    (look.part << 16) | has.life
}

fn traffic(looks: &[Look]) -> Traffic {
    let mut all = Traffic::default();
    let ends = looks.chunk_by(|a, b| a.part == b.part);
    for last in ends.filter_map(<[Look]>::last) {
        all.add(last.traffic);
    }
    all
}

impl Summary {
    pub fn of(looks: &[Look], more: &More) -> Self {
        let times = times(looks);
        let length = times.last().copied().unwrap_or_default();
        let warm_up = WARM_UP_S.min(WARM_UP_SHARE * length);
        let of_agent = |kind: Kind, value: fn(&Has) -> u64| {
            let samples = looks.iter().zip(&times).filter_map(|(look, &at_s)| {
                let has = look.agents.get(&kind).filter(|has| has.age_s >= warm_up)?;
                Some(Sample {
                    life: life(look, has),
                    at_s,
                    value: value(has) as f64,
                })
            });
            Trend::of(&samples.collect::<Vec<_>>())
        };
        let of_machine = |value: fn(&Machine) -> u64| {
            let samples = looks.iter().zip(&times).map(|(look, &at_s)| Sample {
                life: look.part,
                at_s,
                value: value(&look.machine) as f64,
            });
            Trend::of(&samples.collect::<Vec<_>>())
        };
        let trends = |kind| {
            let has = |look: &Look| Some(life(look, look.agents.get(&kind)?));
            let lives: BTreeSet<_> = looks.iter().filter_map(has).collect();
            let trends = AgentTrends {
                lives: lives.len(),
                rss: of_agent(kind, |has| has.rss),
                descriptors: of_agent(kind, |has| has.descriptors),
                maps: of_agent(kind, |has| has.maps),
                programs: of_agent(kind, |has| has.programs),
                lost_events: of_agent(kind, |has| has.lost_events),
            };
            (kind, trends)
        };
        let agents: BTreeMap<_, _> = Kind::ALL.into_iter().map(trends).collect();
        let machine = MachineTrends {
            pins: of_machine(|m| m.pins),
            maps: of_machine(|m| m.maps),
            programs: of_machine(|m| m.programs),
        };
        let all = traffic(looks);
        Self {
            hours: length / 3_600.0,
            connections: all.connections,
            requests: all.requests,
            broken_connections: all.broken,
            wrong_replies: all.wrong_replies,
            agents_died: more.died.len(),
            wrong: more.wrong.len(),
            lives: more.lives,
            faults: more.faults.clone(),
            seed: more.seed,
            growing: growing(&agents, &machine),
            agents,
            machine,
        }
    }
}

fn growing(agents: &BTreeMap<Kind, AgentTrends>, machine: &MachineTrends) -> Vec<String> {
    let of_agents = agents.iter().flat_map(|(kind, has)| {
        let kind = name(kind);
        has.named()
            .map(|(what, trend)| (format!("{kind} {what}"), trend))
    });
    let of_machine = machine
        .named()
        .map(|(what, trend)| (format!("machine {what}"), trend));
    let grows = |(_, trend): &(String, Option<Trend>)| trend.is_some_and(|trend| trend.grows());
    of_agents
        .chain(of_machine)
        .filter(grows)
        .map(|(what, _)| what)
        .collect()
}

impl AgentTrends {
    pub fn named(&self) -> [(&'static str, Option<Trend>); 5] {
        [
            ("rss", self.rss),
            ("descriptors", self.descriptors),
            ("maps", self.maps),
            ("programs", self.programs),
            ("lost events", self.lost_events),
        ]
    }
}

impl MachineTrends {
    pub fn named(&self) -> [(&'static str, Option<Trend>); 3] {
        [
            ("pins", self.pins),
            ("maps", self.maps),
            ("programs", self.programs),
        ]
    }
}
