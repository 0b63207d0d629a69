//! A peer that waits for acknowledgments, cured from this end alone.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use batchwise_core::tune::report::{Advice, Decision, DecisionEvent, InForce};
use batchwise_core::tune::{Knob, Lever};
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::tune::Agent;
use batchwise_testbed::stage::{connect, eventually, listen};
use batchwise_testbed::topology::LINK;
use nix::libc::{IPPROTO_TCP, getsockopt, socklen_t};
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

const PORT: u16 = 17_042;
/// From Linux 6.15 on.
const TCP_DELACK_MAX_US: i32 = 46;
/// TCP_DELACK_MAX: 200 ms.
const USUAL_US: i32 = 200_000;

/// How long an acknowledgment waits at most, µs; `None`: this kernel does not say it.
fn delack_us(socket: &TcpStream) -> Option<i32> {
    let (mut value, mut length) = (0_i32, size_of::<i32>() as socklen_t);
    let (at, fd) = ((&raw mut value).cast(), socket.as_raw_fd());
    // SAFETY: the kernel writes an int at most there.
    let failed = unsafe { getsockopt(fd, IPPROTO_TCP, TCP_DELACK_MAX_US, at, &mut length) } != 0;
    (!failed).then_some(value)
}

fn adopted(all: &[Decision]) -> bool {
    let adopts = |d: &Decision| {
        (d.event, d.knob, d.delack) == (DecisionEvent::Adopt, Knob::Delack, InForce::Off)
            && d.advice == Some(Advice::DelackHolds)
            && d.nagle == InForce::App
    };
    all.iter().any(adopts)
}

/// Answers each request in two small writes, with Nagle's algorithm on, until the client is gone.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    loop {
        stream.read_exact(&mut [0; 3])?;
        stream.write_all(b"te")?;
        stream.write_all(b"ll")?;
    }
}

/// One request after another.
fn ask(mut stream: &TcpStream, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(b"ask").expect("sent");
        stream.read_exact(&mut [0; 4]).expect("received");
    }
    stream.shutdown(Shutdown::Both).expect("it was open");
}

/// Ends the threads beside a test, though it fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client that waits for the second half of each answer, and what is done meanwhile.
fn with_stalls(name: &str, play: impl FnOnce(&Scene, &TcpStream)) {
    let scene = Scene::build(name);
    let address = SocketAddr::new(scene.address().ip(), PORT);
    let listener = listen(scene.server(), address);
    let client = scene.stage.connect(address);
    let (server, _) = listener.accept().expect("its connection");
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let _stop = Stop(&stop);
        // it ends by an error: its client is gone
        threads.spawn(|| answer(server).expect_err("its client's end"));
        threads.spawn(|| ask(&client, &stop));
        play(&scene, &client);
    });
}

/// The routes that agents have made at the client.
fn routes(scene: &Scene) -> String {
    let show = || {
        Ok(Command::new("ip")
            .args(["route", "show", "proto", "77"])
            .output()?)
    };
    let shown = scene.client().inside(show).expect("ip");
    String::from_utf8_lossy(&shown.stdout).trim().to_owned()
}

fn until_routes(scene: &Scene, what: &str, are: impl Fn(&str) -> bool) {
    let told = || are(&routes(scene)).then_some(());
    eventually(what, told, || routes(scene));
}

#[test]
fn acknowledgments_for_which_the_other_end_waits_leave_sooner_until_the_agent_ends_or_dies() {
    with_stalls("delack", |scene, client| {
        let logs = TempDir::new().expect("a folder");
        for end in [Signal::SIGTERM, Signal::SIGKILL] {
            let mut agent =
                Agent::launch_at(scene.client(), logs.path(), PORT, &["--knob", "delack"]);
            let before = agent.decisions().len();
            agent.until("the cure", before, adopted);
            assert!(delack_us(client).is_none_or(|us| us < USUAL_US / 4));
            agent.signal(end);
            agent.wait();
            let told = || {
                delack_us(client)
                    .is_none_or(|now| now == USUAL_US)
                    .then_some(())
            };
            eventually("the socket to be so", told, || {
                format!("{:?}", delack_us(client))
            });
        }
    });
}

#[test]
fn a_route_of_its_own_acknowledges_at_once_follows_others_and_goes_with_the_agent() {
    with_stalls("ackroute", |scene, _| {
        let args = ["--knob", "delack", "--scope", "route"];
        let healed = |all: &[Decision]| {
            let heals = |d: &Decision| {
                let late = d.arms.off.is_some_and(|off| off.latency_ns > 2_000_000);
                d.lever == Some(Lever::Route) && !late
            };
            adopted(all) && all.iter().any(heals)
        };
        for end in [Signal::SIGTERM, Signal::SIGKILL] {
            let logs = TempDir::new().expect("a folder");
            let mut agent = Agent::launch_at(scene.client(), logs.path(), PORT, &args);
            agent.until("the cure", 0, healed);
            let is_for_the_server = |routes: &str| {
                let server = scene.address().ip().to_string();
                routes.starts_with(&server) && routes.contains("quickack 1")
            };
            until_routes(scene, "a route for the server", is_for_the_server);
            // the one that it was copied from
            let around = |more: &str| {
                let namespace = scene.client().namespace();
                let changed = namespace.ip(&format!("route change 10.77.0.0/24 dev {LINK} {more}"));
                changed.expect("a route");
            };
            around("mtu 1400");
            until_routes(scene, "the change", |routes| routes.contains("mtu 1400"));
            around("mtu 1500");
            until_routes(scene, "the change", |routes| routes.contains("mtu 1500"));
            agent.signal(end);
            agent.wait();
            until_routes(scene, "no route of ours", str::is_empty);
        }
    });
}

#[test]
fn a_route_that_agent_and_guard_leave_when_they_die_together_the_next_agent_removes() {
    with_stalls("ackleft", |scene, _| {
        let logs = TempDir::new().expect("a folder");
        let args = ["--knob", "delack", "--scope", "route"];
        let mut agent = Agent::launch_at(scene.client(), logs.path(), PORT, &args);
        agent.until("the cure", 0, adopted);
        let guard = agent.guard().expect("a guard");
        for process in [agent.pid(), guard] {
            kill(process, Signal::SIGSTOP).expect("it is there");
        }
        for process in [guard, agent.pid()] {
            kill(process, Signal::SIGKILL).expect("it is there");
        }
        agent.wait();
        assert_ne!(routes(scene), "");
        let mut next = Agent::launch_at(scene.client(), logs.path(), PORT, &["--dry-run"]);
        next.wait_attached();
        until_routes(scene, "no route of ours", str::is_empty);
        next.finish();
    });
}

#[test]
fn a_route_that_an_administrator_takes_away_stays_away() {
    with_stalls("acktaken", |scene, _| {
        let logs = TempDir::new().expect("a folder");
        let args = ["--knob", "delack", "--scope", "route"];
        let mut agent = Agent::launch_at(scene.client(), logs.path(), PORT, &args);
        agent.until("the cure", 0, adopted);
        let namespace = scene.client().namespace();
        let route = format!("route del {} proto 77", scene.address().ip());
        namespace.ip(&route).expect("it is there");
        let said = || agent.messages().contains("someone else").then_some(());
        eventually("a word about it", said, || agent.messages());
        assert_eq!(routes(scene), "");
        agent.signal(Signal::SIGTERM);
        agent.wait();
    });
}

#[test]
fn where_there_can_be_no_route_a_namespace_acknowledges_at_once_until_the_agent_ends_or_dies() {
    const THRESHOLD: &str = "net/ipv4/tcp_pingpong_thresh";
    let scene = Scene::build("acknamespace");
    // this process is in the client host's cgroup, whose agent sees its sockets: there is the server
    let here = scene.client();
    let address = SocketAddr::from(([10, 77, 0, 2], PORT));
    let listener = listen(here, address);
    let client = connect(scene.server(), address);
    let (mut server, _) = listener.accept().expect("its connection");
    let stop = AtomicBool::new(false);
    let is = |value: &str| {
        let get = || here.sysctl(THRESHOLD).expect("Linux 6.7");
        let told = || (get().trim() == value).then_some(());
        eventually("the namespace to be so", told, get);
    };
    std::thread::scope(|threads| {
        let _stop = Stop(&stop);
        // a request in two writes waits for the server's acknowledgment of the first
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for part in [b"as", b"k!"] {
                    (&client).write_all(part).expect("sent");
                }
                (&client).read_exact(&mut [0; 4]).expect("received");
            }
            client.shutdown(Shutdown::Both).expect("it was open");
        });
        threads.spawn(move || {
            while server.read_exact(&mut [0; 4]).is_ok() {
                server.write_all(b"tell").expect("sent");
            }
        });
        for end in [Signal::SIGTERM, Signal::SIGKILL] {
            let logs = TempDir::new().expect("a folder");
            let args = ["--knob", "delack", "--scope", "namespace"];
            let mut agent = Agent::launch_at(here, logs.path(), PORT, &args);
            let is_by_namespace = |d: &Decision| d.lever == Some(Lever::Namespace);
            agent.until("the cure", 0, |all| {
                adopted(all) && all.iter().any(is_by_namespace)
            });
            is("255");
            agent.signal(end);
            agent.wait();
            is("1");
        }
    });
}
