//! Where agents write to: a disk that is full, one that hangs, a reader that leaves, a terminal that goes away.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use batchwise_testbed::live_views;
use batchwise_testbed::redis::PORT;
use batchwise_testbed::stop::Stopped;
use batchwise_testbed::terminal::Hangup;
use batchwise_testbed::topology::LINK;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;

use super::death::SECOND;
use super::disks::{HangingDisk, SmallDisk};
use super::load::{Load, MIXED, astray, echo, given_back};
use super::outcome::{Drill, Outcome};
use super::scene::{Agent, LIMIT, Scene};
use crate::Context;

const CONNECTIONS: usize = 32;
/// An agent looks at all connections within this time.
const SEEN: Duration = Duration::from_millis(100);
const METRICS: &str = "127.0.0.1:9464";
/// What counts the lines that found no room.
const DROPPED: &str = "batchwise_log_lines_dropped_total";
/// CPU time of a live view that ends without its terminal, at most.
const LITTLE: Duration = Duration::from_millis(500);
/// Agents go on for so long without what they write to.
const WITHOUT: Duration = Duration::from_secs(3);

pub fn disk_full(context: &Context) -> Result<Outcome> {
    let mut scene = Scene::build(context, Drill::DiskFull)?;
    let disk = SmallDisk::mount()?;
    let mut outcome = Outcome::default();
    let load = Load::start(scene.client(), scene.address(), CONNECTIONS, MIXED)?;
    let log = disk.0.join("tune.jsonl");
    let args = ["--budget", "1", "--metrics", METRICS];
    let mut command = scene.tune_command(scene.client(), &args);
    command.arg("--log").arg(&log);
    let mut agent = scene.start(scene.client(), "tune", command)?;
    let stop = &context.stop;
    let lines = |more: usize| {
        let look = || Ok((lines(&log) >= more).then_some(()));
        Ok::<_, anyhow::Error>(stop.wait_until(LIMIT, look)?.is_some())
    };
    let begun = lines(1)?;
    outcome.expect(begun, || "nothing is logged".to_owned());
    disk.fill()?;
    let kept = other_services(&scene, 100..110)?;
    let counted = || {
        let dropped = dropped(&scene)?;
        Ok((dropped > 0.0).then_some(dropped))
    };
    let counted = stop.wait_until(LIMIT, counted)?;
    outcome.expect(counted.is_some(), || {
        "no dropped line is counted".to_owned()
    });
    load.goes_on(stop)?;
    outcome.expect_alive(agent.check());
    disk.free()?;
    let before = self::lines(&log);
    let others = other_services(&scene, 110..120)?;
    let resumed = lines(before + 1)?;
    outcome.expect(resumed, || "it does not resume".to_owned());
    let dropped = dropped(&scene)?;
    drop((kept, others));
    outcome.expect_alive(agent.check());
    let ended = agent.finish(&scene);
    outcome.expect(ended.is_ok(), || format!("{:#}", ended.unwrap_err()));
    let text = fs::read_to_string(&log)?;
    let torn = text
        .lines()
        .filter(|l| serde_json::from_str::<Value>(l).is_err())
        .count();
    outcome.expect(torn == 0, || {
        format!("{torn} lines of the log are not whole")
    });
    super::death::expect_given_back(&mut outcome, &load.sockets);
    let (traffic, first) = load.finish();
    outcome.traffic = traffic;
    outcome.wrong.extend(first);
    scene.check()?;
    outcome.number("lines", text.lines().count() as f64);
    outcome.number("dropped_lines", dropped);
    outcome.number("torn_lines", torn as f64);
    outcome.said = format!(
        "the log's disk was full: {dropped} lines dropped and counted, {} whole lines in the log, {torn} torn",
        text.lines().count() - torn
    );
    Ok(outcome)
}

/// Agents are told to end, and killed, while the thread that writes the log hangs in the kernel.
pub fn disk_hangs(context: &Context) -> Result<Outcome> {
    let mut scene = Scene::build(context, Drill::DiskHangs)?;
    let disk = HangingDisk::mount()?;
    let mut outcome = Outcome::default();
    let load = Load::start(scene.client(), scene.address(), CONNECTIONS, MIXED)?;
    let stop = &context.stop;
    let mut slowest = Duration::ZERO;
    let ends = [
        ("told", Signal::SIGTERM, 100..105),
        ("killed", Signal::SIGKILL, 105..110),
    ];
    for (end, signal, numbers) in ends {
        let log = disk.folder.join(format!("{end}.jsonl"));
        let mut command = scene.tune_command(scene.client(), &["--hold", "off"]);
        command.arg("--log").arg(&log);
        let mut agent = scene.start(scene.client(), end, command)?;
        scene.until_held(&load.sockets, true)?;
        let hanging = disk.hang()?;
        // of which there are lines to write
        let others = other_services(&scene, numbers)?;
        let hangs = || Ok(hangs_in_kernel(agent.pid())?.then_some(()));
        let hangs = stop.wait_until(LIMIT, hangs)?;
        outcome.expect(hangs.is_some(), || format!("{end}: the log does not hang"));
        let are_held = || others.iter().all(|s| s.nodelay().ok() == Some(true));
        let held = stop.wait_until(LIMIT, || Ok(are_held().then_some(())))?;
        outcome.expect(held.is_some(), || {
            format!("{end}: the agent does not go on: new connections are not held")
        });
        load.goes_on(stop)?;
        outcome.expect_alive(agent.check());
        let asked = agent.signal(signal)?;
        let back = given_back(|| astray(&load.sockets), asked, SECOND);
        outcome.not_given_back += back.astray as u64;
        slowest = slowest.max(back.after.unwrap_or_default());
        load.goes_on(stop)?;
        drop(hanging);
        agent.process.wait(stop, LIMIT)?;
        drop(others);
    }
    outcome.not_given_back += astray(&load.sockets) as u64;
    let (traffic, first) = load.finish();
    outcome.traffic = traffic;
    outcome.wrong.extend(first);
    scene.check()?;
    let ms = slowest.as_secs_f64() * 1e3;
    outcome.number("slowest_ms", ms);
    outcome.said = format!(
        "the log's disk hung: the agent held new connections all the same; told to end and killed, all {CONNECTIONS} \
         sockets were back after {ms:.0} ms at most"
    );
    Ok(outcome)
}

/// Whether one of its threads waits where no signal reaches it (state D).
fn hangs_in_kernel(pid: Pid) -> Result<bool> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(thread?.path().join("stat")).unwrap_or_default();
        // behind its name, which may have anything in it
        if stat
            .rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('D'))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Connections to Redis at further addresses of the server's: each is a service, of which a line is logged.
fn other_services(scene: &Scene<'_>, numbers: Range<u8>) -> Result<Vec<TcpStream>> {
    let server = scene.server().namespace();
    for number in numbers.clone() {
        server.ip(&format!(
            "addr add 10.77.0.{number}/24 dev {LINK} noprefixroute"
        ))?;
    }
    scene.client().inside(|| {
        let connect = |number| TcpStream::connect((Ipv4Addr::new(10, 77, 0, number), PORT));
        let streams: Result<Vec<_>, _> = numbers.map(connect).collect();
        let streams = streams?;
        for round in 0..10 {
            for stream in &streams {
                echo(stream, &round.to_string(), 1)?;
            }
            std::thread::sleep(SEEN);
        }
        Ok(streams)
    })
}

/// Whole lines of a log.
fn lines(log: &Path) -> usize {
    fs::read_to_string(log).map_or(0, |text| text.matches('\n').count())
}

fn dropped(scene: &Scene<'_>) -> Result<f64> {
    let text = scene.client().inside(|| {
        let mut stream = TcpStream::connect(METRICS)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: bw\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    })?;
    let value = text.lines().find_map(|line| line.strip_prefix(DROPPED));
    let value = value.and_then(|value| value.trim().parse().ok());
    value.with_context(|| format!("{DROPPED} is not among the metrics"))
}

pub fn reader_leaves(context: &Context) -> Result<Outcome> {
    let mut scene = Scene::build(context, Drill::ReaderLeaves)?;
    let mut outcome = Outcome::default();
    let load = Load::start(scene.client(), scene.address(), CONNECTIONS, MIXED)?;
    let socket = context.output.dir().join("window.sock");
    let socket = socket.to_string_lossy().into_owned();
    let commands = [
        ("tune", "tune --port 6379 --hold off".to_owned()),
        ("window", format!("window --socket {socket}")),
        ("mark", format!("burst mark --interface {LINK}")),
        ("decap", format!("decap --iface {LINK}")),
        (
            "profile",
            "profile --hz 97 --metrics 127.0.0.1:9464".to_owned(),
        ),
    ];
    let mut agents = Vec::new();
    for (name, words) in &commands {
        let mut command = Command::new(&context.command);
        command.args(words.split(' ')).args(["--format", "jsonl"]);
        if *name == "tune" {
            command.arg("--cgroup").arg(scene.client().cgroup());
        }
        agents.push((*name, scene.launch(scene.client(), name, command)?));
    }
    scene.until_held(&load.sockets, true)?;
    context.stop.sleep(WITHOUT)?;
    for (_, agent) in &mut agents {
        agent.check()?;
        agent.process.close_output();
    }
    context.stop.sleep(WITHOUT)?;
    for (name, agent) in &mut agents {
        let alive = agent
            .check()
            .with_context(|| format!("{name} after its reader left"));
        outcome.expect_alive(alive);
    }
    scene.until_held(&load.sockets, true)?;
    load.goes_on(&context.stop)?;
    let mut ended = 0;
    for (name, agent) in agents {
        let done: Result<Duration> = Agent::finish(agent, &scene);
        ended += u32::from(done.is_ok());
        outcome.expect(done.is_ok(), || format!("{name}: {:#}", done.unwrap_err()));
    }
    super::death::expect_given_back(&mut outcome, &load.sockets);
    let (traffic, first) = load.finish();
    outcome.traffic = traffic;
    outcome.wrong.extend(first);
    scene.check()?;
    outcome.number("agents", commands.len() as f64);
    outcome.said = format!(
        "the readers of {} agents left: {ended} of them went on and ended in order, sockets stayed switched",
        commands.len()
    );
    Ok(outcome)
}

/// Every live view loses its terminal; the second time whoever started it has SIGHUP ignored.
pub fn terminal_gone(context: &Context) -> Result<Outcome> {
    let mut scene = Scene::build(context, Drill::TerminalGone)?;
    let mut outcome = Outcome::default();
    let load = Load::start(scene.client(), scene.address(), CONNECTIONS, MIXED)?;
    let (stop, folder) = (&context.stop, context.output.dir());
    let (mut ended, mut views) = (0, 0);
    let (mut slowest, mut most_cpu) = (Duration::ZERO, Duration::ZERO);
    for hangup in [Hangup::Told, Hangup::Ignored] {
        let started = live_views::start(&context.command, &scene.hosts, folder, hangup, stop)?;
        views += started.len();
        // the last looks at one before it
        for view in started.into_iter().rev() {
            let name = view.name;
            match view.end_of_terminal(stop) {
                Ok(end) => {
                    ended += 1;
                    slowest = slowest.max(end.after);
                    most_cpu = most_cpu.max(end.cpu);
                    outcome.expect(end.cpu <= LITTLE, || {
                        format!("{name} took {:?} of CPU time ({hangup:?})", end.cpu)
                    });
                }
                Err(error) if error.is::<Stopped>() => return Err(error),
                Err(error) => outcome.wrong.push(format!("{error:#} ({hangup:?})")),
            }
        }
    }
    load.goes_on(stop)?;
    let (traffic, first) = load.finish();
    outcome.traffic = traffic;
    outcome.wrong.extend(first);
    scene.check()?;
    let [slowest_ms, cpu_ms] = [slowest, most_cpu].map(|time| time.as_secs_f64() * 1e3);
    outcome.number("views", views as f64);
    outcome.number("slowest_ms", slowest_ms);
    outcome.number("most_cpu_ms", cpu_ms);
    outcome.said = format!(
        "the terminals of {views} live views went away, half of which ignored SIGHUP: {ended} ended in order, after \
         {slowest_ms:.0} ms at most, with at most {cpu_ms:.0} ms of CPU time"
    );
    Ok(outcome)
}
