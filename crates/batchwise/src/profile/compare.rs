//! `--compare nagle`: what Nagle's algorithm saves a service, component by component. Both settings take turns
//! on the live service; `batchwise tune --hold` holds them, and its guard gives every socket back.

use std::env;
use std::io::{self, IsTerminal as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use batchwise_bpf::traffic::Counter;
use batchwise_core::profile::Component;
use batchwise_core::profile::report::{Line, Traffic};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::ProfileArgs;
use super::diff::{Change, compare};
use super::sampling::Sampling;
use crate::frame::human::rate;
use crate::frame::signals::stop_flag;
use crate::frame::ticks::sleep;

/// What to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// Nagle's algorithm on and off.
    Nagle,
}

/// From the start of `tune` until the setting is in force and what was under way has left.
const SETTLE: Duration = Duration::from_millis(1_500);
/// An interval; its traffic is counted all the time, in both settings alike.
const INTERVAL: Duration = Duration::from_millis(500);
/// Intervals of a turn.
const TURN: u32 = 4;

/// `tune --hold`, until dropped.
struct Hold(Child);

impl Hold {
    fn start(ports: &[u16], setting: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(env::current_exe().context("finding this program")?);
        command.args(["tune", "--hold", setting, "--format", "jsonl"]);
        for port in ports {
            command.args(["--port", &port.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let die_with_us = || set_pdeathsig(Signal::SIGTERM).map_err(io::Error::from);
        // SAFETY: it is one system call, which a child may make between fork and exec.
        unsafe { command.pre_exec(die_with_us) };
        Ok(Self(command.spawn().context("starting batchwise tune")?))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // it may have ended; in the end there is nobody to tell
        let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// What an interval cost, a byte that applications read.
struct Spent {
    line: Line,
    traffic: Traffic,
}

impl Spent {
    /// ns of CPU time a KB; of all components, or of one.
    fn ns_per_kb(&self, component: Option<Component>) -> f64 {
        let share = component.map_or(1.0, |component| self.line.share(component));
        share * self.line.cpus_busy * 1e12 / self.traffic.rate(moved(&self.traffic))
    }

    fn packets_per_kb(&self) -> f64 {
        self.traffic.queued_packets as f64 * 1e3 / moved(&self.traffic) as f64
    }
}

/// Bytes that applications read; where the kernel does not tell, those that devices brought.
fn moved(traffic: &Traffic) -> u64 {
    match traffic.read_bytes {
        0 => traffic.received_bytes,
        bytes => bytes,
    }
}

/// Compares for the duration that the arguments say.
pub fn run(
    args: &ProfileArgs,
    mut sampling: Sampling,
    counter: Option<Counter>,
) -> anyhow::Result<ExitCode> {
    let stop = stop_flag()?;
    let mut counter = counter.context("packets must be counted for a comparison")?;
    let begin = Instant::now();
    let mut spent: [Vec<Spent>; 2] = Default::default();
    let duration = args.duration().unwrap_or_default();
    'turns: while begin.elapsed() < duration {
        for (setting, spent) in ["off", "on"].into_iter().zip(&mut spent) {
            if io::stderr().is_terminal() {
                let (passed, all) = (begin.elapsed().as_secs(), duration.as_secs());
                eprint!("\r{passed} of {all} s: Nagle {setting} ");
            }
            let mut hold = Hold::start(&args.port, setting)?;
            sleep(SETTLE)?;
            sampling.take()?;
            sampling.end_interval();
            for _ in 0..TURN {
                counter.start()?;
                let since = Instant::now();
                sleep(INTERVAL)?;
                sampling.take()?;
                let (tally, lost) = sampling.end_interval();
                let line = args.line(&tally, since.elapsed(), lost, &sampling);
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break 'turns;
                }
                if let Some(status) = hold.0.try_wait()? {
                    bail!("`batchwise tune --hold {setting}` ended: {status}");
                }
                if let Some(traffic) = counter.stop()?.filter(|t| moved(t) > 0) {
                    spent.push(Spent { line, traffic });
                }
            }
        }
    }
    if io::stderr().is_terminal() {
        eprintln!();
    }
    show(&spent)
}

fn show([off, on]: &[Vec<Spent>; 2]) -> anyhow::Result<ExitCode> {
    if off.len() < 5 || on.len() < 5 {
        bail!("the service moved no bytes for long enough: profile for longer, under load");
    }
    let change = |component: Option<Component>| {
        let of = |spent: &[Spent]| {
            spent
                .iter()
                .map(|s| s.ns_per_kb(component))
                .collect::<Vec<_>>()
        };
        compare(component, &of(off), &of(on))
    };
    println!("ns of CPU time a KB that applications read; 95 % intervals\n");
    println!("component       TCP_NODELAY     Nagle   what Nagle changes");
    let all = std::iter::once(None)
        .chain(Component::ALL.map(Some))
        .map(change);
    let all: Vec<Change> = all.filter(|c| c.before > 0.0 || c.after > 0.0).collect();
    for change in &all {
        let name = change.component.map_or("all", Component::label);
        let noise = if change.is_more_than_noise() {
            ""
        } else {
            "   within noise"
        };
        println!(
            "{name:<14} {:>12.1} {:>9.1} {:>+9.1} ({:+.1} to {:+.1}){noise}",
            change.before, change.after, change.change, change.low, change.high
        );
    }
    let mean = |spent: &[Spent], of: fn(&Spent) -> f64| {
        spent.iter().map(of).sum::<f64>() / spent.len() as f64
    };
    let [before, after] = [off, on].map(|spent| mean(spent, Spent::packets_per_kb));
    println!("\npackets a KB: {before:.2} and {after:.2}");
    let fewer = before - after;
    if let Some(whole) = all
        .first()
        .filter(|c| c.is_more_than_noise() && fewer > 0.05 * before)
    {
        let beta = -whole.change / fewer;
        let alpha = whole.before - beta * before;
        println!(
            "a packet less saves {beta:.0} ns (the paper's β); what does not depend on packets is {} ns a KB (α)",
            rate(alpha)
        );
    }
    Ok(ExitCode::SUCCESS)
}
