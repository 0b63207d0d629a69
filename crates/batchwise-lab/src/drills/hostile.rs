//! Clients of an agent's own sockets that mean harm, as fast as they can.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, IoSlice, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use batchwise_core::sense::report::{Estimator, Line};
use batchwise_hint::Hints;
use batchwise_testbed::metrics;
use batchwise_window::{MAGIC, Mode, Set, VERSION};
use nix::sys::socket::sockopt::SendTimeout;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, send, sendmsg,
    setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike as _};

use super::load::{Load, MIXED};
use super::outcome::{Drill, Outcome};
use super::scene::{Agent, END, LIMIT, Scene};
use crate::Context;

/// Where the agent serves its metrics.
const METRICS: &str = "127.0.0.1:9464";
/// Connections of applications meanwhile.
const CONNECTIONS: usize = 64;
/// Hostile clients at a time, and connections that they keep open together.
const CLIENTS: usize = 4;
const KEPT: usize = 1_100;
/// Handles that it keeps; each is a descriptor of this process.
const HANDLES: usize = 1_024;
/// A client that is not served for so long goes on.
const PATIENCE: Duration = Duration::from_millis(200);
/// Users of the metrics have theirs within this time.
const SCRAPE: Duration = Duration::from_secs(1);
/// Within this time an honest application is told of: who finds no time in one reading is first in the next, a second
/// later, and lines are a second apart.
const SERVED: Duration = Duration::from_secs(3);
/// The agent may use so many times its normal CPU time, …
const CPU: f64 = 2.0;
/// … where it is more than this share of a CPU, and grow by so many bytes.
const LITTLE: f64 = 0.005;
const GROWTH: u64 = 4 << 20;

/// What hostile clients did.
#[derive(Default)]
pub struct Tried {
    pub tries: u64,
    /// Those of them that connected and could say what they had to; of handles, those that were made.
    done: u64,
}

pub fn http(context: &Context) -> Result<Outcome> {
    let scene = Scene::build(context, Drill::HostileHttp)?;
    let load = Load::start(scene.client(), scene.address(), CONNECTIONS, MIXED)?;
    let agent = scene.tune(scene.client(), "tune", &["--metrics", METRICS])?;
    let address: SocketAddr = METRICS.parse()?;
    let mut outcome = Outcome::default();
    scrape(&scene, address)?;
    let harm = |over: &AtomicBool| harm_http(address, over);
    let slowest = assault(&scene, &mut outcome, &agent, harm, || {
        scrape(&scene, address)
    })?;
    outcome.expect(slowest < SCRAPE, || format!("a scrape took {slowest:?}"));
    outcome.number("slowest_scrape_ms", slowest.as_secs_f64() * 1e3);
    let what = harm_in_words(&mut outcome, "HTTP clients", false);
    finish(scene, load, agent, outcome, &what)
}

pub fn hints(context: &Context) -> Result<Outcome> {
    at_a_socket(context, Drill::HintFlood, harm_hints)
}

pub fn handles(context: &Context) -> Result<Outcome> {
    at_a_socket(context, Drill::HintHandles, harm_handles)
}

pub fn window(context: &Context) -> Result<Outcome> {
    at_a_socket(context, Drill::WindowFlood, harm_window)
}

/// An agent for applications at a socket, those that harm it, and an honest one that was there before.
fn at_a_socket(
    context: &Context,
    drill: Drill,
    harm: fn(&Path, &AtomicBool) -> Tried,
) -> Result<Outcome> {
    let scene = Scene::build(context, drill)?;
    let load = Load::start(scene.client(), scene.address(), CONNECTIONS, MIXED)?;
    let socket = context.output.dir().join("applications.sock");
    let is_window = drill == Drill::WindowFlood;
    let (variable, who) = match is_window {
        true => (batchwise_window::SOCKET_VARIABLE, "window clients"),
        false => (batchwise_hint::SOCKET_VARIABLE, "hint clients"),
    };
    let words = match drill {
        Drill::WindowFlood => "window --format jsonl --socket",
        // handles are read most often where peers are told of them
        Drill::HintHandles => "watch --exchange --format jsonl --port 6379 --hints",
        _ => "watch --format jsonl --port 6379 --hints",
    };
    // SAFETY: the standard library's lock is around the environment, and no C code here reads it.
    unsafe { std::env::set_var(variable, &socket) };
    let mut command = Command::new(&context.command);
    command.args(words.split(' ')).arg(&socket);
    command.arg("--cgroup").arg(scene.client().cgroup());
    let heard = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&heard);
    let agent = scene.start_read(scene.client(), "agent", command, move |line| {
        sum.fetch_add(by_hints(&line), Ordering::Relaxed);
    })?;
    let mut outcome = Outcome::default();
    let honest = Hints::for_service(scene.address());
    let set = is_window.then(Set::new).transpose()?;
    let served = || match &set {
        Some(set) => in_window(&scene, set, &load),
        None => in_hints(&scene, &honest, &heard),
    };
    served().context("before any harm")?;
    let replies = || {
        let begin = Instant::now();
        load.goes_on(&context.stop).map(|()| begin.elapsed())
    };
    // the honest one is a part of this process: to the agent, the one with all the handles
    let is_itself = drill == Drill::HintHandles;
    let look = || if is_itself { replies() } else { served() };
    let harm = |over: &AtomicBool| harm(&socket, over);
    let (before, begin) = (heard.load(Ordering::Relaxed), Instant::now());
    let slowest = assault(&scene, &mut outcome, &agent, harm, look)?;
    let heard = heard.load(Ordering::Relaxed) - before;
    if !is_itself {
        outcome.expect(slowest < SERVED, || {
            format!("an honest application waited for {slowest:?}")
        });
        outcome.number("slowest_served_ms", slowest.as_secs_f64() * 1e3);
    }
    let mut what = harm_in_words(&mut outcome, who, is_itself);
    if is_itself {
        let rate = heard as f64 / begin.elapsed().as_secs_f64();
        outcome.number("heard_per_s", rate);
        outcome.expect(heard > 0, || "nothing was told of valid handles".to_owned());
        let [tries, kept] = ["tries_per_s", "kept"].map(|name| outcome.numbers[name]);
        what = format!(
            "a hint client, {tries:.0} valid handles a second, {kept:.0} of them mapped by the agent in the end, which told \
             of {rate:.1} requests a second (one a handle)"
        );
    }
    finish(scene, load, agent, outcome, &what)
}

/// Requests that a line of `watch` has from hints.
fn by_hints(line: &str) -> u64 {
    let line = serde_json::from_str::<Line>(line);
    let line = line.ok().filter(|l| l.estimator == Estimator::Hint);
    line.map_or(0, |l| {
        (l.throughput_per_s * l.interval_ns as f64 / 1e9).round() as u64
    })
}

/// Has requests until the agent tells of one; how long that takes.
fn in_hints(scene: &Scene<'_>, honest: &Hints, heard: &AtomicU64) -> Result<Duration> {
    let (before, begin) = (heard.load(Ordering::Relaxed), Instant::now());
    let look = || {
        honest.create(1);
        honest.complete(1);
        Ok((heard.load(Ordering::Relaxed) > before).then(|| begin.elapsed()))
    };
    let took = scene.context.stop.wait_until(LIMIT, look)?;
    took.context("the agent tells nothing of an honest application")
}

/// Has the agent register a socket; how long that takes.
fn in_window(scene: &Scene<'_>, set: &Set, load: &Load) -> Result<Duration> {
    let (stream, begin) = (&load.sockets[0].stream, Instant::now());
    let look = || {
        let key = set.add(stream.as_fd(), 1)?;
        set.wait(key, stream.as_fd())?;
        let is_served = set.mode_of(key) == Mode::Agent;
        set.remove(key);
        Ok(is_served.then(|| begin.elapsed()))
    };
    let took = scene.context.stop.wait_until(LIMIT, look)?;
    took.context("the agent does not serve an honest application")
}

/// What was done, of which something must have come to the agent. A handle may be gone again when it is looked for.
fn harm_in_words(outcome: &mut Outcome, who: &str, leaves_nothing: bool) -> String {
    let [tries, done, kept] = ["tries_per_s", "done_per_s", "kept"]
        .map(|name| outcome.numbers.get(name).copied().unwrap_or_default());
    outcome.expect(done > 0.0 && (kept > 0.0 || leaves_nothing), || {
        format!("nothing of {who} came to the agent")
    });
    format!(
        "hostile {who}, {tries:.0} tries a second, {done:.0} of them let in, {kept:.0} kept by the agent"
    )
}

/// Compares the agent before and meanwhile; `look` says how long it takes to be served. Gives the longest.
pub fn assault(
    scene: &Scene<'_>,
    outcome: &mut Outcome,
    agent: &Agent,
    harm: impl Fn(&AtomicBool) -> Tried + Sync,
    look: impl Fn() -> Result<Duration>,
) -> Result<Duration> {
    let seconds = if scene.context.quick { 3 } else { 10 };
    let time = Duration::from_secs(seconds);
    let normal = agent.cpu_share(scene, time)?;
    let (before, kept_before) = (agent.resident()?, kept(agent)?);
    let (over, host) = (AtomicBool::new(false), scene.client());
    let begin = Instant::now();
    let (tried, share, slowest, after, kept) = std::thread::scope(|threads| {
        let client = threads.spawn(|| host.inside(|| Ok(harm(&over))));
        let measured = (|| {
            scene.context.stop.sleep(time / 3)?;
            let mut slowest = Duration::ZERO;
            let share = agent.cpu_share(scene, time)?;
            for _ in 0..3 {
                slowest = slowest.max(look()?);
            }
            anyhow::Ok((share, slowest, agent.resident()?, kept(agent)?))
        })();
        over.store(true, Ordering::Relaxed);
        let tried = client.join().map_err(|_| anyhow!("a client panicked"))?;
        let (share, slowest, after, kept) = measured?;
        anyhow::Ok((tried?, share, slowest, after, kept))
    })?;
    let rate = |number: u64| number as f64 / begin.elapsed().as_secs_f64();
    let grown = after.saturating_sub(before);
    outcome.expect(share <= CPU * normal.max(LITTLE), || {
        format!(
            "the agent took {:.2} % of a CPU, normally {:.2} %",
            share * 100.0,
            normal * 100.0
        )
    });
    outcome.expect(grown <= GROWTH, || {
        format!("the agent grew by {grown} bytes")
    });
    outcome.number("normal_cpu_share", normal);
    outcome.number("cpu_share", share);
    outcome.number("grown_bytes", grown as f64);
    outcome.number("tries_per_s", rate(tried.tries));
    outcome.number("done_per_s", rate(tried.done));
    outcome.number("kept", kept.saturating_sub(kept_before) as f64);
    Ok(slowest)
}

/// What an agent has of its clients: descriptors, and the memory of handles.
fn kept(agent: &Agent) -> Result<usize> {
    let folder = format!("/proc/{}", agent.pid());
    let maps = fs::read_to_string(format!("{folder}/maps"))?;
    let descriptors = fs::read_dir(format!("{folder}/fd"))?.count();
    Ok(descriptors + maps.matches("/memfd:batchwise-hint").count())
}

pub fn finish(
    mut scene: Scene<'_>,
    load: Load,
    mut agent: Agent,
    mut outcome: Outcome,
    what: &str,
) -> Result<Outcome> {
    outcome.expect_alive(agent.check());
    let ended = agent.finish(&scene);
    let took = ended.as_ref().map_or(END, |took| *took);
    outcome.expect(ended.is_ok(), || format!("{:#}", ended.unwrap_err()));
    super::death::expect_given_back(&mut outcome, &load.sockets);
    let (traffic, first) = load.finish();
    outcome.traffic = traffic;
    outcome.wrong.extend(first);
    scene.check()?;
    outcome.number("sigterm_ms", took.as_secs_f64() * 1e3);
    let number = |name: &str| outcome.numbers.get(name).copied().unwrap_or_default();
    outcome.said = format!(
        "{what}: the agent took {:.2} % of a CPU (normally {:.2} %; allowed: {CPU} times that, or of {} %), grew by {:.0} KiB, \
         ended {:.0} ms after SIGTERM",
        number("cpu_share") * 100.0,
        number("normal_cpu_share") * 100.0,
        LITTLE * 100.0,
        number("grown_bytes") / 1024.0,
        number("sigterm_ms"),
    );
    Ok(outcome)
}

/// What a normal client gets, and how long it takes.
fn scrape(scene: &Scene<'_>, address: SocketAddr) -> Result<Duration> {
    let begin = Instant::now();
    let answer = metrics::scrape(scene.client(), address, END)?;
    ensure!(answer.ends_with("# EOF\n"), "no metrics: {answer}");
    Ok(begin.elapsed())
}

/// All clients try again and again, until it is over. `once` says what a try gives, and whether that stays open:
/// the last [`KEPT`] do.
fn harm<T>(over: &AtomicBool, once: impl Fn(u64) -> Option<(T, bool)> + Sync) -> Tried {
    let client = || {
        let (mut kept, mut tried) = (VecDeque::new(), Tried::default());
        while !over.load(Ordering::Relaxed) {
            tried.tries += 1;
            let Some((given, stays)) = once(tried.tries) else {
                continue;
            };
            tried.done += 1;
            kept.extend(stays.then_some(given));
            if kept.len() > KEPT / CLIENTS {
                kept.pop_front();
            }
        }
        tried
    };
    std::thread::scope(|threads| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| threads.spawn(client)).collect();
        let mut all = Tried::default();
        // a panic was printed there
        for tried in clients.into_iter().filter_map(|client| client.join().ok()) {
            all.tries += tried.tries;
            all.done += tried.done;
        }
        all
    })
}

/// Idles, begins slowly, announces bodies that nobody could hold, sends heads without an end, asks and does
/// not read: in turns.
fn harm_http(address: SocketAddr, over: &AtomicBool) -> Tried {
    let once = |number: u64| -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        match number % 5 {
            0 => {}
            1 => stream.write_all(b"GET /met")?,
            2 => stream.write_all(
                b"POST /metrics HTTP/1.1\r\nContent-Length: 4611686018427387904\r\n\r\nbody",
            )?,
            3 => stream.write_all(&b"GET /metrics HTTP/1.1\r\nX-Filler: y\r\n".repeat(4_096))?,
            _ => stream.write_all(&b"GET /metrics HTTP/1.1\r\nHost: bw\r\n\r\n".repeat(20))?,
        }
        Ok(stream)
    };
    harm(over, |number| Some((once(number).ok()?, true)))
}

/// Connects as applications do.
fn knock(path: &Path) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let stream = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    let patience = TimeVal::microseconds(PATIENCE.as_micros() as i64);
    setsockopt(&stream, SendTimeout, &patience)?;
    connect(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(stream)
}

/// Connects and stays silent, or says what is no registration and leaves.
fn harm_hints(path: &Path, over: &AtomicBool) -> Tried {
    let once = |number: u64| {
        let stream = knock(path)?;
        let said = match number % 4 {
            1 => &[0xff; 64][..],
            3 => &[0; 4_096],
            _ => return Ok((stream, true)),
        };
        send(stream.as_raw_fd(), said, MsgFlags::MSG_NOSIGNAL)?;
        nix::Result::Ok((stream, false))
    };
    harm(over, |number| once(number).ok())
}

/// Has many valid handles, and lets the oldest go for new ones.
fn harm_handles(_: &Path, over: &AtomicBool) -> Tried {
    let service = SocketAddr::from(([10, 77, 0, 1], 6379));
    let mut kept = VecDeque::new();
    let mut tried = Tried::default();
    while !over.load(Ordering::Relaxed) {
        // the library's thread hands them over, and closes those that are gone: it must keep up
        std::thread::sleep(Duration::from_millis(100));
        if open_descriptors() > 2 * HANDLES {
            continue;
        }
        for _ in 0..HANDLES / 2 {
            let hints = Hints::for_service(service);
            tried.tries += 1;
            tried.done += u64::from(hints.is_open());
            hints.create(1);
            hints.complete(1);
            kept.push_back(hints);
        }
        kept.drain(..kept.len().saturating_sub(HANDLES));
    }
    tried
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Connects and stays silent, or sends what is no question, one of another version, or more descriptors than one,
/// and leaves.
fn harm_window(path: &Path, over: &AtomicBool) -> Tried {
    let once = |number: u64| {
        let stream = knock(path)?;
        let bytes = match number % 6 {
            1 => [0xff; 64].to_vec(),
            3 => [MAGIC, VERSION + 1, 1, 1].map(u32::to_ne_bytes).concat(),
            5 => [MAGIC, VERSION, 1, 1].map(u32::to_ne_bytes).concat(),
            _ => return Ok((stream, true)),
        };
        let fds = [stream.as_raw_fd(); 100];
        let (parts, rights) = ([IoSlice::new(&bytes)], [ControlMessage::ScmRights(&fds)]);
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(stream.as_raw_fd(), &parts, &rights, flags, None)?;
        nix::Result::Ok((stream, false))
    };
    harm(over, |number| once(number).ok())
}
