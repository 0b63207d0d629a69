//! Agents that are killed while they hold sockets.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use batchwise_bpf::features::Machine;
use batchwise_testbed::bpf_stats::{programs_left, programs_of};
use batchwise_testbed::host::Host;
use batchwise_testbed::process::children;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::load::{GivenBack, Load, MIXED, Socket, astray, given_back};
use super::outcome::{Drill, Outcome};
use super::scene::{Agent, LIMIT, Scene};
use crate::Context;

/// Every socket must be back within this time of the agent's death, …
pub const SECOND: Duration = Duration::from_secs(1);
/// … or of the next agent's start, where guard and agent die together; loading takes most of that.
const NEXT: Duration = Duration::from_secs(5);
const CONNECTIONS: usize = 64;

/// The times of several deaths.
#[derive(Default)]
struct Times {
    slowest: Duration,
    deaths: u32,
    /// After which all sockets were back in time.
    in_time: u32,
    sockets: usize,
}

impl Times {
    fn add(&mut self, outcome: &mut Outcome, back: GivenBack, sockets: usize) {
        self.deaths += 1;
        self.in_time += u32::from(back.after.is_some());
        self.sockets += sockets;
        outcome.not_given_back += back.astray as u64;
        self.slowest = self.slowest.max(back.after.unwrap_or_default());
    }
}

pub fn killed(context: &Context) -> Result<Outcome> {
    let mut scene = Scene::build(context, Drill::AgentKilled)?;
    let mut outcome = Outcome::default();
    let load = Load::start(scene.client(), scene.address(), CONNECTIONS, MIXED)?;
    let at_server = scene.of_redis(CONNECTIONS)?;
    let mut times = Times::default();
    for round in 0..if context.quick { 1 } else { 5 } {
        let ends = [
            (scene.client(), &load.sockets, "client", "on"),
            (scene.client(), &load.sockets, "client", "off"),
            (scene.server(), &at_server, "server", "on"),
        ];
        for (host, sockets, end, hold) in ends {
            let label = format!("{end}-{hold}-{round}");
            let mut agent = scene.tune(host, &label, &["--hold", hold])?;
            scene.until_held(sockets, hold == "off")?;
            load.goes_on(&context.stop)?;
            let guards = children(agent.pid());
            let mut programs = programs_of(agent.pid())?;
            for guard in &guards {
                programs.extend(programs_of(*guard)?);
            }
            let death = agent.signal(Signal::SIGKILL)?;
            let back = given_back(|| astray(sockets), death, SECOND);
            times.add(&mut outcome, back, sockets.len());
            agent.process.wait(&context.stop, LIMIT)?;
            let gone = || Ok(programs_left(&programs).is_empty().then_some(()));
            let gone = context.stop.wait_until(LIMIT, gone)?;
            outcome.expect(gone.is_some(), || {
                format!(
                    "{end}, hold {hold}: its programs stay: {:?}",
                    programs_left(&programs)
                )
            });
            let later = astray(sockets) as u64;
            outcome.expect(later == 0, || {
                format!("{end}, hold {hold}: {later} sockets went astray again")
            });
            load.goes_on(&context.stop)?;
        }
    }
    let (traffic, first) = load.finish();
    outcome.traffic = traffic;
    outcome.wrong.extend(first);
    scene.check()?;
    let ms = times.slowest.as_secs_f64() * 1e3;
    outcome.number("deaths", f64::from(times.deaths));
    outcome.number("sockets", times.sockets as f64);
    outcome.number("slowest_ms", ms);
    outcome.said = format!(
        "{} agents killed, {} held sockets asked by getsockopt: the last was back after {ms:.0} ms",
        times.deaths, times.sockets
    );
    Ok(outcome)
}

/// `batchwise` as the first process of a PID namespace with a /proc of its own, as in a container: its guard dies
/// with it. Where the kernel shows it no sockets of other PID namespaces (`doctor`), it is in the machine's, and
/// its guard is killed in the same moment.
struct First {
    agent: Agent,
    /// Seen from here.
    pid: Pid,
    alone: bool,
}

impl First {
    fn start(scene: &Scene<'_>, host: &Host, label: &str, command: &Command) -> Result<Self> {
        let alone = (Machine::look().storage_iterator)();
        let mut started = Command::new(if alone { "unshare" } else { "env" });
        if alone {
            started.args(["--pid", "--fork", "--kill-child=KILL", "--mount-proc"]);
        }
        started.arg(command.get_program()).args(command.get_args());
        let mut agent = scene.launch(host, label, started)?;
        agent.process.on_line(drop);
        if !alone {
            let pid = agent.pid();
            return Ok(Self { agent, pid, alone });
        }
        let look = || {
            agent.process.check_alive()?;
            Ok(children(agent.process.pid()).first().copied())
        };
        let pid = scene.context.stop.wait_until(LIMIT, look)?;
        let pid = pid.context("unshare started nothing")?;
        Ok(Self { agent, pid, alone })
    }

    fn signal(&mut self, scene: &Scene<'_>, signal: Signal) -> Result<Instant> {
        if signal == Signal::SIGKILL && !self.alone {
            // stopped first: it must not get to act
            let guards = children(self.pid);
            for guard in &guards {
                kill(*guard, Signal::SIGSTOP).context("stopping a guard")?;
            }
            for guard in guards {
                kill(guard, Signal::SIGKILL).context("killing a guard")?;
            }
        }
        kill(self.pid, signal).context("signalling an agent")?;
        let at = Instant::now();
        self.agent.process.wait(&scene.context.stop, LIMIT)?;
        Ok(at)
    }
}

pub fn killed_as_first(context: &Context) -> Result<Outcome> {
    let mut scene = Scene::build(context, Drill::AgentKilledAsFirst)?;
    let mut outcome = Outcome::default();
    let load = Load::start(scene.client(), scene.address(), CONNECTIONS, MIXED)?;
    let sockets = &load.sockets;
    let (mut by_guard, mut times) = (0, Times::default());
    for round in 0..if context.quick { 1 } else { 5 } {
        let hold = if round % 2 == 0 { "on" } else { "off" };
        let command = scene.tune_command(scene.client(), &["--hold", hold]);
        let label = |which: &str| format!("{which}-{round}");
        let mut first = First::start(&scene, scene.client(), &label("first"), &command)?;
        scene.until_held(sockets, hold == "off")?;
        load.goes_on(&context.stop)?;
        let death = first.signal(&scene, Signal::SIGKILL)?;
        if given_back(|| astray(sockets), death, SECOND).astray == 0 {
            by_guard += 1;
            continue;
        }
        load.goes_on(&context.stop)?;
        let started = Instant::now();
        let command = scene.tune_command(scene.client(), &["--dry-run"]);
        let mut next = First::start(&scene, scene.client(), &label("next"), &command)?;
        let back = given_back(|| astray(sockets), started, NEXT);
        times.add(&mut outcome, back, sockets.len());
        load.goes_on(&context.stop)?;
        next.signal(&scene, Signal::SIGTERM)?;
        if back.after.is_none() {
            let next = scene.tune(scene.client(), &label("outside"), &["--dry-run"])?;
            let outside = given_back(|| astray(sockets), Instant::now(), NEXT);
            next.finish(&scene)?;
            outcome.wrong.push(format!(
                "an agent in another PID namespace than the applications does not give {} sockets back; one in the \
                 machine's then leaves {}",
                back.astray, outside.astray
            ));
        }
        let later = astray(sockets);
        outcome.expect(later == 0, || {
            format!("{later} sockets were astray when the next agent had ended")
        });
    }
    let gone = watch_leaves_nothing(&scene)?;
    outcome.expect(gone, || {
        "programs of `watch` outlived its namespace".to_owned()
    });
    let (traffic, first) = load.finish();
    outcome.traffic = traffic;
    outcome.wrong.extend(first);
    scene.check()?;
    let ms = times.slowest.as_secs_f64() * 1e3;
    outcome.number("deaths", f64::from(by_guard + times.deaths));
    outcome.number("given_back_by_the_guard", f64::from(by_guard));
    outcome.number("given_back_by_the_next", f64::from(times.in_time));
    outcome.number("slowest_next_ms", ms);
    outcome.said = format!(
        "of {} agents killed together with their guards {by_guard} had their sockets given back at once, {} by \
         the next agent, the slowest {ms:.0} ms after its start",
        by_guard + times.deaths,
        times.in_time
    );
    Ok(outcome)
}

/// Whether the kernel frees the programs of a `watch` that is killed as the first process.
fn watch_leaves_nothing(scene: &Scene<'_>) -> Result<bool> {
    let mut command = Command::new(&scene.context.command);
    command.args([
        "watch", "--format", "jsonl", "--port", "6379", "--cost", "off",
    ]);
    command.arg("--cgroup").arg(scene.client().cgroup());
    let mut first = First::start(scene, scene.client(), "watch", &command)?;
    let pid = first.pid;
    let look = || Ok(Some(programs_of(pid)?).filter(|programs| !programs.is_empty()));
    let stop = &scene.context.stop;
    stop.wait_until(LIMIT, look)?
        .context("`watch` loads nothing")?;
    // until all are there
    stop.sleep(SECOND)?;
    let programs = programs_of(pid)?;
    first.signal(scene, Signal::SIGKILL)?;
    let gone = || Ok(programs_left(&programs).is_empty().then_some(()));
    Ok(stop.wait_until(LIMIT, gone)?.is_some())
}

/// What other drills ask of sockets in the end.
pub fn expect_given_back(outcome: &mut Outcome, sockets: &[Socket]) {
    outcome.not_given_back += astray(sockets) as u64;
}
