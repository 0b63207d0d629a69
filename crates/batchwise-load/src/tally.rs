//! What is counted about the requests that were due in one phase of a run.

use crate::samples::Samples;
use crate::send_cost::SendCost;

#[derive(Default)]
pub(crate) struct Tally {
    /// The phase, ns since the start of the run.
    pub from: u64,
    pub to: u64,
    pub requests: u64,
    pub errors: u64,
    pub backpressure: u64,
    /// Good replies to these requests that arrived within the phase.
    pub completed: u64,
    pub intended: Samples,
    pub from_send: Samples,
    pub lateness: Samples,
    pub send_cost: SendCost,
}

impl Tally {
    pub fn new(from: u64, to: u64) -> Self {
        Self {
            from,
            to,
            ..Self::default()
        }
    }

    /// The mean lateness that the cost of sending alone explains, ns.
    pub fn expected_lateness(&self) -> u64 {
        self.send_cost
            .expected_wait(self.to.saturating_sub(self.from))
    }

    /// Takes in what was counted in a later phase.
    pub fn merge(&mut self, later: &Self) {
        self.to = self.to.max(later.to);
        self.requests += later.requests;
        self.errors += later.errors;
        self.backpressure += later.backpressure;
        self.completed += later.completed;
        self.intended.add(&later.intended);
        self.from_send.add(&later.from_send);
        self.lateness.add(&later.lateness);
        self.send_cost.add(&later.send_cost);
    }
}
