//! What an operator wants of a service, and which of two performances serves that better.

use core::fmt;
use core::str::FromStr;

use super::Perf;

/// What is to be gained.
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

impl Policy {
    /// Whether `a` serves better than `b`, by a relative `margin` at least.
    pub fn prefers(&self, a: &Perf, b: &Perf, margin: f64) -> bool {
        let m = 1.0 + margin;
        let faster = a.latency * m < b.latency;
        let more = a.throughput > b.throughput * m;
        let less = b.throughput > a.throughput * m;
        match self {
            Self::Latency => faster,
            Self::Throughput => more || (!less && faster),
            Self::Slo(most) => {
                let (a_in, b_in) = (a.latency <= *most as f64, b.latency <= *most as f64);
                match (a_in, b_in) {
                    (true, false) => faster,
                    (false, true) => false,
                    // An open loop that is not served queues up: whoever serves more of it ends
                    // the queue first.
                    _ => more || (!less && faster),
                }
            }
        }
    }

    /// Whether a latency misses what was asked for.
    pub fn is_missed_by(&self, latency: f64) -> bool {
        matches!(self, Self::Slo(most) if latency > *most as f64)
    }
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

    fn perf(latency: f64, throughput: f64) -> Perf {
        Perf {
            latency,
            throughput,
        }
    }

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

    #[test]
    fn an_slo_is_kept_first_then_throughput_counts_then_latency() {
        let slo = Policy::Slo(500_000);
        let within = perf(400e3, 100e3);
        assert!(slo.prefers(&within, &perf(600e3, 200e3), 0.05));
        assert!(!slo.prefers(&perf(600e3, 200e3), &within, 0.05));
        assert!(slo.prefers(&perf(450e3, 120e3), &within, 0.05));
        assert!(slo.prefers(&perf(100e3, 100e3), &within, 0.05));
        assert!(
            !slo.prefers(&perf(390e3, 100e3), &within, 0.05),
            "within the margin"
        );
        // both miss it: the one that serves more
        assert!(slo.prefers(&perf(9e6, 300e3), &perf(8e6, 200e3), 0.05));
    }

    #[test]
    fn latency_alone_ignores_throughput_and_throughput_comes_before_latency() {
        let (quick, many) = (perf(10e3, 1e3), perf(20e3, 2e3));
        assert!(Policy::Latency.prefers(&quick, &many, 0.05));
        assert!(Policy::Throughput.prefers(&many, &quick, 0.05));
        assert!(!Policy::Throughput.prefers(&quick, &many, 0.05));
    }
}
