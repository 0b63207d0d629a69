//! The drills, and what came of one.

use std::collections::BTreeMap;
use std::fmt::Display;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Something that is done to agents, or to what they stand on, while applications are at work.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Drill {
    /// `tune` is killed while it holds sockets at what their applications did not ask for.
    #[default]
    AgentKilled,
    /// The same where it is the first process of a PID namespace: its guard dies with it.
    AgentKilledAsFirst,
    /// Clients of `--metrics` that mean harm.
    HostileHttp,
    /// Clients of `--hints` that mean harm.
    HintFlood,
    /// A client of `--hints` that makes and drops valid handles as fast as the agent takes them.
    HintHandles,
    /// Clients of `window` that mean harm.
    WindowFlood,
    /// One peer of 1,001 sends options of the exchange that say anything.
    HostilePeer,
    /// nginx holds back what is no full segment (`tcp_nopush`) while it is tuned.
    NginxNopush,
    /// 1,000 connections are switched at both ends.
    Connections1k,
    /// 10,000 are.
    Connections10k,
    /// 50,000 of five servers and five clients are.
    Connections50k,
    /// The disk with the log of `tune` is full, and has room again.
    DiskFull,
    /// It hangs, and `tune` is told to end or killed meanwhile.
    DiskHangs,
    /// The reader of an agent's standard output leaves.
    ReaderLeaves,
    /// The terminals of all live views go away.
    TerminalGone,
    /// A network namespace is deleted whose sockets were tuned.
    NamespaceDeleted,
    /// `tune` is killed while it holds sockets in 100 network namespaces.
    ManyNamespaces,
    /// Another sock_ops program has asked for callbacks of its own.
    OtherSockOps,
    /// The memory limit of an agent's cgroup is reached.
    MemoryLimit,
    /// Floods of ACKs and of UDP at `balance` while the weights move.
    BalanceFloods,
    /// A typo in the configuration of `balance`, a crash, and a server that dies meanwhile.
    BalanceTypoCrash,
    /// `balance` and `decap` are replaced under load.
    BalanceUpgrade,
}

/// What applications saw while it was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Connections that were opened, and requests that were answered.
    pub connections: u64,
    pub requests: u64,
    /// Connections that broke or could not be opened, and must not have.
    pub broken: u64,
    /// Replies that were not what was asked for.
    pub wrong_replies: u64,
}

impl Traffic {
    pub fn add(&mut self, other: Self) {
        self.connections += other.connections;
        self.requests += other.requests;
        self.broken += other.broken;
        self.wrong_replies += other.wrong_replies;
    }
}

/// What came of a drill.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub drill: Drill,
    pub traffic: Traffic,
    /// Settings of sockets that were not as their applications asked when they had to be.
    pub not_given_back: u64,
    /// Agents that ended and must not have.
    pub agents_died: u64,
    /// What was measured.
    pub numbers: BTreeMap<String, f64>,
    /// The evidence in a sentence.
    pub said: String,
    /// What was not as it must be.
    pub wrong: Vec<String>,
    /// It broke off: what was seen until then is not counted.
    #[serde(default)]
    pub not_done: bool,
}

impl Outcome {
    pub fn held(&self) -> bool {
        let Traffic {
            broken,
            wrong_replies,
            ..
        } = self.traffic;
        self.wrong.is_empty()
            && broken + wrong_replies + self.not_given_back + self.agents_died == 0
    }

    pub fn number(&mut self, name: &str, value: f64) {
        self.numbers.insert(name.to_owned(), value);
    }

    /// What must be, or words for what is instead.
    pub fn expect(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(otherwise());
        }
    }

    /// An agent must still run.
    pub fn expect_alive(&mut self, alive: Result<(), impl Display>) {
        if let Err(error) = alive {
            self.agents_died += 1;
            self.wrong.push(format!("{error:#}"));
        }
    }

    /// It could not be done to its end.
    pub fn failed(drill: Drill, error: &anyhow::Error) -> Self {
        Self {
            drill,
            said: "it could not be done to its end".to_owned(),
            wrong: vec![format!("{error:#}")],
            not_done: true,
            ..Self::default()
        }
    }
}
