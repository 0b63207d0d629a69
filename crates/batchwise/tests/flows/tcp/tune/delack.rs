//! A peer that waits for acknowledgments, cured from this end alone.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

use batchwise_core::tune::Knob;
use batchwise_core::tune::report::{Advice, Decision, DecisionEvent, InForce};
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::tune::Agent;
use batchwise_testbed::stage::{eventually, listen};
use nix::libc::{IPPROTO_TCP, getsockopt, socklen_t};
use nix::sys::signal::Signal;
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

#[test]
fn acknowledgments_for_which_the_other_end_waits_leave_sooner_until_the_agent_ends_or_dies() {
    let scene = Scene::build("delack");
    let address = SocketAddr::new(scene.address().ip(), PORT);
    let listener = listen(scene.server(), address);
    let client = scene.stage.connect(address);
    let (server, _) = listener.accept().expect("its connection");
    let logs = TempDir::new().expect("a folder");
    let stop = AtomicBool::new(false);
    let is = |us: i32| {
        let told = || delack_us(&client).is_none_or(|now| now == us).then_some(());
        eventually("the socket to be so", told, || {
            format!("{:?}", delack_us(&client))
        });
    };
    std::thread::scope(|threads| {
        // it ends by an error: its client is gone
        threads.spawn(|| answer(server).expect_err("its client's end"));
        threads.spawn(|| ask(&client, &stop));
        for end in [Signal::SIGTERM, Signal::SIGKILL] {
            let mut agent =
                Agent::launch_at(scene.client(), logs.path(), PORT, &["--knob", "delack"]);
            let before = agent.decisions().len();
            agent.until("the cure", before, adopted);
            assert!(delack_us(&client).is_none_or(|us| us < USUAL_US / 4));
            agent.signal(end);
            agent.wait();
            is(USUAL_US);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
