//! Clients of an agent's own sockets that mean harm, as fast as they can.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use batchwise_hint::Hints;
use batchwise_testbed::metrics;
use batchwise_window::{MAGIC, VERSION};
use nix::sys::socket::sockopt::SendTimeout;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, sendmsg,
    setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike as _};

use super::load::{Load, MIXED};
use super::outcome::{Drill, Outcome};
use super::scene::{Agent, END, Scene};
use crate::Context;

/// Where the agent serves its metrics.
const METRICS: &str = "127.0.0.1:9464";
/// Connections of applications meanwhile.
const CONNECTIONS: usize = 64;
/// Connections that a hostile client keeps open.
const KEPT: usize = 1_100;
/// Handles that it keeps; each is a descriptor of this process.
const HANDLES: usize = 1_024;
/// A client that is not served for so long goes on.
const PATIENCE: Duration = Duration::from_millis(200);
/// Users of the metrics have theirs within this time.
const SCRAPE: Duration = Duration::from_secs(1);
/// The agent may use so many times its normal CPU time, …
const CPU: f64 = 2.0;
/// … where it is more than this share of a CPU, and grow by so many bytes.
const LITTLE: f64 = 0.005;
const GROWTH: u64 = 4 << 20;

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
    finish(scene, load, agent, outcome, "HTTP clients")
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

/// An agent for applications at a socket, and one that harms it; the replies of others come all the while.
fn at_a_socket(
    context: &Context,
    drill: Drill,
    harm: fn(&Path, &AtomicBool) -> u64,
) -> Result<Outcome> {
    let scene = Scene::build(context, drill)?;
    let load = Load::start(scene.client(), scene.address(), CONNECTIONS, MIXED)?;
    let socket = context.output.dir().join("applications.sock");
    let (words, who) = match drill {
        Drill::WindowFlood => ("window --format jsonl --socket", "window clients"),
        _ => ("watch --format jsonl --port 6379 --hints", "hint clients"),
    };
    let mut command = Command::new(&context.command);
    command.args(words.split(' ')).arg(&socket);
    command.arg("--cgroup").arg(scene.client().cgroup());
    let agent = scene.start(scene.client(), "agent", command)?;
    let mut outcome = Outcome::default();
    let harm = |over: &AtomicBool| harm(&socket, over);
    let replies = || {
        let (before, begin) = (load.replies(), Instant::now());
        load.goes_on(&scene.context.stop)?;
        ensure!(load.replies() > before, "no replies");
        Ok(begin.elapsed())
    };
    assault(&scene, &mut outcome, &agent, harm, replies)?;
    finish(scene, load, agent, outcome, who)
}

/// Compares the agent before and meanwhile; `look` says how long it takes to be served. Gives the longest.
pub fn assault(
    scene: &Scene<'_>,
    outcome: &mut Outcome,
    agent: &Agent,
    harm: impl Fn(&AtomicBool) -> u64 + Sync,
    look: impl Fn() -> Result<Duration>,
) -> Result<Duration> {
    let seconds = if scene.context.quick { 3 } else { 10 };
    let time = Duration::from_secs(seconds);
    let normal = agent.cpu_share(scene, time)?;
    let before = agent.resident()?;
    let (over, host) = (AtomicBool::new(false), scene.client());
    let (tried, share, slowest, after) = std::thread::scope(|threads| {
        let client = threads.spawn(|| host.inside(|| Ok(harm(&over))));
        let measured = (|| {
            scene.context.stop.sleep(time / 3)?;
            let mut slowest = Duration::ZERO;
            let share = agent.cpu_share(scene, time)?;
            for _ in 0..3 {
                slowest = slowest.max(look()?);
            }
            anyhow::Ok((share, slowest, agent.resident()?))
        })();
        over.store(true, Ordering::Relaxed);
        let tried = client.join().map_err(|_| anyhow!("a client panicked"))?;
        let (share, slowest, after) = measured?;
        anyhow::Ok((tried?, share, slowest, after))
    })?;
    let rate = tried as f64 / (time + time / 3).as_secs_f64();
    let grown = after.saturating_sub(before);
    outcome.expect(share <= CPU * normal.max(LITTLE), || {
        format!(
            "the agent took {:.1} % of a CPU, normally {:.1} %",
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
    outcome.number("tries_per_s", rate);
    Ok(slowest)
}

pub fn finish(
    mut scene: Scene<'_>,
    load: Load,
    mut agent: Agent,
    mut outcome: Outcome,
    who: &str,
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
        "hostile {who}, {:.0} tries a second: the agent took {:.1} % of a CPU (normally {:.1} %), grew by {:.0} KiB, \
         ended {:.0} ms after SIGTERM",
        number("tries_per_s"),
        number("cpu_share") * 100.0,
        number("normal_cpu_share") * 100.0,
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

/// Tries again and again, until it is over. The last [`KEPT`] things that a try gives stay open. How many tries
/// there were.
fn harm<T>(over: &AtomicBool, once: impl Fn(u64) -> Option<T>) -> u64 {
    let mut kept = VecDeque::new();
    let mut tries = 0;
    while !over.load(Ordering::Relaxed) {
        tries += 1;
        kept.extend(once(tries));
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
    tries
}

/// Idles, begins slowly, announces bodies that nobody could hold, sends heads without an end, asks and does
/// not read: in turns.
fn harm_http(address: SocketAddr, over: &AtomicBool) -> u64 {
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
    harm(over, |number| once(number).ok())
}

/// Connects and says what is no registration, or nothing at all, and stays or leaves.
fn harm_hints(socket: &Path, over: &AtomicBool) -> u64 {
    let once = |number: u64| -> io::Result<UnixStream> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        match number % 3 {
            0 => {}
            1 => stream.write_all(&[0xff; 64])?,
            _ => stream.write_all(&[0; 4_096])?,
        }
        Ok(stream)
    };
    harm(over, |number| once(number).ok().filter(|_| number % 2 == 0))
}

/// Has many valid handles, and lets the oldest go for new ones.
fn harm_handles(socket: &Path, over: &AtomicBool) -> u64 {
    // SAFETY: the standard library's lock is around the environment, and no C code here reads it.
    unsafe { std::env::set_var(batchwise_hint::SOCKET_VARIABLE, socket) };
    let service = SocketAddr::from(([10, 77, 0, 1], 6379));
    let mut kept = VecDeque::new();
    let mut tries = 0;
    while !over.load(Ordering::Relaxed) {
        // the library's thread hands them over, and closes those that are gone: it must keep up
        std::thread::sleep(Duration::from_millis(100));
        if open_descriptors() > 2 * HANDLES {
            continue;
        }
        for _ in 0..HANDLES / 2 {
            tries += 1;
            let hints = Hints::for_service(service);
            hints.create(1);
            hints.complete(1);
            kept.push_back(hints);
        }
        kept.drain(..kept.len().saturating_sub(HANDLES));
    }
    tries
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Connects and sends what is no question, one of another version, or more descriptors than one; stays or
/// leaves.
fn harm_window(socket: &Path, over: &AtomicBool) -> u64 {
    let once = |number| harm_window_once(socket, number).ok();
    harm(over, |number| once(number).filter(|_| number % 2 == 0))
}

fn harm_window_once(path: &Path, number: u64) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let stream = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    let patience = TimeVal::microseconds(PATIENCE.as_micros() as i64);
    setsockopt(&stream, SendTimeout, &patience)?;
    connect(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
    let bytes = match number % 3 {
        0 => [0xff; 64].to_vec(),
        1 => [MAGIC, VERSION + 1, 1, 1].map(u32::to_ne_bytes).concat(),
        _ => [MAGIC, VERSION, 1, 1].map(u32::to_ne_bytes).concat(),
    };
    let fds = [stream.as_raw_fd(); 100];
    let rights = [ControlMessage::ScmRights(&fds)];
    let parts = [IoSlice::new(&bytes)];
    sendmsg::<()>(
        stream.as_raw_fd(),
        &parts,
        &rights,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(stream)
}
