//! What clients say of themselves: redis-benchmark, wrk, and `batchwise load`.

use std::io::ErrorKind;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

/// What a client measured, and when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// ns since the Unix epoch.
    pub from_ts_ns: u64,
    pub to_ts_ns: u64,
    /// Requests a second.
    pub rps: f64,
    /// Latency, ns; null: it does not say.
    pub mean_ns: Option<f64>,
    pub p50_ns: Option<f64>,
    pub p99_ns: Option<f64>,
    /// Why it does not trust itself.
    pub why_invalid: Vec<String>,
}

impl Truth {
    /// The same together with other requests, for the time that both were measured; `None`: there was none.
    /// Percentiles of the two are not known.
    pub fn with(&self, other: &Self) -> Option<Self> {
        let from_ts_ns = self.from_ts_ns.max(other.from_ts_ns);
        let to_ts_ns = self.to_ts_ns.min(other.to_ts_ns);
        let rps = self.rps + other.rps;
        let mean = |(a, b): (f64, f64)| (a * self.rps + b * other.rps) / rps;
        (from_ts_ns < to_ts_ns).then(|| Self {
            from_ts_ns,
            to_ts_ns,
            rps,
            mean_ns: self.mean_ns.zip(other.mean_ns).map(mean),
            p50_ns: None,
            p99_ns: None,
            why_invalid: [&self.why_invalid[..], &other.why_invalid].concat(),
        })
    }
}

/// The clients that Debian has, and in which package.
const PROGRAMS: [(&str, &str); 2] = [("redis-benchmark", "redis-tools"), ("wrk", "wrk")];

/// Fails when one is missing: better now than in the middle of a run.
pub fn installed() -> Result<()> {
    for (program, package) in PROGRAMS {
        match Command::new(program).arg("--version").output() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("{program} is needed (Debian: apt install {package})")
            }
            other => other.with_context(|| format!("starting {program}"))?,
        };
    }
    Ok(())
}

/// A report of `batchwise load`, as far as all kinds have it.
#[derive(Deserialize)]
struct Said {
    achieved_rps: f64,
    latency_ns: Latency,
    /// Where `latency_ns` is from when a request was due.
    latency_from_send_ns: Option<Latency>,
    measured_from_ts_ns: u64,
    measured_to_ts_ns: u64,
    #[serde(default)]
    why_invalid: Vec<String>,
}

#[derive(Deserialize)]
struct Latency {
    mean: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
}

/// Of the report that `batchwise load` prints.
pub fn of_generator(report: &str) -> Result<Truth> {
    let said: Said = serde_json::from_str(report)
        .with_context(|| format!("what the load printed is not its report: {report}"))?;
    let latency = said.latency_from_send_ns.unwrap_or(said.latency_ns);
    Ok(Truth {
        from_ts_ns: said.measured_from_ts_ns,
        to_ts_ns: said.measured_to_ts_ns,
        rps: said.achieved_rps,
        mean_ns: latency.mean,
        p50_ns: latency.p50,
        p99_ns: latency.p99,
        why_invalid: said.why_invalid,
    })
}

/// Of the output of `redis-benchmark --csv`, which names its columns.
pub fn of_benchmark(csv: &str) -> Result<Truth> {
    let cells = |line: &str| -> Vec<String> {
        let cells = line.split(',').map(|cell| cell.trim().trim_matches('"'));
        cells.map(str::to_owned).collect()
    };
    let mut lines = csv.lines().map(cells);
    let names = lines.find(|cells| cells.first().is_some_and(|cell| cell == "test"));
    let row = lines.next();
    let (names, row) = names
        .zip(row)
        .with_context(|| format!("redis-benchmark gave no result: {csv}"))?;
    let value = |name: &str| -> Option<f64> {
        let at = names.iter().position(|column| column == name)?;
        row.get(at)?.parse().ok()
    };
    let ns = |name| value(name).map(|ms| ms * 1e6);
    Ok(Truth {
        rps: value("rps").context("redis-benchmark told no rate")?,
        mean_ns: ns("avg_latency_ms"),
        p50_ns: ns("p50_latency_ms"),
        p99_ns: ns("p99_latency_ms"),
        ..Truth::default()
    })
}

/// Of the output of `wrk --latency` with so many connections, each with one request in flight. It adds
/// latencies that it never measured, for requests that it could not send meanwhile (`stats_correct` in
/// wrk.c): its mean and its p99 are of no use here. The mean is Little's law's.
pub fn of_wrk(text: &str, connections: u32) -> Result<Truth> {
    let after = |name: &str| {
        let mut words = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix(name));
        words.next()?.split_whitespace().next()
    };
    let rps: Option<f64> = after("Requests/sec:").and_then(|rps| rps.parse().ok());
    let rps = rps.with_context(|| format!("wrk told no rate: {text}"))?;
    let errors = text.lines().map(str::trim);
    let errors =
        errors.filter(|line| line.starts_with("Socket errors") || line.starts_with("Non-2xx"));
    Ok(Truth {
        rps,
        mean_ns: Some(f64::from(connections) / rps * 1e9),
        p50_ns: after("50%").and_then(nanos),
        why_invalid: errors.map(str::to_owned).collect(),
        ..Truth::default()
    })
}

/// A time as wrk writes it: `635.91us`, `1.02ms`, `2.00s`.
fn nanos(text: &str) -> Option<f64> {
    let units = [("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (number, unit) = units
        .into_iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)))?;
    Some(number.parse::<f64>().ok()? * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_benchmark_says_its_rate_and_latencies_in_columns_with_names() {
        let recorded = concat!(
            "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",",
            "\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n",
            "\"SET\",\"104712.04\",\"0.252\",\"0.016\",\"0.247\",\"0.311\",\"0.463\",\"3.007\"\n"
        );
        let truth = of_benchmark(recorded).unwrap();
        assert_eq!(truth.rps, 104_712.04);
        let latencies = [truth.mean_ns, truth.p50_ns, truth.p99_ns];
        assert_eq!(latencies, [Some(252e3), Some(247e3), Some(463e3)]);
        let refused = of_benchmark("Could not connect to Redis").unwrap_err();
        assert!(refused.to_string().contains("Could not connect"));
    }

    const WRK: &str = "Running 8s test @ http://10.77.0.1:8080/page.html
  1 threads and 20 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   635.91us    0.89ms  12.92ms   93.69%
    Req/Sec    56.20k     8.07k   62.00k    86.54%
  Latency Distribution
     50%  250.00us
     75%  491.00us
     90%  700.00us
     99%    5.80ms
  449600 requests in 8.00s, 374.23MB read
Requests/sec:  56198.53
Transfer/sec:     46.78MB
";

    #[test]
    fn wrk_says_its_rate_and_its_median_and_the_mean_follows_from_the_rate() {
        let truth = of_wrk(WRK, 20).unwrap();
        assert_eq!(truth.rps, 56_198.53);
        let latencies = [truth.mean_ns, truth.p50_ns, truth.p99_ns];
        assert_eq!(latencies, [Some(20.0 / 56_198.53 * 1e9), Some(250e3), None]);
        assert!(truth.why_invalid.is_empty());
        assert_eq!(nanos("2.00s"), Some(2e9));
        assert_eq!(nanos("nan"), None);
        assert!(of_wrk("unable to connect to 10.77.0.1:8080", 20).is_err());
    }

    #[test]
    fn requests_that_failed_make_what_wrk_says_doubtful() {
        let errors = "  Socket errors: connect 0, read 3, write 0, timeout 1\n  Non-2xx or 3xx responses: 7\n";
        assert_eq!(
            of_wrk(&(WRK.to_owned() + errors), 20)
                .unwrap()
                .why_invalid
                .len(),
            2
        );
    }

    #[test]
    fn an_open_loop_is_compared_from_the_send_as_its_own_lateness_is_no_latency() {
        let report = |from_send: &str| {
            format!(
                r#"{{"achieved_rps":5.0,"latency_ns":{{"mean":30,"p50":29,"p99":40}},{from_send}
                "measured_from_ts_ns":1,"measured_to_ts_ns":2}}"#
            )
        };
        let open = report(r#""latency_from_send_ns":{"mean":20,"p50":19,"p99":null},"#);
        let open = of_generator(&open).unwrap();
        assert_eq!((open.mean_ns, open.p99_ns), (Some(20.0), None));
        let closed = of_generator(&report("")).unwrap();
        assert_eq!((closed.mean_ns, closed.to_ts_ns), (Some(30.0), 2));
    }

    #[test]
    fn two_clients_are_one_while_both_are_measured() {
        let of = |from_ts_ns, to_ts_ns, rps, mean| Truth {
            from_ts_ns,
            to_ts_ns,
            rps,
            mean_ns: Some(mean),
            p99_ns: Some(mean),
            ..Truth::default()
        };
        let both = of(0, 10, 100.0, 50.0)
            .with(&of(5, 15, 300.0, 10.0))
            .unwrap();
        assert_eq!((both.from_ts_ns, both.to_ts_ns, both.rps), (5, 10, 400.0));
        assert_eq!((both.mean_ns, both.p99_ns), (Some(20.0), None));
        assert_eq!(of(0, 5, 1.0, 1.0).with(&of(6, 9, 1.0, 1.0)), None);
    }
}
