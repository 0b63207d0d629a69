//! What an operator wants of a service.

use core::fmt;
use core::str::FromStr;

/// What is to be gained. The first two are one rule in a test: throughput counts first, and latency
/// decides where both settings serve the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// The lowest mean latency.
    Latency,
    /// The highest throughput; of two alike, the one with the lower latency.
    Throughput,
    /// The highest throughput whose mean latency stays under this, ns; of two alike, the one with
    /// the lower latency.
    Slo(u64),
}

/// A text that names no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPolicy;

impl fmt::Display for BadPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "write latency, throughput, or slo:TIME such as slo:500us (units: ns, us, ms, s)",
        )
    }
}

impl core::error::Error for BadPolicy {}

impl FromStr for Policy {
    type Err = BadPolicy;

    fn from_str(text: &str) -> Result<Self, BadPolicy> {
        match text {
            "latency" => return Ok(Self::Latency),
            "throughput" => return Ok(Self::Throughput),
            _ => {}
        }
        let time = text.strip_prefix("slo:").ok_or(BadPolicy)?;
        let digits = time.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &time[digits.len()..] {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return Err(BadPolicy),
        };
        let number: f64 = digits.parse().map_err(|_| BadPolicy)?;
        let ns = number * unit;
        if !(1.0..=3.6e12).contains(&ns) {
            return Err(BadPolicy);
        }
        Ok(Self::Slo(ns as u64))
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latency => f.write_str("latency"),
            Self::Throughput => f.write_str("throughput"),
            Self::Slo(ns) => {
                let (per, unit) = match ns {
                    n if n % 1_000_000_000 == 0 => (1_000_000_000, "s"),
                    n if n % 1_000_000 == 0 => (1_000_000, "ms"),
                    n if n % 1_000 == 0 => (1_000, "us"),
                    _ => (1, "ns"),
                };
                write!(f, "slo:{}{unit}", ns / per)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn policies_are_read_as_they_are_written() {
        for text in [
            "latency",
            "throughput",
            "slo:500us",
            "slo:2ms",
            "slo:7ns",
            "slo:1s",
        ] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        assert_eq!("slo:0.5ms".parse(), Ok(Policy::Slo(500_000)));
        for text in [
            "",
            "slo",
            "slo:",
            "slo:5",
            "slo:-1us",
            "slo:0us",
            "slo:us",
            "slo:9999h",
            "nagle",
        ] {
            assert_eq!(text.parse::<Policy>(), Err(BadPolicy), "{text}");
        }
    }
}
