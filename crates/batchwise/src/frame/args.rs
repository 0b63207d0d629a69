//! Arguments that several subcommands have: ports, those of whatever stays, and times with their bounds.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::Args;

use super::rows::Format;

/// Of services, as they are given: one, or a range of them.
pub type Ports = RangeInclusive<u16>;

/// All that there are.
pub const ALL_PORTS: Ports = 1..=u16::MAX;

/// Reads `6379` or `7000-7010`.
pub fn parse_ports(text: &str) -> Result<Ports, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse().ok().filter(|port| *port > 0);
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err("a port from 1 to 65535, such as 6379, or a range, such as 7000-7010".to_owned()),
    }
}

pub fn names_of(ports: &[Ports]) -> Vec<String> {
    ports.iter().map(name_of).collect()
}

/// As they were given.
pub fn name_of(ports: &Ports) -> String {
    match (ports.start(), ports.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    }
}

// Of every subcommand that stays. No doc comments here: clap would take them for what the subcommand does.
#[derive(Clone, Debug, Default, Args)]
pub struct StayArgs {
    /// Stop after this time; without it, at Ctrl-C
    #[arg(long, value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// How to show it
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Serve Prometheus metrics here, at /metrics
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<String>,
    /// Push metrics to this OpenTelemetry collector, by OTLP over HTTP; what OTEL_* variables say of it holds
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
}

impl StayArgs {
    /// The same with intervals that are not the user's to choose.
    pub fn every(&self, interval: Duration) -> RunArgs {
        RunArgs {
            interval,
            stay: self.clone(),
        }
    }
}

// Of those that report at intervals.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Time between two reports
    #[arg(long, default_value = "1s", value_parser = parse_interval)]
    pub interval: Duration,
    #[command(flatten)]
    pub stay: StayArgs,
}

/// Intervals may not be shorter: each reads everything that is measured.
pub const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
/// Intervals may not be longer.
pub const LONGEST_INTERVAL: Duration = Duration::from_secs(30 * 86_400);

/// Reads `500ms`, `5s`, `10us`, `0ns`, `1m 30s`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|why| format!("{why}; write a number with a unit, such as 10us, 500ms or 5s"))
}

/// Reads a time within bounds.
pub fn parse_within(text: &str, bounds: RangeInclusive<Duration>) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if bounds.contains(&duration) {
        return Ok(duration);
    }
    let name = humantime::format_duration;
    Err(format!(
        "between {} and {}",
        name(*bounds.start()),
        name(*bounds.end())
    ))
}

/// What something may cost, as a share of one CPU; `None`: no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost(pub Option<f64>);

/// Reads a share of a CPU, such as `1%`, or `off`.
pub fn parse_cost(text: &str) -> Result<Cost, String> {
    if text == "off" {
        return Ok(Cost(None));
    }
    let percent = text.strip_suffix('%').and_then(|n| n.trim().parse().ok());
    match percent {
        Some(percent @ 0.01..=100.0) => Ok(Cost(Some(percent / 100.0))),
        _ => Err("a share of one CPU from 0.01% to 100%, such as 1%, or off".to_owned()),
    }
}

/// Reads the time between two reports.
pub fn parse_interval(text: &str) -> Result<Duration, String> {
    parse_within(text, SHORTEST_INTERVAL..=LONGEST_INTERVAL)
}

/// Reads the least time between two options of the exchange on a connection.
pub fn parse_exchange_period(text: &str) -> Result<Duration, String> {
    parse_within(text, Duration::from_nanos(1)..=Duration::from_secs(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_a_share_or_no_limit() {
        assert_eq!(parse_cost("off"), Ok(Cost(None)));
        assert_eq!(parse_cost("0.5%"), Ok(Cost(Some(0.005))));
        for wrong in ["1", "0%", "101%", "NaN%", "-1%", "%"] {
            assert!(
                parse_cost(wrong).is_err_and(|e| e.contains("1%")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn ports_are_one_or_a_range() {
        assert_eq!(parse_ports("6379"), Ok(6379..=6379));
        assert_eq!(parse_ports("7000-7010"), Ok(7000..=7010));
        for text in ["6379", "7000-7010"] {
            assert_eq!(
                parse_ports(text).map(|ports| name_of(&ports)),
                Ok(text.to_owned())
            );
        }
        for wrong in ["0", "65536", "7010-7000", "-1", "http", "1-2-3", ""] {
            assert!(
                parse_ports(wrong).is_err_and(|e| e.contains("65535")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("10us"), Ok(Duration::from_micros(10)));
        assert_eq!(parse_duration("0ns"), Ok(Duration::ZERO));
        assert!(parse_duration("10").is_err_and(|e| e.contains("500ms")));
    }
}
