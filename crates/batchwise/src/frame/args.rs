//! Arguments that several subcommands have: ports, and times with their bounds.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::Args;

/// Which service is meant.
#[derive(Clone, Debug, Args)]
pub struct PortArgs {
    /// The service's port: local at its servers, remote at its clients (may be repeated)
    #[arg(
        long = "port",
        value_name = "PORT",
        required = true,
        value_delimiter = ','
    )]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub numbers: Vec<u16>,
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
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("10us"), Ok(Duration::from_micros(10)));
        assert_eq!(parse_duration("0ns"), Ok(Duration::ZERO));
        assert!(parse_duration("10").is_err_and(|e| e.contains("500ms")));
    }
}
