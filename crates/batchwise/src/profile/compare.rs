//! `--compare nagle`: what Nagle's algorithm saves a service, component by component. Both settings take turns
//! on the live service; `batchwise tune --hold` holds them, and its guard gives every socket back.

use std::env;
use std::io::{self, BufRead as _, BufReader, IsTerminal as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use batchwise_bpf::traffic::Counter;
use batchwise_core::profile::Component;
use batchwise_core::profile::report::{Line, Traffic};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;

use super::ProfileArgs;
use super::diff::{Change, FEWEST, busy, changes};
use super::sampling::Sampling;
use crate::frame::human::rate;
use crate::frame::rows::Form;
use crate::frame::signals::stop_flag;
use crate::frame::stdout;

/// What to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// Nagle's algorithm on and off.
    Nagle,
}

/// `tune` holds a service that carries anything by then.
const HELD: Duration = Duration::from_secs(10);
/// What was under way has left by then.
const SETTLE: Duration = Duration::from_millis(200);
/// A turn; its traffic is counted all the time, in both settings alike. What follows is told from whole turns: what one
/// begins with stays for as long as it lasts.
const TURN: Duration = Duration::from_secs(2);
/// Six to twelve turns of each: on busy CPUs `tune` needs seconds to start.
pub const USUAL: Duration = Duration::from_secs(60);

/// `tune --hold`, until dropped.
struct Hold(Child);

impl Hold {
    /// Waits until the setting is in force; `None`: the service is silent.
    fn start(
        ports: &[u16],
        setting: &str,
        again: bool,
        stop: &AtomicBool,
    ) -> anyhow::Result<Option<Self>> {
        let mut command = Command::new(env::current_exe().context("finding this program")?);
        command.args(["tune", "--hold", setting, "--format", "jsonl"]);
        for port in ports {
            command.args(["--port", &port.to_string()]);
        }
        if again && env::var_os("RUST_LOG").is_none() {
            // what it warns of has been said
            command.env("RUST_LOG", "error");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let die_with_us = || set_pdeathsig(Signal::SIGTERM).map_err(io::Error::from);
        // SAFETY: it is one system call, which a child may make between fork and exec.
        unsafe { command.pre_exec(die_with_us) };
        let mut child = command.spawn().context("starting batchwise tune")?;
        let said = child.stdout.take();
        let hold = Self(child);
        let (told, heard) = mpsc::channel();
        // ends with `tune`, whose standard output it reads to the end
        thread::spawn(move || {
            let lines = said.map(|said| BufReader::new(said).lines());
            for line in lines.into_iter().flatten().map_while(Result::ok) {
                // in the end nobody listens
                let _ = told.send(line);
            }
        });
        let until = Instant::now() + HELD;
        while !stop.load(Ordering::Relaxed) {
            // it tells of a service when it has switched it
            match heard.recv_timeout(Duration::from_millis(50)) {
                Ok(_) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("`batchwise tune --hold {setting}` ended")
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > until => {
                    return Ok(None);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Ok(Some(hold))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // it may have ended; in the end there is nobody to tell
        let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// What a turn cost, a byte that applications read.
struct Spent {
    line: Line,
    traffic: Traffic,
}

impl Spent {
    /// ns of CPU time a KB; of all components, or of one.
    fn ns_per_kb(&self, component: Option<Component>) -> f64 {
        busy(&self.line, component) * 1e12 / self.traffic.rate(moved(&self.traffic))
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
    form: Form,
    mut sampling: Sampling,
    counter: Option<Counter>,
) -> anyhow::Result<ExitCode> {
    let stop = stop_flag()?;
    let mut counter = counter.context("packets must be counted for a comparison")?;
    let begin = Instant::now();
    let mut spent: [Vec<Spent>; 2] = Default::default();
    let mut again = false;
    let duration = args.duration().unwrap_or_default();
    'turns: while begin.elapsed() < duration {
        for (setting, spent) in ["off", "on"].into_iter().zip(&mut spent) {
            if io::stderr().is_terminal() {
                let (passed, all) = (begin.elapsed().as_secs(), duration.as_secs());
                eprint!("\r{passed} of {all} s: Nagle {setting} ");
            }
            let Some(mut hold) = Hold::start(&args.port, setting, again, &stop)? else {
                tracing::warn!(
                    "no connection at the port carried anything for {HELD:?}: what follows is from before that"
                );
                break 'turns;
            };
            again = true;
            sampling.go_on(SETTLE, &stop)?;
            sampling.end_interval();
            counter.start()?;
            let since = Instant::now();
            sampling.go_on(TURN, &stop)?;
            let (tally, lost) = sampling.end_interval();
            let line = args.line(&tally, since.elapsed(), lost, &sampling);
            if stop.load(Ordering::Relaxed) {
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
    if io::stderr().is_terminal() {
        eprintln!();
    }
    let comparison = Comparison::of(&spent)?;
    let text = match form {
        Form::Jsonl => serde_json::to_string(&comparison)? + "\n",
        Form::Live | Form::Text => comparison.text(),
    };
    stdout::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// What Nagle's algorithm changes. The field names are a contract.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Comparison {
    /// Always `profile-comparison`.
    kind: &'static str,
    /// ns of CPU time a KB that applications read, of all components and of each: with TCP_NODELAY (before) and
    /// with Nagle's algorithm (after).
    changes: Vec<Change>,
    /// Packets a KB with TCP_NODELAY.
    packets_before: f64,
    /// Packets a KB with Nagle's algorithm.
    packets_after: f64,
    /// ns that a packet less saves: the paper's β. null: no fewer packets, or nothing saved beyond noise.
    packet_ns: Option<f64>,
    /// ns a KB that does not depend on packets: the paper's α. null: as `packet_ns`.
    rest_ns: Option<f64>,
}

/// A smaller share of packets less says nothing about what a packet costs.
const FEWER: f64 = 0.05;

impl Comparison {
    fn of([off, on]: &[Vec<Spent>; 2]) -> anyhow::Result<Self> {
        let (n, m) = (off.len(), on.len());
        if n < FEWEST || m < FEWEST {
            bail!(
                "the service moved bytes in {n} turns with TCP_NODELAY and in {m} with Nagle's algorithm, and noise cannot \
                 be told from fewer than {FEWEST}: profile under load, and for {} s or longer",
                USUAL.as_secs()
            );
        }
        let changes = changes(off, on, Spent::ns_per_kb);
        let [packets_before, packets_after] = [off, on].map(|spent| {
            let packets = spent.iter().map(Spent::packets_per_kb);
            packets.sum::<f64>() / spent.len() as f64
        });
        let fewer = packets_before - packets_after;
        let whole = changes
            .first()
            .filter(|c| c.component.is_none() && c.high < 0.0 && fewer > FEWER * packets_before);
        let packet_ns = whole.map(|whole| -whole.change / fewer);
        Ok(Self {
            kind: "profile-comparison",
            rest_ns: whole
                .zip(packet_ns)
                .map(|(whole, ns)| whole.before - ns * packets_before),
            changes,
            packets_before,
            packets_after,
            packet_ns,
        })
    }

    fn text(&self) -> String {
        let mut text = "ns of CPU time a KB that applications read; 95 % intervals\n\n".to_owned();
        text += "component       TCP_NODELAY     Nagle   what Nagle changes\n";
        for change in &self.changes {
            let name = change.component.map_or("all", Component::label);
            text += &format!(
                "{name:<14} {:>12.1} {:>9.1} {:>+9.1} ({:+.1} to {:+.1}){}\n",
                change.before,
                change.after,
                change.change,
                change.low,
                change.high,
                change.noise()
            );
        }
        let (before, after) = (self.packets_before, self.packets_after);
        text += &format!(
            "\npackets a KB: {before:.2} with TCP_NODELAY, {after:.2} with Nagle's algorithm\n"
        );
        if let (Some(packet), Some(rest)) = (self.packet_ns, self.rest_ns) {
            text += &format!(
                "a packet less saves {packet:.0} ns (the paper's β); what does not depend on packets is {} ns a KB (α)\n",
                rate(rest)
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_turns_are_counted_and_told() {
        let error = Comparison::of(&[Vec::new(), Vec::new()]).expect_err("nothing was measured");
        let error = error.to_string();
        assert!(error.contains("in 0 turns with TCP_NODELAY"), "{error}");
        assert!(error.contains("fewer than 5"), "{error}");
        // with what holding and settling takes
        assert!(USUAL >= 2 * 2 * TURN * FEWEST as u32);
    }
}
