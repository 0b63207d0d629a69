//! Handles, threads, forks, and agents that come and go.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use batchwise_hint::{Hints, ffi};

use crate::hint_socket;
use crate::support::{Agent, until};

fn service(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

#[test]
fn more_threads_than_shards_lose_no_request() {
    const THREADS: u64 = 200;
    const ROUNDS: u64 = 2_000;
    let socket = hint_socket();
    let agent = Agent::listen(&socket.path);
    let hints = Hints::for_service(service(1));
    let application = agent.accept();
    let mut handle = agent.find(&application, service(1));
    let before = handle.read();
    let (all, done) = (Barrier::new(THREADS as usize), AtomicBool::new(false));
    thread::scope(|scope| {
        // who reads meanwhile sees whole updates only
        let reader = scope.spawn(|| {
            let mut handle = handle;
            while !done.load(Ordering::Relaxed) {
                let now = handle.read();
                let late = now.sums.created.saturating_sub(before.sums.created);
                let area = now
                    .sums
                    .created
                    .wrapping_mul(now.ticks)
                    .wrapping_sub(now.sums.created_at);
                let area = area as f64 * now.ns_per_tick;
                assert!(area <= late as f64 * 600e9, "{area} ns of {late} requests");
            }
            handle
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    all.wait();
                    for n in 0..ROUNDS {
                        hints.create(1 + (n % 3) as u32);
                        hints.complete(1 + (n % 3) as u32);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("it counts");
        }
        done.store(true, Ordering::Relaxed);
        let mut handle = reader.join().expect("it reads");
        let (completed, mean) = handle.mean_since(&before);
        let expected: u64 = (0..ROUNDS).map(|n| 1 + n % 3).sum();
        assert_eq!(completed, THREADS * expected);
        assert!(mean > 0.0, "{mean}");
    });
}

#[test]
fn a_connection_is_known_by_its_cookie_and_addresses() {
    let socket = hint_socket();
    let agent = Agent::listen(&socket.path);
    for any in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
        let listener = TcpListener::bind(any).expect("a port");
        let port = listener.local_addr().expect("its address").port();
        // over the last one IPv4 comes to an IPv6 socket
        let stream = TcpStream::connect(("::1", port))
            .or_else(|_| TcpStream::connect(("127.0.0.1", port)))
            .expect("it listens");
        let hints = Hints::for_connection(&stream);
        assert!(hints.is_open());
        let application = agent.accept();
        let remote = stream.peer_addr().expect("connected");
        let identity = agent.find(&application, remote).registration.identity;
        assert_eq!(identity.local, stream.local_addr().ok());
        assert!(identity.cookie.is_some_and(|c| c > 0));
        drop(application);
        drop(hints);
    }
}

#[test]
fn what_is_no_connection_gives_a_handle_that_does_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (unix, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    for hints in [
        Hints::for_connection(&listener),
        Hints::for_connection(&unix),
        Hints::for_connection(&std::fs::File::open("/dev/null").expect("nothing")),
    ] {
        assert!(!hints.is_open());
        hints.create(1);
        hints.complete(1);
    }
    for fd in [-1, listener.as_raw_fd(), 1 << 30] {
        assert!(ffi::bw_hint_open_fd(fd).is_null());
    }
    let none = std::ptr::null_mut();
    // SAFETY: null is allowed everywhere.
    unsafe {
        assert!(ffi::bw_hint_open_service(std::ptr::null(), 16).is_null());
        ffi::bw_hint_create(none, 1);
        ffi::bw_hint_complete(none, 1);
        ffi::bw_hint_close(none);
    }
}

/// The application has noticed that its last agent is gone: also that of the test before.
fn no_agent_is_left(path: &Path) {
    let agent = Agent::listen(path);
    let hints = Hints::for_service(service(20));
    let application = agent.accept();
    let mut handle = agent.find(&application, service(20));
    drop(agent); // first: who is hung up on looks for it again
    drop(application);
    until("calls to go untimed", || {
        hints.create(1);
        hints.complete(1);
        (handle.read().sums.untimed_completed > 0).then_some(())
    });
}

#[test]
fn without_an_agent_no_clock_is_read_and_outstanding_requests_stay_known() {
    let socket = hint_socket();
    no_agent_is_left(&socket.path);
    let hints = Hints::for_service(service(2));
    hints.create(5);
    hints.complete(2);
    let agent = Agent::listen(&socket.path);
    let application = agent.accept();
    let mut handle = agent.find(&application, service(2));
    let sums = handle.read().sums;
    assert_eq!((sums.untimed_created, sums.untimed_completed), (5, 2));
    assert_eq!((sums.created, sums.created_at), (0, 0));
    assert!(!handle.registration.fresh);
}

#[test]
fn agents_come_and_go_and_handles_find_the_next_one() {
    let socket = hint_socket();
    let hints = Hints::for_service(service(3));
    let mut completed = 0;
    for _ in 0..3 {
        let agent = Agent::listen(&socket.path);
        let application = agent.accept();
        let mut handle = agent.find(&application, service(3));
        let before = handle.read();
        hints.create(4);
        hints.complete(4);
        assert_eq!(handle.mean_since(&before).0, 4);
        completed += 4;
        // it hangs up without a word
        drop(agent);
        drop(application);
        until("the calls to go untimed again", || {
            hints.create(1);
            hints.complete(1);
            completed += 1;
            let sums = handle.read().sums;
            assert_eq!(sums.completed + sums.untimed_completed, completed);
            (sums.untimed_completed > before.sums.untimed_completed).then_some(())
        });
        assert!(!handle.read().closed);
    }
}

#[test]
fn a_handle_that_is_dropped_is_marked_closed() {
    let socket = hint_socket();
    let agent = Agent::listen(&socket.path);
    let hints = Hints::for_service(service(4));
    let application = agent.accept();
    let mut handle = agent.find(&application, service(4));
    let clone = hints.clone();
    drop(hints);
    assert!(!handle.read().closed, "a clone lives");
    drop(clone);
    until("the end", || handle.read().closed.then_some(()));
}

#[test]
fn a_forked_child_does_not_write_where_its_parent_counts() {
    let socket = hint_socket();
    let agent = Agent::listen(&socket.path);
    let hints = Hints::for_service(service(5));
    let application = agent.accept();
    let mut handle = agent.find(&application, service(5));
    hints.create(1);
    // SAFETY: the child only counts, which allocates nothing and takes no lock, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        for _ in 0..1_000 {
            hints.create(1);
        }
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0, "no process");
    let mut status = 0;
    // SAFETY: our own child, and an int for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    hints.complete(1);
    let now = handle.read();
    assert_eq!((now.sums.created, now.sums.completed), (1, 1));
    assert!(!now.closed);
}
