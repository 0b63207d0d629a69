//! The listener against real handles of this process, and against those who mean harm.

use std::fs::File;
use std::io::{IoSlice, Read as _, Write as _};
use std::mem::size_of;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use batchwise_core::sense::queue::QueueState;
use batchwise_hint::layout::{Header, Identity, MAGIC, PAGE, Registration};
use batchwise_hint::reader::monotonic_ns;
use batchwise_hint::{Hints, SOCKET_VARIABLE};
use batchwise_testbed::stage::eventually;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect, sendmsg,
    socket,
};
use nix::sys::uio::pwrite;
use nix::unistd::ftruncate;
use rustix::net::sockopt;
use tempfile::TempDir;

use super::windows::HintReading;
use super::*;

const SERVICE: &str = "10.9.8.7:6379";
const HOUR_NS: u64 = 3_600_000_000_000;

/// The socket that this process's hints look for; the tests take turns at it.
struct SocketPath {
    path: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

fn place() -> SocketPath {
    static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
        let folder = TempDir::new().expect("a folder");
        // SAFETY: nothing else in these tests writes the environment, and the hints' link, which
        // reads it, does not run yet.
        unsafe { std::env::set_var(SOCKET_VARIABLE, folder.path().join("hint.sock")) };
        folder
    });
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let path = FOLDER.path().join("hint.sock");
    SocketPath { path, _turn }
}

impl SocketPath {
    fn listen(&self) -> HintListener {
        HintListener::bind(&self.path, &[]).expect("the socket is free")
    }
}

/// Polls until the handle for the connection or service `service` is there.
fn find(listener: &mut HintListener, service: &str) -> HintReading {
    let service = service.parse().expect("an address");
    let found = || listener.poll().into_iter().find(|r| r.service == service);
    eventually("the hint", found, String::new)
}

#[test]
fn a_handle_of_an_application_tells_its_latency() {
    let place = place();
    let mut listener = place.listen();
    let hints = Hints::for_service(SERVICE.parse().expect("an address"));
    let start = find(&mut listener, SERVICE);
    assert_eq!(start.cookie, None);
    let mut own = Duration::ZERO;
    for _ in 0..20 {
        let begin = Instant::now();
        hints.create(1);
        // a response may come to another thread
        thread::scope(|s| {
            s.spawn(|| {
                thread::sleep(Duration::from_millis(5));
                hints.complete(1);
            });
        });
        own += begin.elapsed();
    }
    let end = find(&mut listener, SERVICE);
    assert_eq!((end.id, end.queue.size), (start.id, 0));
    let window = end.queue.since(&start.queue);
    assert_eq!(window.total, 20);
    let (hint, own) = (window.delay().expect("20"), own.as_nanos() as f64 / 20.0);
    assert!((5e6..=own).contains(&hint), "{hint} {own}");

    drop(hints);
    find(&mut listener, SERVICE);
    assert!(
        listener.poll().is_empty(),
        "a closed handle is read once more"
    );
}

#[test]
fn what_was_outstanding_when_an_agent_comes_is_counted_from_then_on() {
    let place = place();
    let mut listener = place.listen();
    // three were created and one completed before, when no clock was read
    let (_peer, memory) = hand_over(&place.path, &[2, 0, 0, 0, 0, 3, 1]);
    let began = Instant::now();
    let start = find(&mut listener, SERVICE);
    assert_eq!((start.queue.size, start.queue.total), (2, 0));
    thread::sleep(Duration::from_millis(10));
    write_shard(&memory, &[4, 0, 0, 2, 2 * monotonic_ns(), 3, 1]);
    let end = find(&mut listener, SERVICE);
    assert_eq!((end.queue.size, end.queue.total), (0, 2));
    let stay = end.queue.since(&start.queue).delay().expect("two left");
    let watched = began.elapsed().as_nanos() as f64;
    assert!((10e6..=watched).contains(&stay), "{stay} {watched}");
}

#[test]
fn a_handle_that_lives_between_two_polls_is_counted_all_the_same() {
    let place = place();
    let mut listener = place.listen();
    let _lasting = Hints::for_service("10.0.0.1:1".parse().expect("an address"));
    find(&mut listener, "10.0.0.1:1");
    let brief = Hints::for_service(SERVICE.parse().expect("an address"));
    for _ in 0..7 {
        drop(brief.request());
    }
    drop(brief);
    let reading = find(&mut listener, SERVICE);
    assert_eq!((reading.queue.total, reading.queue.size), (7, 0));
    let windows = HintHistory::default().windows(&[reading]);
    let window = windows.of_service(&reading.service).expect("its window");
    assert_eq!(window.total, 7);
    assert!(window.delay().expect("seven") < window.time as f64);
}

#[test]
fn windows_are_differences_summed_by_service_and_by_connection() {
    let reading = |id, cookie, at, total| HintReading {
        id,
        cookie,
        service: SERVICE.parse().expect("an address"),
        born: 0,
        at,
        queue: QueueState {
            time: at,
            integral: total * 10,
            total,
            size: 0,
        },
    };
    let mut history = HintHistory::default();
    history.windows(&[reading(1, None, 100, 5), reading(2, Some(9), 100, 7)]);
    let windows = history.windows(&[
        reading(1, None, 200, 6),
        reading(2, Some(9), 200, 9),
        reading(3, Some(9), 200, 4),
    ]);
    let service = SERVICE.parse().expect("an address");
    assert_eq!(
        windows.of_service(&service).map(|w| w.total),
        Some(1 + 2 + 4)
    );
    assert_eq!(windows.of_connection(9).map(|w| w.total), Some(2 + 4));
    assert_eq!(windows.of_connection(1), None);
}

fn dial(path: &Path) -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).expect("a socket");
    let address = UnixAddr::new(path).expect("its address");
    connect(socket.as_raw_fd(), &address).expect("an agent");
    socket
}

fn send(socket: &OwnedFd, bytes: &[u8], descriptors: &[RawFd]) {
    let with = [ControlMessage::ScmRights(descriptors)];
    let with = &with[..usize::from(!descriptors.is_empty())];
    let (fd, parts) = (socket.as_raw_fd(), [IoSlice::new(bytes)]);
    sendmsg::<()>(fd, &parts, with, MsgFlags::MSG_NOSIGNAL, None).expect("sent");
}

fn registration() -> [u8; 64] {
    let identity = Identity {
        cookie: None,
        local: None,
        service: SERVICE.parse().expect("an address"),
    };
    let fresh = false;
    Registration { identity, fresh }.encode()
}

/// A memfd of this size with these words at its beginning.
fn memory(size: i64, seals: SealFlag, words: &[u64]) -> OwnedFd {
    let flags = MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC;
    let memory = memfd_create(c"harm", flags).expect("memory");
    ftruncate(&memory, size).expect("its size");
    write(&memory, words, 0);
    fcntl(&memory, FcntlArg::F_ADD_SEALS(seals)).expect("sealed");
    memory
}

fn write(memory: &OwnedFd, words: &[u64], at: usize) {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    pwrite(memory, &bytes, at as i64).expect("written");
}

/// Memory of one shard that says this, and the connection by which the agent has it.
fn hand_over(path: &Path, shard: &[u64]) -> (OwnedFd, OwnedFd) {
    let memory = memory(PAGE as i64, ALL, &header(1, monotonic_ns()));
    write_shard(&memory, shard);
    let peer = dial(path);
    send(&peer, &registration(), &[memory.as_raw_fd()]);
    (peer, memory)
}

/// Version, created, created_at, completed, completed_at, and the untimed.
fn write_shard(memory: &OwnedFd, words: &[u64]) {
    write(memory, words, size_of::<Header>());
}

/// A header of one shard: magic, version and shards, clock and closed, and the clock's anchor.
fn header(shards: u32, anchor: u64) -> [u64; 5] {
    let two = |low: u32, high: u32| {
        let (low, high) = (low.to_ne_bytes(), high.to_ne_bytes());
        u64::from_ne_bytes([low, high].concat().try_into().expect("eight bytes"))
    };
    [MAGIC, two(1, shards), two(2, 0), anchor, anchor]
}

const ALL: SealFlag = SealFlag::F_SEAL_SHRINK
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_SEAL);

#[test]
fn what_cannot_be_read_safely_is_refused_and_disturbs_nobody() {
    let place = place();
    let mut listener = place.listen();
    let hints = Hints::for_service("10.0.0.1:1".parse().expect("an address"));
    let good = find(&mut listener, "10.0.0.1:1");

    let now = monotonic_ns();
    let page = PAGE as i64;
    let fine = header(1, now);
    let bad = [
        memory(page, SealFlag::F_SEAL_GROW, &fine),
        memory(0, ALL, &[]),
        memory(page - 1, ALL, &fine),
        memory(1 << 20, ALL, &fine),
        memory(1 << 30, ALL, &fine),
        memory(page, ALL, &[]),
        memory(page, ALL, &header(0, now)),
        memory(page, ALL, &header(32, now)),
        memory(page, ALL, &header(1, now + HOUR_NS)),
        File::open("/dev/zero").expect("zeros").into(),
    ];
    let mut peers = Vec::new();
    for memory in &bad {
        let peer = dial(&place.path);
        send(&peer, &registration(), &[memory.as_raw_fd()]);
        peers.push(peer);
    }
    let open = memory(page, ALL, &fine);
    let fd = open.as_raw_fd();
    let messages: [(&[u8], &[RawFd]); 5] = [
        (b"hello", &[]),
        (&registration(), &[]),
        (&registration()[1..], &[fd]),
        (&registration(), &[fd, fd]),
        (&[0; 1000], &[fd; 253]),
    ];
    let before = descriptors();
    for (bytes, descriptors) in messages {
        let peer = dial(&place.path);
        send(&peer, bytes, descriptors);
        peers.push(peer);
    }
    hints.create(1);
    let after = find(&mut listener, "10.0.0.1:1");
    assert_eq!((after.id, after.queue.size), (good.id, 1));
    assert_eq!(listener.poll().len(), 1, "only the good one is left");
    drop(peers);
    let closed = || (descriptors() <= before).then_some(());
    eventually("what they sent to be closed", closed, String::new);
}

#[test]
fn a_socket_that_lingers_keeps_nothing_from_being_closed() {
    let place = place();
    let mut listener = place.listen();
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address");
    let others: Vec<_> = (0..5)
        .map(|_| {
            let client = TcpStream::connect(address).expect("a connection");
            let (other, _) = server.accept().expect("the same");
            let linger = sockopt::set_socket_linger(&client, Some(Duration::from_secs(3600)));
            linger.expect("it lingers");
            client.set_nonblocking(true).expect("no blocking");
            while (&client).write(&[7; 65_536]).is_ok() {}
            // closing it is the listener's
            send(&dial(&place.path), &[1, 2, 3], &[client.as_raw_fd()]);
            other
        })
        .collect();
    listener.poll();
    for mut other in others.into_iter().rev() {
        let patience = other.set_read_timeout(Some(Duration::from_secs(10)));
        patience.expect("a timeout");
        other.read_to_end(&mut Vec::new()).expect("its end");
    }
}

/// How often this process has the memory open that means harm.
fn descriptors() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").expect("our descriptors");
    let links = open
        .flatten()
        .filter_map(|fd| std::fs::read_link(fd.path()).ok());
    let harm = links.filter(|link| link.to_string_lossy().starts_with("/memfd:harm"));
    harm.count()
}

#[test]
fn a_liar_is_dropped() {
    let place = place();
    let mut listener = place.listen();
    let now = monotonic_ns();
    let memory = memory(PAGE as i64, ALL, &header(1, now));
    let peer = dial(&place.path);
    send(&peer, &registration(), &[memory.as_raw_fd()]);
    find(&mut listener, SERVICE);
    // one request, created long before there was a machine
    write_shard(&memory, &[2, 1, 1u64 << 62]);
    assert!(listener.poll().is_empty());
    assert!(listener.poll().is_empty());
}

#[test]
fn hints_that_are_always_being_written_stay_at_what_they_said_last() {
    let place = place();
    let mut listener = place.listen();
    let (_peer, memory) = hand_over(&place.path, &[2, 0, 0, 0, 0, 3, 1]);
    let before = find(&mut listener, SERVICE).queue;
    // an odd version, and another number
    write_shard(&memory, &[3, 0, 0, 0, 0, 9, 1]);
    let after = find(&mut listener, SERVICE).queue;
    assert_eq!((after.size, after.total), (before.size, before.total));
}

#[test]
fn a_process_has_8192_handles_and_its_user_twice_as_many_and_no_more() {
    const MOST: usize = 8_192;
    let place = place();
    let mut listener = place.listen();
    let memory = memory(PAGE as i64, ALL, &header(1, monotonic_ns()));
    let peers: Vec<_> = (0..3).map(|_| dial(&place.path)).collect();
    let register = |peer, handles: usize| {
        for _ in 0..handles {
            send(peer, &registration(), &[memory.as_raw_fd()]);
        }
    };
    for (peer, all) in peers.iter().zip([MOST, 2 * MOST]) {
        thread::scope(|scope| {
            // the socket takes a few hundred at a time
            scope.spawn(|| register(peer, MOST));
            let all = || (listener.poll().len() == all).then_some(());
            eventually("all of them", all, String::new);
        });
    }
    register(&peers[2], 1);
    listener.poll();
    assert_eq!(listener.poll().len(), 2 * MOST, "it was dropped");
    register(&peers[0], 1);
    listener.poll();
    assert_eq!(listener.poll().len(), MOST, "it was dropped");
}

#[test]
fn other_users_are_refused_unless_they_are_allowed() {
    // another test counts who has such memory
    let _turn = place();
    const NOBODY: u32 = 65_534;
    let folder = TempDir::new().expect("a folder");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("a readable folder");
    let path = folder.path().join("hint.sock");
    let call = |times: usize| {
        // credentials are a thread's own, as long as libc does not carry them to the others
        let path = path.clone();
        let caller = thread::spawn(move || {
            let (keep, nobody) = (u32::MAX, NOBODY);
            // SAFETY: the call takes integers, and changes this thread only.
            let result = unsafe { libc::syscall(libc::SYS_setresuid, keep, nobody, keep) };
            assert_eq!(result, 0, "run as root");
            let now = monotonic_ns();
            let memory = memory(PAGE as i64, ALL, &header(1, now));
            let peer = |_| {
                let peer = dial(&path);
                send(&peer, &registration(), &[memory.as_raw_fd()]);
                peer
            };
            (0..times).map(peer).collect::<Vec<_>>()
        });
        caller.join().expect("it calls")
    };
    for (allowed, expected) in [(&[][..], 0), (&[NOBODY], 1)] {
        let mut listener = HintListener::bind(&path, allowed).expect("the socket is free");
        let _peer = call(1);
        let readings = listener.poll();
        assert_eq!(readings.len(), expected, "{readings:?}");
    }
    // a quarter of all places
    let mut listener = HintListener::bind(&path, &[NOBODY]).expect("the socket is free");
    let mut peers = Vec::new();
    for _ in 0..3 {
        peers.extend(call(100));
        listener.poll();
    }
    let all = || (listener.poll().len() == 256).then_some(());
    eventually("256 of 300", all, String::new);
}

#[test]
fn a_second_agent_at_one_socket_is_refused_and_a_dead_ones_socket_taken_over() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("new/hint.sock");
    let first = HintListener::bind(&path, &[]).expect("the socket is free");
    let error = HintListener::bind(&path, &[]).expect_err("it is taken");
    assert!(error.to_string().contains("another agent"), "{error}");
    std::mem::forget(dial(&path));
    drop(first);
    assert!(
        !path.exists(),
        "an agent that ends in order removes its socket"
    );

    let flags = SockFlag::SOCK_CLOEXEC;
    let dead = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).expect("a socket");
    bind(dead.as_raw_fd(), &UnixAddr::new(&path).expect("an address")).expect("a file");
    drop(dead);
    assert!(path.exists());
    drop(HintListener::bind(&path, &[]).expect("a stale socket is no obstacle"));

    std::fs::write(&path, "something").expect("a file");
    let error = HintListener::bind(&path, &[]).expect_err("it is no socket");
    assert!(error.to_string().contains("something else"), "{error}");
}
