//! Distributions of sizes, counts and pauses, in the notation of the command line and of site
//! descriptions: `500`, `40..10000`, `exp:2000`, `lognormal:MEDIAN:SIGMA`; times with a unit.

use std::fmt;

use rand::Rng;
use rand_distr::{Exp1, StandardNormal};
use serde::{Deserialize, Serialize};

use crate::units::parse_duration;

/// A distribution of numbers that are not negative.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Distribution {
    /// Always the same.
    Constant(f64),
    /// Equally likely between two bounds, both included.
    Uniform {
        /// The lowest.
        low: f64,
        /// The highest.
        high: f64,
    },
    /// Exponential.
    Exponential {
        /// Its mean.
        mean: f64,
    },
    /// Lognormal.
    LogNormal {
        /// Its median.
        median: f64,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
}

/// Reads a distribution of whole amounts, such as bytes.
pub fn parse_amounts(text: &str) -> Result<Distribution, String> {
    parse(text, &|number| plain(number)).map_err(|why| {
        format!("{why}; write 500, 40..10000, exp:2000 or lognormal:8000:1.2 (median, sigma)")
    })
}

/// Reads a distribution of times; its unit is then ns.
pub fn parse_times(text: &str) -> Result<Distribution, String> {
    let time = |number: &str| parse_duration(number).map(|time| time.as_nanos() as f64);
    match text.trim() {
        "none" => Ok(Distribution::Constant(0.0)),
        text => parse(text, &time).map_err(|why| {
            format!("{why}; write none, 20ms, 10ms..30ms, exp:20ms or lognormal:1s:0.8")
        }),
    }
}

fn parse(text: &str, number: &dyn Fn(&str) -> Result<f64, String>) -> Result<Distribution, String> {
    let text = text.trim();
    if let Some(mean) = text.strip_prefix("exp:") {
        return Ok(Distribution::Exponential {
            mean: number(mean)?,
        });
    }
    if let Some(rest) = text.strip_prefix("lognormal:") {
        let (median, sigma) = rest
            .rsplit_once(':')
            .ok_or_else(|| format!("`{text}` has no sigma"))?;
        let (median, sigma) = (number(median)?, plain(sigma)?);
        return match sigma <= 5.0 {
            true => Ok(Distribution::LogNormal { median, sigma }),
            false => Err(format!("a sigma of {sigma} is too wide: 5 at most")),
        };
    }
    match text.split_once("..") {
        Some((low, high)) => {
            let (low, high) = (number(low)?, number(high)?);
            match low <= high {
                true => Ok(Distribution::Uniform { low, high }),
                false => Err(format!("`{text}` begins above its end")),
            }
        }
        None => number(text).map(Distribution::Constant),
    }
}

fn plain(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err(format!("`{text}` is not a number from 0 on")),
    }
}

impl Distribution {
    /// Draws one.
    pub fn sample(&self, rng: &mut impl Rng) -> f64 {
        match *self {
            Self::Constant(value) => value,
            Self::Uniform { low, high } => low + (high - low) * rng.random::<f64>(),
            Self::Exponential { mean } => mean * rng.sample::<f64, _>(Exp1),
            Self::LogNormal { median, sigma } => {
                median * (sigma * rng.sample::<f64, _>(StandardNormal)).exp()
            }
        }
    }

    /// Draws a whole number; between bounds each is equally likely.
    pub fn sample_whole(&self, rng: &mut impl Rng) -> u64 {
        match *self {
            Self::Uniform { low, high } => rng.random_range(low as u64..=high as u64),
            _ => self.sample(rng).round() as u64,
        }
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::Constant(value) => value,
            Self::Uniform { low, high } => (low + high) / 2.0,
            Self::Exponential { mean } => mean,
            Self::LogNormal { median, sigma } => median * (sigma * sigma / 2.0).exp(),
        }
    }

    /// The highest and the lowest value, if there are bounds.
    pub fn bounds(&self) -> Option<(f64, f64)> {
        match *self {
            Self::Constant(value) => Some((value, value)),
            Self::Uniform { low, high } => Some((low, high)),
            Self::Exponential { .. } | Self::LogNormal { .. } => None,
        }
    }
}

/// As [`parse_amounts`] reads it.
impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(value) => write!(f, "{value}"),
            Self::Uniform { low, high } => write!(f, "{low}..{high}"),
            Self::Exponential { mean } => write!(f, "exp:{mean}"),
            Self::LogNormal { median, sigma } => write!(f, "lognormal:{median}:{sigma}"),
        }
    }
}

impl TryFrom<String> for Distribution {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_amounts(&text)
    }
}

impl From<Distribution> for String {
    fn from(distribution: Distribution) -> Self {
        distribution.to_string()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    #[test]
    fn every_notation_is_read_and_written_back() {
        for text in ["500", "40..10000", "exp:2000", "lognormal:8000:1.2"] {
            assert_eq!(parse_amounts(text).unwrap().to_string(), text);
        }
        let second = 1e9;
        for (text, read) in [
            ("none", Distribution::Constant(0.0)),
            ("20ms", Distribution::Constant(2e7)),
            ("exp:20ms", Distribution::Exponential { mean: 2e7 }),
            (
                "lognormal:1s:0.8",
                Distribution::LogNormal {
                    median: second,
                    sigma: 0.8,
                },
            ),
        ] {
            assert_eq!(parse_times(text), Ok(read));
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_examples() {
        for text in ["", "-1", "9..3", "lognormal:5", "lognormal:5:9", "exp:x"] {
            assert!(parse_amounts(text).unwrap_err().contains("40..10000"));
        }
        assert!(parse_times("20").unwrap_err().contains("20ms"));
    }

    #[test]
    fn samples_have_the_mean_that_is_claimed() {
        let mut rng = SmallRng::seed_from_u64(1);
        for text in ["500", "40..10000", "exp:2000", "lognormal:8000:0.8"] {
            let distribution = parse_amounts(text).unwrap();
            let sum: f64 = (0..100_000).map(|_| distribution.sample(&mut rng)).sum();
            let ratio = sum / 100_000.0 / distribution.mean();
            assert!((0.97..1.03).contains(&ratio), "{text}: {ratio}");
        }
    }

    #[test]
    fn whole_numbers_reach_both_bounds() {
        let mut rng = SmallRng::seed_from_u64(1);
        let dice = parse_amounts("1..6").unwrap();
        let mut seen = [0; 8];
        (0..6000).for_each(|_| seen[dice.sample_whole(&mut rng) as usize] += 1);
        assert_eq!((seen[0], seen[7]), (0, 0));
        assert!(seen[1..7].iter().all(|&n| n > 800), "{seen:?}");
    }
}
