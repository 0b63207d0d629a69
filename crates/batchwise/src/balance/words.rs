//! The words and numbers of lines as people read them; words are those of the JSON lines.

use batchwise_core::balance::UNIT;
use batchwise_core::balance::report::{Health, Policy, State};

/// An effective weight as the configuration has weights.
pub fn weight(effective: u32) -> String {
    let whole = f64::from(effective) / f64::from(UNIT);
    if effective.is_multiple_of(UNIT) {
        format!("{whole:.0}")
    } else {
        format!("{whole:.1}")
    }
}

/// As in JSON.
pub const fn state(state: State) -> &'static str {
    match state {
        State::Serving => "serving",
        State::Draining => "draining",
        State::Down => "down",
    }
}

/// As in JSON.
pub const fn health(health: Health) -> &'static str {
    match health {
        Health::Up => "up",
        Health::Down => "down",
        Health::Unknown => "unknown",
        Health::Unchecked => "unchecked",
    }
}

/// As in JSON.
pub const fn policy(policy: Policy) -> &'static str {
    match policy {
        Policy::Static => "static",
        Policy::Observe => "observe",
        Policy::Latency => "latency",
    }
}

/// That interfaces are without the program.
pub fn detached(names: &[String]) -> String {
    format!("NOT FORWARDING AT {} (gone?)", names.join(", "))
}
