//! `batchwise window` and its library, on real connections between two hosts.

mod hostile;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use batchwise_testbed::bpf_stats::wait_attached;
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::process::Process;
use batchwise_testbed::stage::refusal::assert_refused;
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::{PATIENCE, batchwise, connect, eventually};
use batchwise_testbed::stop::Stop;
use batchwise_window::{Info, Key, MAGIC, Mode, SOCKET_VARIABLE, Set, VERSION, WindowedStream};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, recv, send, socket};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

/// A running agent.
struct Agent(Process);

impl Agent {
    fn start(host: &Host, socket: &Path, args: &[&str]) -> Self {
        let mut agent = Self::run(host, batchwise(), socket, args);
        let attached = wait_attached(&mut agent.0, "the agent", &Stop::default());
        attached.expect("its programs are attached");
        agent
    }

    /// By this command; it listens.
    fn run(host: &Host, mut command: Command, socket: &Path, args: &[&str]) -> Self {
        command.arg("window").arg("--socket").arg(socket);
        command.arg("--cgroup").arg(host.cgroup()).args(args);
        let spawned = host.spawn("the agent", command, Role::Observer);
        let mut process = spawned.expect("an agent");
        process.on_line(drop);
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
fn a_cgroup_that_is_made_anew_ends_the_agent_which_would_see_nothing() {
    let scene = Scene::build("anew");
    let folder = TempDir::new().expect("a folder");
    let cgroup = scene.client().cgroup().join("service");
    fs::create_dir(&cgroup).expect("a cgroup");
    let mut command = batchwise();
    command
        .arg("window")
        .arg("--socket")
        .arg(folder.path().join("socket"));
    command.arg("--cgroup").arg(&cgroup);
    let mut agent = scene
        .client()
        .spawn("the agent", command, Role::Observer)
        .expect("it starts");
    let attached = wait_attached(&mut agent, "the agent", &Stop::default());
    attached.expect("its programs are attached");
    fs::remove_dir(&cgroup).expect("an empty cgroup");
    fs::create_dir(&cgroup).expect("the same, and another one");
    let status = agent.wait(&Stop::default(), PATIENCE).expect("it ends");
    assert_eq!(status.code(), Some(1), "{}", agent.quote());
    assert!(agent.quote().contains("start again"), "{}", agent.quote());
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
    let mut woken = Vec::new();
    let noticed = || {
        woken.extend(ready(&set, PATIENCE));
        matches!(set.mode(), Mode::Fallback(_)).then_some(())
    };
    eventually("the set to notice", noticed, String::new);
    assert!(woken.contains(&key));

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
    let listener = set.add(place.listener.as_fd(), 1);
    let refused = listener.expect_err("a listener");
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
    assert!(
        message.contains("another agent takes applications"),
        "{message}"
    );
    agent.signal(Signal::SIGTERM);
}

#[test]
fn what_is_no_cgroup_is_refused_once_and_by_name() {
    for path in ["/nowhere", "/tmp"] {
        let mut command = batchwise();
        command.args([
            "window",
            "--socket",
            "/tmp/bw-window.sock",
            "--cgroup",
            path,
        ]);
        let output = command.output().expect("it runs");
        let wanted = format!("{path} is not a cgroup v2 directory: give one below ");
        assert_refused(&output, 1, &[&wanted]);
        let lines = String::from_utf8_lossy(&output.stderr).lines().count();
        assert_eq!(lines, 1, "{output:?}");
    }
}

#[test]
fn a_user_has_so_many_applications_and_the_next_is_told_why() {
    const MOST: usize = 64;
    let place = Place::build("quota");
    let mut agent = place.agent();
    let sets: Vec<Set> = (0..MOST).map(|_| place.set()).collect();
    assert!(sets.iter().all(|set| set.mode() == Mode::Agent));
    let Mode::Fallback(why) = place.set().mode() else {
        panic!("application {MOST} and one was taken");
    };
    assert!(why.contains("quota"), "{why}");
    drop(sets);
    let room = || (place.set().mode() == Mode::Agent).then_some(());
    eventually("room for another", room, || agent.0.quote());
    agent.signal(Signal::SIGTERM);
}

#[test]
fn a_stream_takes_only_what_tcp_can_send_and_all_of_it_arrives() {
    const BYTES: usize = 8 << 20;
    let place = Place::build("stream");
    let mut agent = place.agent();
    // where streams look for it
    drop(place.set());
    let (client, server) = place.connection();
    client.set_nonblocking(true).expect("no blocking");
    let reader = read_all(server, BYTES);
    let mut most = 0;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    runtime.expect("a runtime").block_on(async {
        let stream = tokio::net::TcpStream::from_std(client).expect("a stream");
        let mut stream = WindowedStream::new(stream);
        assert_eq!(stream.mode(), Mode::Agent);
        let (some, mut left) = ([7; 65_536], BYTES);
        while left > 0 {
            let written = stream.write(&some[..left.min(some.len())]).await;
            left -= written.expect("it goes on");
            let info = Info::of(stream.get_ref().as_fd()).expect("TCP_INFO");
            most = most.max(info.unsent());
        }
    });
    reader.join().expect("all of it");
    // a buffer has room for megabytes
    assert!(most < 65_536, "{most} bytes waited in the kernel");
    agent.signal(Signal::SIGTERM);
}

#[test]
fn a_gated_connection_is_writable_only_while_nothing_of_it_waits() {
    let place = Place::build("gate");
    let gate = ["--format", "jsonl", "--gate", "7070"];
    let mut agent = Agent::start(place.scene.client(), &place.socket(), &gate);
    let low_water = |stream: &TcpStream| {
        let value = socket2::SockRef::from(stream).tcp_notsent_lowat();
        value.expect("TCP_NOTSENT_LOWAT")
    };
    let (client, server) = place.connection();
    assert_eq!(low_water(&client), 1);
    let written = stuff(&client);
    let mut fds = [PollFd::new(client.as_fd(), PollFlags::POLLOUT)];
    assert_eq!(poll(&mut fds, PollTimeout::ZERO).expect("a poll"), 0);
    let reader = read_all(server, written);
    let writable = PollTimeout::try_from(PATIENCE).expect("a time");
    assert_eq!(poll(&mut fds, writable).expect("a poll"), 1);
    let _server = reader.join().expect("the reader");

    let other = place.scene.stage.hosts.server_address(7071);
    let bind = || Ok(TcpListener::bind(other)?);
    let _listener = place.scene.server().inside(bind).expect("a listener");
    let ungated = connect(place.scene.client(), other);
    assert_eq!(low_water(&ungated), 0);
    agent.signal(Signal::SIGTERM);
}

/// What another socket does that had the slot before is not taken for this one's.
fn a_slot_is_used_again(
    name: &str,
    set: &mut Set,
    again: impl FnOnce(&mut Set, Key),
    place: &Place,
) {
    let (first, reader) = place.connection();
    let key = set.add(first.as_fd(), 1).expect("a key");
    let written = stuff(&first);
    assert_eq!(set.wait(key, first.as_fd()).expect("an answer"), None);
    again(set, key);

    let (second, _peer) = place.connection();
    let key = set.add(second.as_fd(), 1).expect("a key");
    let space = set.wait(key, second.as_fd()).expect("an answer");
    assert!(space.is_some(), "{name}");
    set.wrote(key, 0);
    // acknowledgments, and the end of the first one
    let reader = read_all(reader, written);
    drop((reader.join().expect("the reader"), first));
    assert_eq!(
        set.wait(key, second.as_fd()).expect("an answer"),
        space,
        "{name}"
    );
    set.remove(key);
}

#[test]
fn a_socket_that_was_let_go_says_nothing_for_the_next_one_in_its_slot() {
    let place = Place::build("again");
    let mut agent = place.agent();
    let mut set = place.set();
    a_slot_is_used_again("in a set", &mut set, |set, key| set.remove(key), &place);
    let renew = |set: &mut Set, _| *set = place.set();
    a_slot_is_used_again("in another application", &mut set, renew, &place);
    agent.signal(Signal::SIGTERM);
}

#[test]
fn a_socket_outside_the_agents_cgroup_falls_back_and_says_so() {
    let place = Place::build("outside");
    // this process is not in the server's
    let mut agent = Agent::start(
        place.scene.server(),
        &place.socket(),
        &["--format", "jsonl"],
    );
    let set = place.set();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let client = TcpStream::connect(address).expect("a connection");
    let key = set.add(client.as_fd(), 1).expect("a key");
    assert!(set.wait(key, client.as_fd()).expect("an answer").is_some());
    assert_eq!(set.mode(), Mode::Agent);
    let Mode::Fallback(why) = set.mode_of(key) else {
        panic!("the agent rings for a socket that is not in its cgroup");
    };
    assert!(why.contains("--cgroup"), "{why}");
    agent.signal(Signal::SIGTERM);
}

#[test]
fn a_reset_wakes_whoever_waits_and_a_write_tells() {
    let place = Place::build("reset");
    let mut agent = place.agent();
    let set = place.set();
    let (client, server) = place.connection();
    let key = set.add(client.as_fd(), 1).expect("a key");
    stuff(&client);
    assert_eq!(set.wait(key, client.as_fd()).expect("an answer"), None);
    // what it has not read makes it a reset
    drop(server);
    let woken = || ready(&set, PATIENCE).contains(&key).then_some(());
    eventually("the key", woken, || agent.0.quote());
    assert!(set.wait(key, client.as_fd()).expect("an answer").is_some());
    let error = (&client).write(&[7]).expect_err("it was reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    agent.signal(Signal::SIGTERM);
}

#[test]
fn an_application_of_another_version_is_told_which_the_agent_speaks() {
    let place = Place::build("version");
    let mut agent = place.agent();
    let flags = SockFlag::SOCK_CLOEXEC;
    let application = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None);
    let application = application.expect("a socket");
    let address = UnixAddr::new(&place.socket()).expect("an address");
    nix::sys::socket::connect(application.as_raw_fd(), &address).expect("the agent listens");
    let ask = [MAGIC, VERSION + 1, 16, 0].map(u32::to_ne_bytes).concat();
    send(application.as_raw_fd(), &ask, MsgFlags::empty()).expect("it takes it");
    let mut answer = [0; 16];
    recv(application.as_raw_fd(), &mut answer, MsgFlags::empty()).expect("an answer");
    assert_eq!(answer[4..8], VERSION.to_ne_bytes());
    assert_eq!(
        recv(application.as_raw_fd(), &mut answer, MsgFlags::empty()),
        Ok(0)
    );
    agent.signal(Signal::SIGTERM);
}

#[test]
fn sockets_that_register_do_not_make_another_thread_take_the_agent_for_dead() {
    let place = Place::build("threads");
    let mut agent = place.agent();
    let set = place.set();
    let (client, _server) = place.connection();
    std::thread::scope(|scope| {
        let registering = scope.spawn(|| {
            for _ in 0..5_000 {
                let key = set.add(client.as_fd(), 1).expect("a key");
                assert!(set.wait(key, client.as_fd()).expect("an answer").is_some());
                assert_eq!(set.mode_of(key), Mode::Agent);
                set.remove(key);
            }
        });
        while !registering.is_finished() {
            set.ready(&mut Vec::new()).expect("what is ready");
        }
    });
    agent.signal(Signal::SIGTERM);
}

#[test]
fn a_socket_that_was_reset_before_it_is_registered_has_any_space_and_a_write_tells() {
    let place = Place::build("early");
    let mut agent = place.agent();
    let set = place.set();
    let (client, server) = place.connection();
    let key = set.add(client.as_fd(), 1).expect("a key");
    stuff(&client);
    drop(server); // with data that was not read
    let reset = || (!is_connected(&client)).then_some(());
    eventually("the reset", reset, || agent.0.quote());
    assert!(set.wait(key, client.as_fd()).expect("an answer").is_some());
    let error = (&client).write(&[7]).expect_err("it was reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    agent.signal(Signal::SIGTERM);
}

fn is_connected(stream: &TcpStream) -> bool {
    stream.peer_addr().is_ok()
}

#[test]
fn an_agent_in_another_pid_namespace_registers_sockets() {
    let place = Place::build("pids");
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]);
    command.arg(batchwise().get_program());
    let mut agent = Agent::run(place.scene.client(), command, &place.socket(), &[]);
    let set = place.set();
    let (client, _server) = place.connection();
    let key = set.add(client.as_fd(), 1).expect("a key");
    assert!(set.wait(key, client.as_fd()).expect("an answer").is_some());
    assert_eq!(set.mode_of(key), Mode::Agent, "{}", agent.0.quote());
    agent.signal(Signal::SIGKILL);
}
