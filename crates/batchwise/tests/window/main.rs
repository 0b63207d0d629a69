//! `batchwise window` and its library, on real connections between two hosts.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use batchwise_testbed::bpf_stats::wait_attached;
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::process::Process;
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::{PATIENCE, batchwise, connect, eventually};
use batchwise_testbed::stop::Stop;
use batchwise_window::{Info, Key, Mode, SOCKET_VARIABLE, Set};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

/// A running agent.
struct Agent(Process);

impl Agent {
    fn start(host: &Host, socket: &Path, args: &[&str]) -> Self {
        let mut command = batchwise();
        command.arg("window").arg("--socket").arg(socket);
        command.arg("--cgroup").arg(host.cgroup()).args(args);
        let spawned = host.spawn("the agent", command, Role::Observer);
        let mut process = spawned.expect("an agent");
        process.on_line(drop);
        let attached = wait_attached(&mut process, "the agent", &Stop::default());
        attached.expect("its programs are attached");
        let there = || socket.exists().then_some(());
        eventually("the agent to listen", there, || process.quote());
        Self(process)
    }

    fn signal(&mut self, signal: Signal) {
        kill(self.0.pid(), signal).expect("the agent is there");
        let status = self.0.wait(&Stop::default(), PATIENCE).expect("it ends");
        assert!(
            signal == Signal::SIGKILL || status.success(),
            "{status}{}",
            self.0.quote()
        );
    }
}

/// Two hosts, an agent at the client, and where it listens.
struct Place {
    scene: Scene,
    folder: TempDir,
    listener: TcpListener,
}

impl Place {
    fn build(name: &str) -> Self {
        let scene = Scene::build(name);
        let folder = TempDir::new().expect("a folder");
        let address = scene.stage.hosts.server_address(7070);
        let listener = scene.server().inside(|| Ok(TcpListener::bind(address)?));
        Self {
            scene,
            folder,
            listener: listener.expect("a listener"),
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("window.sock")
    }

    fn agent(&self) -> Agent {
        Agent::start(self.scene.client(), &self.socket(), &["--format", "jsonl"])
    }

    /// With what [`SOCKET_VARIABLE`] says.
    fn set(&self) -> Set {
        // SAFETY: tests of two hosts take turns, and nothing else reads the environment meanwhile.
        unsafe { std::env::set_var(SOCKET_VARIABLE, self.socket()) };
        Set::new().expect("a set")
    }

    fn connection(&self) -> (TcpStream, TcpStream) {
        let address = self.listener.local_addr().expect("its address");
        let client = connect(self.scene.client(), address);
        let (server, _) = self.listener.accept().expect("its other end");
        (client, server)
    }
}

/// Hands over data until some of it waits in the kernel.
fn stuff(stream: &TcpStream) -> usize {
    stream.set_nonblocking(true).expect("no blocking");
    let mut written = 0;
    while let Ok(n) = (&*stream).write(&[7; 65_536]) {
        written += n;
    }
    written
}

fn read_all(mut server: TcpStream, bytes: usize) -> std::thread::JoinHandle<TcpStream> {
    std::thread::spawn(move || {
        server.read_exact(&mut vec![0; bytes]).expect("all of it");
        server
    })
}

/// What is ready within a time.
fn ready(set: &Set, time: Duration) -> Vec<Key> {
    let mut fds = [PollFd::new(set.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::try_from(time).expect("a time")).expect("a poll");
    let mut keys = Vec::new();
    set.ready(&mut keys).expect("what is ready");
    keys
}

/// Until the socket has space again, which its set must say.
fn until_space(set: &Set, key: Key, stream: &TcpStream) -> u32 {
    for _ in 0..10_000 {
        if let Some(space) = set.wait(key, stream.as_fd()).expect("an answer") {
            return space;
        }
        ready(set, PATIENCE);
    }
    panic!("woken 10,000 times for nothing");
}

#[test]
fn an_application_is_woken_when_tcp_can_send_again() {
    let place = Place::build("wake");
    let mut agent = place.agent();
    let set = place.set();
    assert_eq!(set.mode(), Mode::Agent);
    let (client, server) = place.connection();
    let key = set.add(client.as_fd(), 1).expect("a key");
    assert!(set.wait(key, client.as_fd()).expect("an answer").is_some());
    let written = stuff(&client);
    assert_eq!(set.wait(key, client.as_fd()).expect("an answer"), None);

    let reader = read_all(server, written);
    let space = until_space(&set, key, &client);
    assert!(space > 0);
    let _server = reader.join().expect("the reader");
    let quiet = Info::of(client.as_fd()).expect("TCP_INFO");
    assert_eq!(quiet.unsent(), 0);
    agent.signal(Signal::SIGTERM);
}

#[test]
fn an_application_falls_back_when_its_agent_is_killed_and_comes_back_to_the_next() {
    let place = Place::build("fall");
    let mut agent = place.agent();
    let set = place.set();
    let (client, server) = place.connection();
    let key = set.add(client.as_fd(), 1).expect("a key");
    let written = stuff(&client);
    assert_eq!(set.wait(key, client.as_fd()).expect("an answer"), None);
    agent.signal(Signal::SIGKILL);
    let woken = ready(&set, PATIENCE);
    assert!(woken.contains(&key));
    assert!(matches!(set.mode(), Mode::Fallback(_)));

    let reader = read_all(server, written);
    until_space(&set, key, &client);
    let server = reader.join().expect("the reader");

    let mut next = place.agent();
    let back = || {
        set.wait(key, client.as_fd()).expect("an answer");
        (set.mode() == Mode::Agent).then_some(())
    };
    eventually("the application to come back", back, || next.0.quote());
    let written = stuff(&client);
    assert_eq!(set.wait(key, client.as_fd()).expect("an answer"), None);
    let reader = read_all(server, written);
    until_space(&set, key, &client);
    let _server = reader.join().expect("the reader");
    next.signal(Signal::SIGTERM);
}

#[test]
fn what_cannot_be_registered_is_refused_with_what_is_the_matter() {
    let place = Place::build("refuse");
    let mut agent = place.agent();
    let set = place.set();
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    assert!(set.add(udp.as_fd(), 1).is_err());
    let file = File::open("/dev/null").expect("a file");
    assert!(set.add(file.as_fd(), 1).is_err());
    let key = set.add(place.listener.as_fd(), 1).expect("TCP's it is");
    let refused = set
        .wait(key, place.listener.as_fd())
        .expect_err("a listener");
    assert_eq!(
        refused.kind(),
        std::io::ErrorKind::NotConnected,
        "{refused}"
    );
    agent.signal(Signal::SIGTERM);
}

#[test]
fn a_second_agent_at_the_same_place_is_refused() {
    let place = Place::build("second");
    let mut agent = place.agent();
    let mut command = batchwise();
    command.arg("window").arg("--socket").arg(place.socket());
    command.arg("--cgroup").arg(place.scene.client().cgroup());
    let output = command.output().expect("it runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(message.contains("another `batchwise window`"), "{message}");
    agent.signal(Signal::SIGTERM);
}
