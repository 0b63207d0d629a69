//! Names and numbers for people: loads, latencies, shares, ratios. What is not known is a dash.

use serde::Serialize;

use crate::stats::{MedianInterval, Spread};

/// What results call a variant without fields.
pub fn name(variant: impl Serialize) -> String {
    let text = serde_json::to_string(&variant);
    text.unwrap_or_default().trim_matches('"').to_owned()
}

/// Requests a second, short: `250k`.
pub fn thousands(per_second: f64) -> String {
    if per_second >= 1000.0 {
        let k = per_second / 1000.0;
        let text = format!("{k:.1}");
        format!("{}k", text.strip_suffix(".0").unwrap_or(&text))
    } else {
        format!("{per_second:.0}")
    }
}

/// A latency, or a dash; infinite ones are of requests that nobody answered.
pub fn maybe_duration(ns: Option<f64>) -> String {
    match ns {
        None => "–".into(),
        Some(ns) if ns.is_infinite() => "∞".into(),
        Some(ns) => duration(ns),
    }
}

/// A latency, short: `23 µs`, `1.5 ms`, `2 s`.
pub fn duration(ns: f64) -> String {
    if ns == 0.0 {
        return "0".into();
    }
    let (value, unit) = if ns >= 0.9995e9 {
        (ns / 1e9, "s")
    } else if ns >= 0.9995e6 {
        (ns / 1e6, "ms")
    } else {
        (ns / 1e3, "µs")
    };
    let text = if value >= 9.95 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    };
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}

/// A share as a percentage, or a dash.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".into(), |s| format!("{:.1} %", s * 100.0))
}

/// A ratio, or a dash.
pub fn ratio(value: Option<f64>) -> String {
    match value {
        None => "–".into(),
        Some(value) if value.is_infinite() => "∞".into(),
        Some(value) => format!("{value:.2}"),
    }
}

/// A median and its interval, or a dash.
pub fn interval(value: Option<MedianInterval>) -> String {
    value.map_or_else(
        || "–".into(),
        |v| format!("{:.3} ({:.3} – {:.3})", v.median, v.low, v.high),
    )
}

/// A median and its quartiles, without decimals.
pub fn quartiles(of: Spread) -> String {
    format!("{:.0} ({:.0} – {:.0})", of.median, of.q1, of.q3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_labels_are_short() {
        assert_eq!((thousands(0.0), duration(0.0)), ("0".into(), "0".into()));
        assert_eq!(thousands(250_000.0), "250k");
        assert_eq!(thousands(2_500.0), "2.5k");
        assert_eq!(duration(23_400.0), "23 µs");
        assert_eq!(duration(1_500_000.0), "1.5 ms");
        assert_eq!(duration(1_000_000.0), "1 ms");
        assert_eq!(duration(1_456e6), "1.5 s");
    }

    #[test]
    fn an_unknown_share_is_a_dash_and_not_zero() {
        assert_eq!(percent(None), "–");
        assert_eq!(percent(Some(0.034)), "3.4 %");
    }
}
