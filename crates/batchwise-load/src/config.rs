//! What a run of `load redis` is asked to do, as its command line says it, and what is refused.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{ArgAction, Parser};

use crate::random_seed;
use crate::rate::{Arrivals, Phase, Rate};
use crate::units::{on_off, parse_addr, parse_duration, parse_phase, parse_rate};

/// The longest measurement.
const LONGEST: Duration = Duration::from_secs(7 * 86400);

/// A load of SETs and GETs.
#[derive(Clone, Debug, Parser)]
pub struct Config {
    /// The server's address, such as 127.0.0.1:6379
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_addr)]
    pub addr: SocketAddr,
    /// Requests a second: 2500, 100k, or a climb over the duration, 10k..300k
    #[arg(long, value_parser = parse_rate, required_unless_present_any = ["closed", "schedule"])]
    pub rate: Option<Rate>,
    /// Instead of --rate, --duration and --value-size: phases one after another, without
    /// reconnecting, separated by commas. Each is DURATION:RATE@VALUE_SIZE, with /GET_RATIO at its
    /// end if it differs from --get-ratio: 5s:350k@64,5s:120k@4096,10s:100k..300k@64/0.05
    #[arg(long, value_name = "PHASES", value_delimiter = ',', value_parser = parse_phase,
          conflicts_with_all = ["rate", "duration", "value_size", "closed"])]
    pub schedule: Vec<Phase>,
    /// Length of the measurement, after the warm-up
    #[arg(long, default_value = "5s", value_parser = parse_duration)]
    pub duration: Duration,
    /// Load before the measurement, at the initial rate
    #[arg(long, default_value = "500ms", value_parser = parse_duration)]
    pub warmup: Duration,
    /// Bytes in a value
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    pub value_size: usize,
    /// Share of GETs, 0 to 1; the rest are SETs
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    pub get_ratio: f64,
    /// TCP connections, used round robin
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub connections: usize,
    /// TCP_NODELAY on this end's sockets; off lets Nagle's algorithm batch requests
    #[arg(long, default_value = "on", value_parser = on_off(), action = ArgAction::Set)]
    pub nodelay: bool,
    /// How requests are spaced
    #[arg(long, value_enum, default_value = "poisson")]
    pub arrivals: Arrivals,
    /// Different keys; all are set before the load
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub keys: u32,
    /// Repeats the schedule and the mix of another run; random if left out
    #[arg(long, default_value_t = random_seed(), hide_default_value = true)]
    pub seed: u64,
    /// Work of the client on each response (the CPU spins), the paper's c; the response counts
    /// as received at the end of it
    #[arg(long, default_value = "0ns", value_name = "DURATION", value_parser = parse_duration)]
    pub busy_per_response: Duration,
    /// Sleep until a request is due or a response is there, as most clients do; without it the
    /// generator keeps its CPU
    #[arg(long, conflicts_with = "closed")]
    pub sleeping: bool,
    /// Run the generator on this CPU; it needs one of its own
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
    /// Closed loop: a response triggers the next request
    #[arg(long, conflicts_with_all = ["rate", "arrivals"])]
    pub closed: bool,
    /// Requests in flight on each connection of a closed loop
    #[arg(long, default_value_t = 1, value_name = "N", requires = "closed")]
    pub pipeline: usize,
    /// Also report every so often in between
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub progress: Option<Duration>,
    /// Write the latency histogram: percentiles if the name ends in .hgrm, else an interval log
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,
}

impl Config {
    /// The phases of the run, of which there is at least one; a closed loop's has a rate of 0.
    pub(crate) fn phases(&self) -> Vec<Phase> {
        if !self.schedule.is_empty() {
            return self.schedule.clone();
        }
        vec![Phase {
            duration: self.duration,
            rate: self.rate.unwrap_or(Rate::constant(0.0)),
            value_size: self.value_size,
            get_ratio: None,
        }]
    }

    pub(crate) fn check(&self) -> Result<()> {
        ensure!(
            (1..=1 << 16).contains(&self.pipeline),
            "the pipeline must be 1 to 65536 requests deep"
        );
        ensure!(
            self.schedule.len() <= 1000,
            "a schedule has at most 1000 phases"
        );
        let phases = self.phases();
        for phase in &phases {
            let rates = [phase.rate.from, phase.rate.to];
            ensure!(
                self.closed || rates.iter().all(|&r| r > 0.0 && r <= 50e6),
                "the rate must be above 0 and at most 50m requests/s"
            );
            ensure!(
                (Duration::from_millis(1)..=LONGEST).contains(&phase.duration),
                "the duration must be 1ms to 7 days"
            );
            ensure!(
                phase.value_size <= 512 << 20,
                "a Redis value has at most 512 MiB"
            );
            ensure!(
                (0.0..=1.0).contains(&phase.get_ratio.unwrap_or(self.get_ratio)),
                "the GET ratio must be 0 to 1"
            );
        }
        ensure!(
            phases.iter().map(|p| p.duration).sum::<Duration>() <= LONGEST,
            "a schedule lasts at most 7 days"
        );
        ensure!(
            self.warmup <= Duration::from_secs(86400),
            "the warm-up must be at most a day"
        );
        ensure!(
            (1..=60_000).contains(&self.connections),
            "the number of connections must be 1 to 60000"
        );
        ensure!(
            (1..=10_000_000).contains(&self.keys),
            "the number of keys must be 1 to 10000000"
        );
        ensure!(
            self.busy_per_response <= Duration::from_secs(1),
            "the busy time per response must be at most 1s"
        );
        ensure!(
            self.progress.is_none_or(|p| p >= Duration::from_millis(1)),
            "progress intervals must be at least 1ms"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        let check = |options: &str| {
            let line = format!("redis --addr 127.0.0.1:1 {options}");
            Config::parse_from(line.split(' ')).check()
        };
        for good in ["--rate 10k", "--closed", "--schedule 1s:1@64"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in [
            "--rate 1 --connections 0",
            "--rate 1 --keys 0",
            "--rate 1 --get-ratio NaN",
            "--rate 1 --get-ratio 1.1",
            "--rate 1 --duration 0s",
            "--rate 100m",
            "--rate 1 --progress 0s",
            "--closed --pipeline 0",
            "--schedule 1s:1@64/2",
            "--schedule 8d:1@64",
            "--schedule 4d:1@64,4d:1@64",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_closed_loop_has_neither_a_rate_nor_a_schedule() {
        for more in ["--rate 1", "--schedule 1s:1@64", "--arrivals constant"] {
            let line = format!("redis --addr 127.0.0.1:1 --closed {more}");
            assert!(Config::try_parse_from(line.split(' ')).is_err(), "{more}");
        }
    }
}
