//! Where the commands run: hosts with servers and a load, one test at a time, and the processes
//! under test. All that is needed of the crate that makes namespaces is here.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use batchwise_testbed::process::{Process, Reader, lock};
use batchwise_testbed::stop::Stop;
use nix::sys::signal::{Signal, kill};
use serde_json::Value;

pub use batchwise_testbed::host::{Host, Place};
pub use batchwise_testbed::memcached::{Memcached, PORT as MEMCACHED};
pub use batchwise_testbed::nginx::{Nginx, PORT as NGINX};
pub use batchwise_testbed::redis::{PORT as REDIS, RedisServer};
pub use batchwise_testbed::segment::{LINK as LAN, Segment, SegmentSpec, VIP, server};
pub use batchwise_testbed::topology::{CLIENT_IP, LINK, SERVER_IP, TwoHosts};

/// For how long a state may take to come.
const PATIENCE: Duration = Duration::from_secs(40);
/// Where agents serve metrics, each in its host's namespace.
pub const METRICS: &str = "127.0.0.1:9464";

static TURN: Mutex<()> = Mutex::new(());

/// Whether the program named by `BATCHWISE_RECORD` is recorded, and the current one not tested.
pub fn recording() -> bool {
    env::var_os("BATCHWISE_RECORD").is_some()
}

/// The command with these arguments, written as in a shell.
pub fn batchwise(args: &str) -> Command {
    let program = env::var_os("BATCHWISE_RECORD")
        .unwrap_or_else(|| OsString::from(env!("CARGO_BIN_EXE_batchwise")));
    let mut command = Command::new(program);
    command.args(args.split_whitespace());
    command
}

/// Runs it to its end.
pub fn run(args: &str) -> Output {
    batchwise(args).output().expect("the command runs")
}

/// The lines of JSON in a text.
pub fn json(text: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    text.lines().map(parse).collect()
}

/// Waits for this test's turn.
///
/// # Panics
/// Not run by root.
pub fn turn() -> MutexGuard<'static, ()> {
    assert!(
        nix::unistd::geteuid().is_root(),
        "the contracts are those of programs that load BPF: run these tests as root"
    );
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks until it `holds`, for [`PATIENCE`] at most; the caller says then what is missing.
pub fn eventually(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Two hosts, and the turn.
pub struct Pair {
    pub hosts: TwoHosts,
    _turn: MutexGuard<'static, ()>,
}

impl Pair {
    pub fn build(name: &str) -> Self {
        let turn = turn();
        let hosts = TwoHosts::build(&format!("ct-{name}")).expect("two hosts");
        Self { hosts, _turn: turn }
    }

    /// Redis at the server.
    pub fn redis(&self) -> RedisServer {
        RedisServer::start(&self.hosts.server, &Stop::default()).expect("Redis")
    }

    /// memcached at the server.
    pub fn memcached(&self) -> Memcached {
        Memcached::start(&self.hosts.server, &Stop::default()).expect("memcached")
    }

    /// nginx at the server, with what `fill` puts into a folder.
    pub fn nginx(&self, fill: impl FnOnce(&Path)) -> Nginx {
        let fill = |folder: &Path| {
            fill(folder);
            Ok(())
        };
        Nginx::start(&self.hosts.server, &Stop::default(), fill).expect("nginx")
    }

    /// A load on Redis that lasts until it is dropped.
    pub fn load(&self, options: &str) -> Running {
        let load = format!("load redis --addr {SERVER_IP}:{REDIS} --duration 300s {options}");
        Running::application(&self.hosts.client, batchwise(&load))
    }
}

/// A running process and the lines of JSON that it prints; killed when dropped.
pub struct Running {
    process: Process,
    lines: Arc<Mutex<Vec<Value>>>,
    reader: Reader,
}

impl Running {
    /// Starts it at a host, outside of the cgroup of the host's applications.
    pub fn start(host: &Host, command: Command) -> Self {
        Self::spawn(host, command, Place::Observer)
    }

    /// Starts one of the host's applications.
    pub fn application(host: &Host, command: Command) -> Self {
        Self::spawn(host, command, Place::Workload)
    }

    fn spawn(host: &Host, command: Command, place: Place) -> Self {
        let name = format!("{command:?}");
        let mut process = host.spawn(&name, command, place).expect("it starts");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        let reader = process.on_line(move |text| {
            // what is no JSON is for people
            lock(&sink).extend(serde_json::from_str::<Value>(&text));
        });
        Self {
            process,
            lines,
            reader,
        }
    }

    /// The same of an agent that exchanges or counts for the sockets of the host's applications;
    /// waits until its programs are there.
    pub fn agent(host: &Host, args: &str) -> Self {
        let mut command = batchwise(args);
        command.arg("--cgroup").arg(host.cgroup());
        let mut agent = Self::start(host, command);
        agent.until_attached();
        agent
    }

    fn until_attached(&mut self) {
        let attached = batchwise_testbed::bpf_stats::wait_attached(
            &mut self.process,
            "the agent",
            &Stop::default(),
        );
        attached.expect("its programs are attached");
    }

    /// The lines so far.
    pub fn lines(&self) -> Vec<Value> {
        lock(&self.lines).clone()
    }

    /// Ends it with a signal; gives all lines and the exit code.
    pub fn end(mut self, signal: Signal) -> (Vec<Value>, Option<i32>) {
        kill(self.process.pid(), signal).expect("it is there");
        let status = self.process.wait(&Stop::default(), PATIENCE);
        let status = status.expect("it ends");
        self.reader.finish();
        let lines = lock(&self.lines).clone();
        (lines, status.code())
    }

    /// Waits for its end; gives all lines.
    pub fn finish(mut self) -> Vec<Value> {
        let status = self.process.wait(&Stop::default(), PATIENCE);
        let status = status.expect("it ends");
        assert!(status.success(), "{status}{}", self.process.quote());
        self.reader.finish();
        lock(&self.lines).clone()
    }
}

/// Threads that ask a server over and over, until dropped.
pub struct Asking {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Asking {
    /// So many threads that do this.
    pub fn start(threads: usize, ask: impl FnMut() + Clone + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = |_| {
            let (stop, mut ask) = (stop.clone(), ask.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    ask();
                }
            })
        };
        let threads = (0..threads).map(thread).collect();
        Self { stop, threads }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // a panic was printed there already
            let _ = thread.join();
        }
    }
}

/// What an HTTP server at a host answers; nothing while it does not.
pub fn get(host: &Host, address: &str, path: &str) -> Option<String> {
    let address: SocketAddr = address.parse().expect("an address");
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    host.inside(ask).ok()
}

/// Something that the test's own process has at a host, such as a socket.
pub fn at<T: Send>(host: &Host, work: impl FnOnce() -> std::io::Result<T> + Send) -> T {
    host.inside(|| Ok(work()?)).expect("it can be had there")
}

/// A file of this folder.
pub fn fixture(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/contracts/recorded");
    PathBuf::from(folder).join(name)
}

/// A set of texts.
pub fn set<T: Into<String>>(texts: impl IntoIterator<Item = T>) -> BTreeSet<String> {
    texts.into_iter().map(Into::into).collect()
}
