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

/// Samples a second of each CPU. Not the same for all: their timers would keep their distance, so that one CPU is
/// always seen at the same time after the other was held up.
const RATES: [u32; 2] = [997, 983];

/// A recording of a CPU that goes on.
struct Cpu {
    perf: Process,
    file: PathBuf,
    hz: u32,
}

/// Recordings of both CPUs.
pub struct Recording(Vec<Cpu>);

/// Records before, for this time, and after. The wall clock tells the samples of our interval.
pub fn record(context: &Context, host: &Host, time: Duration) -> Result<Recording> {
    let time = (BEFORE + time + AFTER).as_secs_f64().to_string();
    let record = |(cpu, hz): (usize, u32)| {
        let file = context.output.dir().join(format!("perf-{cpu}.data"));
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-e", "cpu-clock", "-k", "CLOCK_REALTIME"]);
        command.args(["-C", &cpu.to_string(), "-F", &hz.to_string(), "-o"]);
        command.arg(&file).args(["--", "sleep", &time]);
        let perf = host.spawn("perf", command, Role::Observer);
        let perf = perf.context("perf is needed for this part: apt-get install linux-perf")?;
        Ok(Cpu { perf, file, hz })
    };
    let cpus = RATES.into_iter().enumerate().map(record);
    Ok(Recording(cpus.collect::<Result<_>>()?))
}

/// Name, our share and that of perf in the same interval, of our hottest functions. Shares are of all samples
/// in which a CPU did something.
pub fn compare(
    line: &Line,
    recording: Recording,
    context: &Context,
) -> Result<Vec<(String, f64, f64)>> {
    let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    let interval = [line.ts_ns - line.interval_ns, line.ts_ns].map(seconds);
    let mut times: HashMap<String, f64> = HashMap::new();
    for mut cpu in recording.0 {
        cpu.perf.wait(&context.stop, END)?;
        let mut command = Command::new("perf");
        command.args(["report", "--stdio", "-q", "-n", "--no-children"]);
        command.args(["-F", "sample,comm,symbol", "--time", &interval.join(",")]);
        let said = command.arg("-i").arg(&cpu.file).output();
        let said = said.context("starting perf report")?;
        let error = String::from_utf8_lossy(&said.stderr);
        ensure!(said.status.success(), "perf report failed: {error}");
        for line in String::from_utf8_lossy(&said.stdout).lines() {
            if let Some((name, samples)) = parse(line) {
                *times.entry(name).or_default() += samples / f64::from(cpu.hz);
            }
        }
        std::fs::remove_file(&cpu.file)?;
    }
    let all: f64 = times.values().sum();
    ensure!(all > 0.0, "perf report told of no samples");
    let share = |name: &str| times.get(name).map_or(0.0, |time| time / all);
    let hottest = line.functions.iter().take(HOTTEST);
    Ok(hottest
        .map(|f| (f.name.clone(), f.share, share(&f.name)))
        .collect())
}

/// The idle task's functions, also at its end: to us it is idle.
const IDLE: &[&str] = &[
    "pv_native_safe_halt",
    "default_idle",
    "finish_task_switch.isra.0",
];

/// A line of the report: 123  comm  [k] tcp_ack
fn parse(line: &str) -> Option<(String, f64)> {
    let (before, name) = line.split_once("] ")?;
    let (before, _) = before.rsplit_once('[')?;
    let (samples, comm) = before.trim().split_once(char::is_whitespace)?;
    let name = name.trim();
    let is_idle = comm.trim() == "swapper" && IDLE.contains(&name);
    (!is_idle).then(|| Some((name.to_owned(), samples.parse().ok()?)))?
}
