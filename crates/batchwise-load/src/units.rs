//! The notations that the command line accepts for durations, rates and schedules.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::rate::{Phase, Rate};

/// Reads `HOST:PORT`.
pub(crate) fn parse_addr(text: &str) -> Result<SocketAddr, String> {
    let mut found = text
        .to_socket_addrs()
        .map_err(|why| format!("{why}; write an address and a port, such as 127.0.0.1:6379"))?;
    found.next().ok_or(format!("`{text}` has no address"))
}

/// Reads `on` or `off`.
pub(crate) fn on_off() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["on", "off"]).map(|value| value == "on")
}

/// Reads `500ms`, `5s`, `10us`, `0ns`, `1m 30s`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|why| format!("{why}; write a number with a unit, such as 10us, 500ms or 5s"))
}

/// Reads a rate that does not climb.
pub(crate) fn parse_constant_rate(text: &str) -> Result<f64, String> {
    let rate = parse_rate(text)?;
    match rate.from == rate.to {
        true => Ok(rate.from),
        false => Err("a closed loop has one rate, such as 2500 or 10k".to_owned()),
    }
}

/// Reads requests a second: `2500`, `10k`, `1.5m`, or a climb, `10k..300k`.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    match text.split_once("..") {
        Some((from, to)) => Ok(Rate {
            from: parse_number(from)?,
            to: parse_number(to)?,
        }),
        None => parse_number(text).map(Rate::constant),
    }
}

/// Reads a phase of a schedule, `DURATION:RATE@VALUE_SIZE[/GET_RATIO]`, such as `5s:100k@64` or
/// `5s:50k..80k@4096/0.05`.
pub fn parse_phase(text: &str) -> Result<Phase, String> {
    let read = || {
        let (duration, rest) = text.trim().split_once(':').ok_or("there is no `:`")?;
        let (rate, what) = rest.split_once('@').ok_or("there is no `@`")?;
        let (size, get_ratio) = match what.split_once('/') {
            Some((size, share)) => (size, Some(share)),
            None => (what, None),
        };
        let share = |text: &str| {
            let share = text.trim().parse::<f64>();
            share.map_err(|_| format!("`{text}` is not a share of GETs between 0 and 1"))
        };
        let value_size = size.trim().parse();
        Ok(Phase {
            duration: parse_duration(duration)?,
            rate: parse_rate(rate)?,
            value_size: value_size.map_err(|_| format!("`{size}` is not a number of bytes"))?,
            get_ratio: get_ratio.map(share).transpose()?,
        })
    };
    read().map_err(|why: String| {
        format!("{why}; write DURATION:RATE@VALUE_SIZE, such as 5s:100k@64,2s:50k..80k@4096/0.05")
    })
}

fn parse_number(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1e3),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    match digits.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number * factor),
        _ => Err(format!(
            "`{text}` is not a rate; write requests a second, such as 2500, 10k, 1.5m or \
             10k..300k"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_take_suffixes_and_climbs() {
        assert_eq!(parse_rate("2500"), Ok(Rate::constant(2500.0)));
        assert_eq!(parse_rate("1.5m"), Ok(Rate::constant(1.5e6)));
        assert_eq!(
            parse_rate("10k..300K"),
            Ok(Rate {
                from: 10e3,
                to: 300e3
            })
        );
    }

    #[test]
    fn rates_that_make_no_sense_are_refused_with_an_example() {
        for text in ["", "k", "0", "-5", "nan", "inf", "10k..", "fast"] {
            assert!(parse_rate(text).unwrap_err().contains("10k"), "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("10us"), Ok(Duration::from_micros(10)));
        assert_eq!(parse_duration("0ns"), Ok(Duration::ZERO));
        assert!(parse_duration("10").unwrap_err().contains("500ms"));
    }

    #[test]
    fn a_phase_has_a_duration_a_rate_a_value_size_and_perhaps_a_share_of_gets() {
        let phase = |duration, rate, value_size, get_ratio| {
            Ok(Phase {
                duration: Duration::from_millis(duration),
                rate,
                value_size,
                get_ratio,
            })
        };
        let climb = parse_rate("10k..20k").unwrap();
        let steady = phase(5_000, Rate::constant(100e3), 64, None);
        assert_eq!(parse_phase("5s:100k@64"), steady);
        let other = phase(500, climb, 4096, Some(0.05));
        assert_eq!(parse_phase(" 500ms:10k..20k@4096/0.05"), other);
    }

    #[test]
    fn a_phase_that_cannot_be_read_is_refused_with_an_example() {
        for text in ["", "5s", "5s:1k", "5:1k@64", "5s:1k@4k", "5s:1k@64/x"] {
            let why = parse_phase(text).unwrap_err();
            assert!(why.contains("5s:100k@64,2s"), "{text}: {why}");
        }
    }
}
