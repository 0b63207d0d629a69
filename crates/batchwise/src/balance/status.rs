//! What an agent says of itself at a moment, as `status` and the agent's own output show it.

use batchwise_core::balance::report::{BackendLine, EventLine, Line, Policy, TotalsLine};
use serde::{Deserialize, Serialize};

/// The agent itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AgentLine {
    /// Always `agent`.
    pub kind: String,
    /// When it was asked, ns since the Unix epoch.
    pub ts_ns: u64,
    /// The balancer's name.
    pub name: String,
    /// Process id of the agent.
    pub pid: u32,
    /// Who decides about weights.
    pub policy: Policy,
    /// Where clients' packets arrive.
    pub interfaces: Vec<String>,
    /// Those of them that are gone, or that took no program: their packets are not forwarded.
    #[serde(default)]
    pub detached: Vec<String>,
    /// Path of the configuration in force.
    pub config: String,
    /// How many configurations have been in force; 1 after the start.
    pub generation: u64,
    /// What is wrong with the file that was last read; the one before it stays in force. null: nothing.
    pub config_error: Option<String>,
    /// Whether the agent took over another one's maps at its start.
    pub taken_over: bool,
}

/// Everything at the end of an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The agent.
    pub agent: AgentLine,
    /// Backends, by service, in the configuration's order.
    pub backends: Vec<BackendLine>,
    /// Fates of packets.
    pub totals: TotalsLine,
    /// What happened last, oldest first.
    pub events: Vec<EventLine>,
    /// Events and decisions of the interval.
    pub news: Vec<Line>,
}

impl Status {
    /// As JSON lines: the agent, backends, recent events, totals.
    pub fn to_lines(&self) -> serde_json::Result<String> {
        let mut text = serde_json::to_string(&self.agent)? + "\n";
        let backends = self.backends.iter().cloned().map(Box::new);
        let events = self.events.iter().cloned().map(Line::Event);
        let totals = std::iter::once(Line::Totals(self.totals.clone()));
        for line in backends.map(Line::Backend).chain(events).chain(totals) {
            text += &serde_json::to_string(&line)?;
            text.push('\n');
        }
        Ok(text)
    }

    /// From what [`Self::to_lines`] wrote.
    pub fn from_lines(text: &str) -> Result<Self, String> {
        let wrong = |e: serde_json::Error| format!("the agent's answer is no status ({e})");
        let mut lines = text.lines();
        let agent = lines.next().ok_or("the agent's answer is empty")?;
        let mut status = Self {
            agent: serde_json::from_str(agent).map_err(wrong)?,
            backends: Vec::new(),
            totals: TotalsLine::default(),
            events: Vec::new(),
            news: Vec::new(),
        };
        for line in lines {
            match serde_json::from_str(line).map_err(wrong)? {
                Line::Backend(line) => status.backends.push(*line),
                Line::Event(line) => status.events.push(line),
                Line::Totals(line) => status.totals = line,
                Line::Decision(_) => {}
            }
        }
        Ok(status)
    }
}
