//! `perf record` at the same time: an independent sampler.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use batchwise_core::profile::report::Line;
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::process::Process;

use super::END;
use crate::Context;

/// perf takes so long to begin, and samples for so much longer than ours.
pub const BEFORE: Duration = Duration::from_secs(2);
const AFTER: Duration = Duration::from_secs(3);
/// Functions that are compared.
const HOTTEST: usize = 20;

/// A recording that goes on.
pub struct Recording {
    perf: Process,
    file: PathBuf,
}

/// Records the whole machine before, for this time, and after. The wall clock tells the samples of our interval.
pub fn record(context: &Context, host: &Host, time: Duration) -> Result<Recording> {
    let file = context.output.dir().join("perf.data");
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-a", "-e", "cpu-clock", "-F", "997"]);
    command.args(["-k", "CLOCK_REALTIME", "-o"]).arg(&file);
    let time = (BEFORE + time + AFTER).as_secs_f64();
    command.args(["--", "sleep", &time.to_string()]);
    let perf = host.spawn("perf", command, Role::Observer);
    let perf = perf.context("perf is needed for this part: apt-get install linux-perf")?;
    Ok(Recording { perf, file })
}

/// Name, our share and that of perf in the same interval, of our hottest functions. perf's shares are of all
/// samples, as ours but for those of idle CPUs.
pub fn compare(
    line: &Line,
    mut recording: Recording,
    context: &Context,
) -> Result<Vec<(String, f64, f64)>> {
    recording.perf.wait(&context.stop, END)?;
    let mut command = Command::new("perf");
    let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    let interval = [line.ts_ns - line.interval_ns, line.ts_ns].map(seconds);
    command.args([
        "report",
        "--stdio",
        "-q",
        "-n",
        "--no-children",
        "-F",
        "sample,symbol",
        "--time",
        &interval.join(","),
        "-i",
    ]);
    let said = command
        .arg(&recording.file)
        .output()
        .context("starting perf report")?;
    ensure!(
        said.status.success(),
        "perf report failed: {}",
        String::from_utf8_lossy(&said.stderr)
    );
    let text = String::from_utf8_lossy(&said.stdout);
    let mut counts: HashMap<&str, f64> = HashMap::new();
    for line in text.lines() {
        // 123  [k] tcp_ack
        let mut fields = line.split_whitespace();
        let (Some(samples), Some(_), Some(name)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        if let Ok(samples) = samples.parse::<f64>() {
            *counts.entry(name).or_default() += samples;
        }
    }
    let is_idle = |name: &str| name.contains("safe_halt") || name.contains("default_idle");
    let busy = counts.iter().filter(|(name, _)| !is_idle(name));
    let all: f64 = busy.map(|(_, samples)| samples).sum();
    ensure!(all > 0.0, "perf report told of no samples");
    std::fs::remove_file(&recording.file)?;
    let share = |name: &str| counts.get(name).map_or(0.0, |samples| samples / all);
    let hottest = line.functions.iter().take(HOTTEST);
    Ok(hottest
        .map(|f| (f.name.clone(), f.share, share(&f.name)))
        .collect())
}
