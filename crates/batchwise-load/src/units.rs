//! The notations that the command line accepts for durations and rates.

use std::time::Duration;

use crate::Rate;

/// Reads `500ms`, `5s`, `10us`, `0ns`, `1m 30s`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|why| format!("{why}; write a number with a unit, such as 10us, 500ms or 5s"))
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
}
