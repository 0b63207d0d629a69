//! The notations that the command line accepts for durations, rates and schedules.

use std::time::Duration;

use crate::{Phase, Rate};

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

/// Reads a schedule: phases `DURATION:RATE@VALUE_SIZE[/GET_RATIO]`, separated by commas, such as
/// `5s:100k@64,5s:50k..80k@4096/0.05`.
pub fn parse_schedule(text: &str) -> Result<Vec<Phase>, String> {
    text.split(',')
        .enumerate()
        .map(|(index, phase)| {
            parse_phase(phase.trim()).map_err(|why| {
                format!(
                    "phase {} (`{}`): {why}; write DURATION:RATE@VALUE_SIZE, such as \
                     5s:100k@64,2s:50k..80k@4096/0.05",
                    index + 1,
                    phase.trim()
                )
            })
        })
        .collect()
}

fn parse_phase(text: &str) -> Result<Phase, String> {
    let (duration, rest) = text.split_once(':').ok_or("there is no `:`")?;
    let (rate, what) = rest.split_once('@').ok_or("there is no `@`")?;
    let (size, get_ratio) = match what.split_once('/') {
        Some((size, share)) => (size, Some(share)),
        None => (what, None),
    };
    let share = |text: &str| {
        let share = text.trim().parse::<f64>();
        share.map_err(|_| format!("`{text}` is not a share of GETs between 0 and 1"))
    };
    Ok(Phase {
        duration: parse_duration(duration)?,
        rate: parse_rate(rate)?,
        value_size: size
            .trim()
            .parse()
            .map_err(|_| format!("`{size}` is not a number of bytes"))?,
        get_ratio: get_ratio.map(share).transpose()?,
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
    fn a_schedule_is_read_phase_by_phase() {
        let phases = parse_schedule("5s:100k@64, 500ms:10k..20k@4096/0.05").unwrap();
        assert_eq!(
            phases,
            [
                Phase {
                    duration: Duration::from_secs(5),
                    rate: Rate::constant(100e3),
                    value_size: 64,
                    get_ratio: None,
                },
                Phase {
                    duration: Duration::from_millis(500),
                    rate: Rate {
                        from: 10e3,
                        to: 20e3
                    },
                    value_size: 4096,
                    get_ratio: Some(0.05),
                },
            ]
        );
    }

    #[test]
    fn a_phase_that_cannot_be_read_is_named_with_an_example() {
        for text in [
            "",
            "5s:1k@64,",
            "5s:1k@64,5s",
            "5s:1k@64,5s:1k",
            "5s:1k@64,5:1k@64",
            "5s:1k@64,5s:1k@4k",
            "5s:1k@64,5s:1k@64/x",
        ] {
            let why = parse_schedule(text).unwrap_err();
            assert!(why.contains("5s:100k@64,2s"), "{text}: {why}");
            let named = if text.is_empty() {
                "phase 1"
            } else {
                "phase 2"
            };
            assert!(why.contains(named), "{text}: {why}");
        }
    }
}
