//! What a tool says about latency, from its output.

use batchwise_core::sense::report::{Line, Side};

use crate::stats::median;

/// The form of a tool's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// No latency.
    Nothing,
    /// A histogram in powers of two, µs, as bpftrace prints it.
    Histogram,
    /// Smoothed round-trip times of connections, ms, as `ss -i` prints them.
    Ss,
    /// JSON lines of `batchwise watch`, of which those of clients count.
    Watch,
}

impl Says {
    /// The typical latency in this output, ns, if there is one: a median, or of a histogram the middle of
    /// the median's bucket.
    pub fn read(self, lines: &[String]) -> Option<f64> {
        match self {
            Self::Nothing => None,
            Self::Histogram => histogram_median(lines).map(|us| us * 1e3),
            Self::Ss => {
                let words = lines.iter().flat_map(|line| line.split_whitespace());
                let times = words.filter_map(|word| {
                    let (smoothed, _) = word.strip_prefix("rtt:")?.split_once('/')?;
                    smoothed.parse::<f64>().ok()
                });
                median(&times.collect::<Vec<_>>()).map(|ms| ms * 1e6)
            }
            Self::Watch => {
                let parsed = lines
                    .iter()
                    .filter_map(|line| serde_json::from_str::<Line>(line).ok());
                // where both ends are seen: what the server's end says is its own part
                let at_client = parsed.filter(|line| line.side == Side::Client);
                let totals = at_client.filter_map(|line| Some(line.latency_ns.total? as f64));
                median(&totals.collect::<Vec<_>>())
            }
        }
    }
}

/// The geometric middle of the bucket that holds the median, of lines such as
/// `[64, 128)   384 |@@@|`.
fn histogram_median(lines: &[String]) -> Option<f64> {
    let buckets: Vec<_> = lines.iter().filter_map(|line| bucket(line)).collect();
    let all: u64 = buckets.iter().map(|&(_, count)| count).sum();
    let mut below = 0;
    buckets.iter().find_map(|&(middle, count)| {
        below += count;
        (all > 0 && 2 * below >= all).then_some(middle)
    })
}

fn bucket(line: &str) -> Option<(f64, u64)> {
    let (range, rest) = line.strip_prefix('[')?.split_once([')', ']'])?;
    let count = rest.split_whitespace().next()?.parse().ok()?;
    let (low, high) = range.split_once(',').unwrap_or((range, range));
    Some(((number(low)? * number(high)?).sqrt(), count))
}

/// Such as `512`, `1K` or `4M`.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let power = match &text[digits.len()..] {
        "" => 0,
        "K" => 1,
        "M" => 2,
        _ => 3,
    };
    Some(digits.parse::<f64>().ok()? * 1024f64.powi(power))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_median_of_a_histogram_is_the_middle_of_its_bucket() {
        let printed = lines(
            "Attaching 1 probe...\n\n@us: \n[1]      3 |      |\n[16, 32)  10 |@@    |\n\
             [64, 128)   30 |@@@@@@|\n[512, 1K)   2 |      |\n",
        );
        let found = Says::Histogram.read(&printed).unwrap();
        assert!((found - 90_510.0).abs() < 1.0, "{found}");
        let slow = lines("[1K, 2K)   7 |@@|");
        let found = Says::Histogram.read(&slow).unwrap();
        assert!((found - 1_448_155.0).abs() < 1.0, "{found}");
        assert_eq!(Says::Histogram.read(&lines("@us: \n")), None);
    }

    #[test]
    fn the_round_trip_time_of_ss_is_not_its_minimum_nor_that_of_the_receiver() {
        let printed = lines(
            "ESTAB 0 5 10.0.0.1:6379 10.0.0.2:5000\n\
             \t cubic rto:204 rtt:0.065/0.021 ato:40 rcv_rtt:1000 minrtt:0.01\n\
             ESTAB 0 5 10.0.0.1:6379 10.0.0.2:5001\n\t cubic rtt:0.055/0.021 minrtt:0.02\n",
        );
        let found = Says::Ss.read(&printed).unwrap();
        assert!((found - 60_000.0).abs() < 1e-6, "{found}");
        assert_eq!(Says::Nothing.read(&printed), None);
    }
}
