//! Where a test plays: two hosts of its own, while no other test runs; and what tests of the command
//! have in common. What goes wrong here is a panic: a test has failed.

pub mod capture;
pub mod generator;
pub mod refusal;
pub mod request;
pub mod scene;
pub mod scrape;
pub mod tune;
pub mod watch;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use crate::bpf_stats::{self, programs_left};
use crate::commands;
use crate::host::Host;
use crate::process;
use crate::redis::{PORT, RedisServer};
use crate::stop::Stop;
use crate::topology::TwoHosts;

/// For how long a condition may take to come true: only a broken product or machine needs it all.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);

/// The command under test, before its arguments.
pub fn batchwise() -> Command {
    Command::new(commands::required("batchwise"))
}

static TURN: Mutex<()> = Mutex::new(());

/// Waits for this test's turn: tests of timing would disturb each other.
///
/// # Panics
/// Not run by root.
pub fn turn() -> MutexGuard<'static, ()> {
    assert!(
        nix::unistd::geteuid().is_root(),
        "these tests load BPF programs and make network namespaces: run them as root"
    );
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two hosts, and the turn.
pub struct Stage {
    /// The hosts.
    pub hosts: TwoHosts,
    _turn: MutexGuard<'static, ()>,
}

impl Stage {
    /// Builds the hosts `bw-w-<name>-srv` and `bw-w-<name>-cli`.
    pub fn build(name: &str) -> Self {
        let turn = turn();
        Self {
            hosts: TwoHosts::build(&format!("w-{name}")).expect("two hosts"),
            _turn: turn,
        }
    }

    /// Redis at the server, port 6379.
    pub fn redis(&self) -> RedisServer {
        RedisServer::start(&self.hosts.server, &Stop::default()).expect("a Redis server")
    }

    /// Redis as the client reaches it.
    pub fn redis_address(&self) -> SocketAddr {
        self.hosts.server_address(PORT)
    }

    /// A connection from the client's namespace, made by the test's own process (and cgroup).
    pub fn connect(&self, to: SocketAddr) -> TcpStream {
        connect(&self.hosts.client, to)
    }
}

/// A listener in the namespace of `host`.
pub fn listen(host: &Host, at: SocketAddr) -> TcpListener {
    let listener = host.inside(|| Ok(TcpListener::bind(at)?));
    listener.expect("a listener")
}

/// A connection from the namespace of `host`, made by the test's own process (and cgroup).
pub fn connect(host: &Host, to: SocketAddr) -> TcpStream {
    let stream = host.inside(|| Ok(connect_here(to)));
    stream.expect("a thread in the namespace")
}

/// A connection from the namespace of the calling thread.
pub fn connect_here(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&to, PATIENCE);
    let stream = stream.unwrap_or_else(|error| panic!("connecting to {to}: {error:#}"));
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Looks until `found` gives something.
///
/// # Panics
/// It does not within [`PATIENCE`]; `what` and the value of `state` say what was missing.
pub fn eventually<T>(
    what: &str,
    mut found: impl FnMut() -> Option<T>,
    state: impl FnOnce() -> String,
) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(it) = found() {
            return it;
        }
        assert!(
            Instant::now() < end,
            "waited in vain for {what}; {}",
            state()
        );
        std::thread::sleep(POLL);
    }
}

/// Whether `a` is within `share` of `b`.
pub fn close(a: f64, b: f64, share: f64) -> bool {
    (a - b).abs() <= share * b.abs()
}

/// Memory of a process in bytes, as a field of its status says: `VmRSS`, `RssAnon`.
pub fn memory(pid: Pid, field: &str) -> u64 {
    process::memory(pid, field).expect("its status")
}

/// Ids of the BPF programs that a process holds, its own or through links.
pub fn programs_of(pid: Pid) -> BTreeSet<u64> {
    bpf_stats::programs_of(pid).expect("its descriptors")
}

/// Waits until the kernel has freed all these programs.
pub fn until_freed(programs: &BTreeSet<u64>) {
    eventually(
        "the kernel to free its programs",
        || programs_left(programs).is_empty().then_some(()),
        || format!("left: {:?}", programs_left(programs)),
    );
}
