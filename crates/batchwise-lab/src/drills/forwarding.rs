//! The balancer and its decapsulators: scenarios of `balance-faults` that are drills, too.

use std::time::Duration;

use anyhow::Result;

use super::outcome::{Outcome, Traffic};
use crate::Context;
use crate::balance::faults::{self, Scenario};
use crate::engine::text::{duration, name};

pub fn run(context: &Context, scenario: Scenario) -> Result<Outcome> {
    let found = faults::run(scenario, "drills", &context.command, &context.stop)?;
    let traffic = Traffic {
        connections: found.connections,
        requests: found.answers,
        broken: found.broken + found.refused,
        wrong_replies: found.misled,
    };
    let longest = Duration::from_nanos(found.longest_wait_ns);
    let said = format!(
        "{}: {} connections, {} answers, {} broke, {} could not be opened, {} were lost with the server that was killed; \
         a client waited for {} at most",
        name(scenario),
        found.connections,
        found.answers,
        found.broken,
        found.refused,
        found.lost_with_server,
        duration(found.longest_wait_ns as f64),
    );
    let mut outcome = Outcome {
        traffic,
        said,
        wrong: found.wrong,
        agents_died: found.agents_died,
        ..Outcome::default()
    };
    outcome.number("longest_wait_ms", longest.as_secs_f64() * 1e3);
    outcome.number("times", found.times as f64);
    if found.flood_packets > 0 {
        outcome.number("flood_packets", found.flood_packets as f64);
        outcome.said += &format!("; {} packets of floods", found.flood_packets);
    }
    if let Some(ns) = found.noticed_after_ns {
        outcome.number("noticed_ms", ns as f64 / 1e6);
    }
    Ok(outcome)
}
