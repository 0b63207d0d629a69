//! Quantities as people read them: three significant digits, a unit, "–" for what is not known.

use serde::Serialize;

/// A process's name, which is its own to choose: no control characters reach a terminal.
pub fn process_name(comm: &str) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    comm.trim_end_matches('\n').chars().map(shown).collect()
}

/// What stands for a value that is not known; never 0.
pub const UNKNOWN: &str = "–";

/// A duration given in nanoseconds, as "850 ns", "34.1 µs", "1.20 ms" or "2.00 s".
pub fn duration(ns: u64) -> String {
    scaled(
        ns as f64,
        &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")],
        0,
    )
}

/// Like [`duration`], with [`UNKNOWN`] for `None`.
pub fn maybe_duration(ns: Option<u64>) -> String {
    ns.map_or_else(|| UNKNOWN.to_owned(), duration)
}

/// An amount as "850 B", "34.1 kB" or "1.20 MB".
pub fn bytes(bytes: u64) -> String {
    scaled(
        bytes as f64,
        &[(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")],
        0,
    )
}

/// A share as "14.3 %" or "0.97 %".
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    let digits = match percent {
        99.95.. => 0,
        1.0.. => 1,
        _ => 2,
    };
    format!("{percent:.digits$} %")
}

/// A rate as "12.0", "5.00 k" or "1.25 M", without the unit of what is counted.
pub fn rate(per_s: f64) -> String {
    scaled(
        per_s.max(0.0),
        &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")],
        2,
    )
    .trim_end()
    .to_owned()
}

/// The time of day in UTC, "14:03:22Z", of a moment in nanoseconds since the Unix epoch.
pub fn clock(ts_ns: u64) -> String {
    let second = ts_ns / 1_000_000_000 % 86_400;
    format!(
        "{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// `value` in the largest unit in which it does not round to less than one. In the first unit it
/// has at most `base_decimals` decimals.
fn scaled(value: f64, units: &[(f64, &str)], base_decimals: usize) -> String {
    let last = units.len() - 1;
    let index = units
        .iter()
        .position(|(factor, _)| value / factor < 999.5)
        .unwrap_or(last);
    let (factor, name) = units[index];
    let value = value / factor;
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    let decimals = if index == 0 {
        decimals.min(base_decimals)
    } else {
        decimals
    };
    format!("{value:.decimals$} {name}")
}

/// One of several choices by the name that it has in JSON.
pub fn word(choice: &impl Serialize) -> String {
    let json = serde_json::to_value(choice).unwrap_or_default();
    json.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_significant_digits_and_the_fitting_unit() {
        for (ns, text) in [
            (0, "0 ns"),
            (850, "850 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (9_996, "10.0 µs"),
            (34_120, "34.1 µs"),
            (468_000, "468 µs"),
            (999_700, "1.00 ms"),
            (14_333_000, "14.3 ms"),
            (2_000_000_000, "2.00 s"),
            (5_000_000_000_000, "5000 s"),
        ] {
            assert_eq!(duration(ns), text, "{ns} ns");
        }
    }

    #[test]
    fn an_unknown_duration_is_a_dash_and_zero_is_not() {
        assert_eq!(maybe_duration(None), "–");
        assert_eq!(maybe_duration(Some(0)), "0 ns");
    }

    #[test]
    fn rates_are_scaled_without_a_trailing_blank() {
        for (per_s, text) in [
            (0.0, "0.00"),
            (4.25, "4.25"),
            (999.0, "999"),
            (37_500.0, "37.5 k"),
            (1.25e6, "1.25 M"),
        ] {
            assert_eq!(rate(per_s), text);
        }
    }

    #[test]
    fn the_clock_is_the_utc_time_of_day() {
        assert_eq!(clock(0), "00:00:00Z");
        assert_eq!(
            clock((86_400 + 14 * 3600 + 3 * 60 + 22) * 1_000_000_000 + 5),
            "14:03:22Z"
        );
    }
}
