//! The library without an agent, on real sockets over loopback.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use batchwise_window::{Info, Mode, Set, WindowedStream, space};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_linger, set_socket_recv_buffer_size, set_socket_send_buffer_size,
};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, connect, ipproto, listen, socket, socket_with,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let client = TcpStream::connect(address).expect("a connection");
    (client, listener.accept().expect("its other end").0)
}

/// No test may find the agent of this machine.
fn alone() -> Set {
    // SAFETY: tests set it to the same value, and nothing else reads the environment meanwhile.
    unsafe { std::env::set_var("BATCHWISE_WINDOW_SOCKET", "/nonexistent/window.sock") };
    Set::new().expect("a set")
}

/// Hands over data until some of it waits in the kernel.
fn stuff(stream: &TcpStream) -> usize {
    stream.set_nonblocking(true).expect("no blocking");
    let mut written = 0;
    while let Ok(n) = (&*stream).write(&[7; 65_536]) {
        written += n;
    }
    let info = Info::of(stream.as_fd()).expect("TCP_INFO");
    assert!(info.unsent() > 0);
    written
}

fn is_readable(set: &Set, time: Duration) -> bool {
    let mut fds = [PollFd::new(set, PollFlags::IN)];
    let time = Timespec::try_from(time).expect("a time");
    poll(&mut fds, Some(&time)).expect("a poll") > 0
}

#[test]
fn a_new_connection_has_space_for_its_first_window() {
    let (client, _server) = pair();
    let segment = Info::of(client.as_fd()).expect("TCP_INFO").segment();
    assert!(space(client.as_fd()).expect("the space") >= segment);
}

#[test]
fn what_is_not_a_connection_of_tcp_is_refused() {
    let set = alone();
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    assert!(set.add(udp.as_fd(), 1).is_err());
    let file = std::fs::File::open("/dev/null").expect("a file");
    assert!(set.add(file.as_fd(), 1).is_err());
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let mptcp = socket(family, kind, Some(ipproto::MPTCP)).expect("net.mptcp.enabled");
    let refused = set.add(mptcp.as_fd(), 1).expect_err("none of TCP's");
    assert_eq!(refused.raw_os_error(), Some(libc::EPROTONOSUPPORT));
    let tcp = socket(family, kind, None).expect("a socket");
    let refused = set.add(tcp.as_fd(), 1).expect_err("no peer");
    assert_eq!(refused.kind(), std::io::ErrorKind::NotConnected);
}

#[test]
fn a_connecting_socket_may_be_added_and_has_any_space() {
    let set = alone();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    listen(&listener, 0).expect("room for one");
    let _first = TcpStream::connect(address).expect("a connection");
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let second = socket_with(family, kind, SocketFlags::NONBLOCK, None).expect("a socket");
    assert_eq!(connect(&second, &address), Err(Errno::INPROGRESS));
    let key = set.add(second.as_fd(), 1).expect("a key");
    assert!(set.wait(key, second.as_fd()).expect("an answer").is_some());
}

/// An outer poller that is told of edges only, as tokio's, hears of all.
#[tokio::test]
async fn an_edge_tells_tokio_of_every_socket_however_many_ring_at_once() {
    const SOCKETS: usize = 300;
    // SAFETY: a set owns its descriptor, which stays the same until it is dropped.
    let set = unsafe { AsyncFd::register(alone()) }.expect("a set in a runtime");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    set_socket_recv_buffer_size(&listener, 4_096).expect("little room");
    let address = listener.local_addr().expect("its address");
    let mut servers = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..SOCKETS {
        let client = TcpStream::connect(address).expect("a connection");
        servers.push(listener.accept().expect("its other end").0);
        set_socket_send_buffer_size(&client, 65_536).expect("little room");
        let key = set.get_ref().add(client.as_fd(), 1).expect("a key");
        stuff(&client);
        let space = set.get_ref().wait(key, client.as_fd());
        assert_eq!(space.expect("an answer"), None);
        clients.push(client);
    }
    drop(servers); // with data that was not read: resets
    let mut told = BTreeSet::new();
    while told.len() < SOCKETS {
        // those that ring after an edge was heard make the next
        let edge = timeout(Duration::from_secs(60), set.readable()).await;
        let mut guard = edge.expect("no edge is lost").expect("an edge");
        let mut keys = Vec::new();
        set.get_ref().ready(&mut keys).expect("what is ready");
        guard.clear_ready();
        told.extend(keys);
    }
}

#[tokio::test]
async fn a_stream_that_no_set_takes_is_not_lost_and_says_why() {
    let (client, server) = pair();
    client.set_nonblocking(true).expect("no blocking");
    set_socket_linger(&server, Some(Duration::ZERO)).expect("a reset at the end");
    drop(server);
    let stream = tokio::net::TcpStream::from_std(client).expect("a stream");
    stream.readable().await.expect("the reset is there");
    let mut stream = WindowedStream::new(stream);
    assert!(matches!(stream.mode(), Mode::Unwindowed(why) if !why.is_empty()));
    let error = stream.write_all(&[1]).await.expect_err("it was reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn without_an_agent_a_set_says_so_and_wakes_when_nothing_waits_in_the_kernel() {
    let set = alone();
    assert!(matches!(set.mode(), Mode::Fallback(why) if !why.is_empty()));
    let (client, mut server) = pair();
    let key = set.add(client.as_fd(), 1).expect("a key");
    assert!(set.wait(key, client.as_fd()).expect("an answer").is_some());
    let written = stuff(&client);
    assert_eq!(set.wait(key, client.as_fd()).expect("an answer"), None);
    assert!(!is_readable(&set, Duration::from_millis(50)));

    let reader = std::thread::spawn(move || {
        let mut all = vec![0; written];
        server.read_exact(&mut all).expect("all of it");
        server
    });
    assert!(is_readable(&set, Duration::from_secs(10)));
    let mut keys = Vec::new();
    set.ready(&mut keys).expect("what is ready");
    assert_eq!(keys, [key]);
    let _server = reader.join().expect("the reader");
    assert!(set.wait(key, client.as_fd()).expect("an answer").is_some());
    assert!(!is_readable(&set, Duration::from_millis(10)), "said once");
}

#[test]
fn a_key_that_was_removed_is_no_key_any_more() {
    let set = alone();
    let (client, _server) = pair();
    let key = set.add(client.as_fd(), 1).expect("a key");
    set.remove(key);
    assert!(set.wait(key, client.as_fd()).is_err());
    let other = set.add(client.as_fd(), 1).expect("a key");
    assert_ne!(key, other);
}

#[test]
fn a_socket_that_is_reset_while_its_application_waits_wakes_it() {
    let set = alone();
    let (client, server) = pair();
    let key = set.add(client.as_fd(), 1).expect("a key");
    stuff(&client);
    assert_eq!(set.wait(key, client.as_fd()).expect("an answer"), None);
    drop(server); // with data that was not read: a reset
    assert!(is_readable(&set, Duration::from_secs(10)));
    let mut keys = Vec::new();
    set.ready(&mut keys).expect("what is ready");
    assert_eq!(keys, [key]);
    let any = set.wait(key, client.as_fd()).expect("an answer");
    assert!(any.is_some(), "a write tells what is the matter");
    assert!((&client).write(&[1]).is_err());
}

#[tokio::test]
async fn a_windowed_stream_carries_every_byte_and_leaves_little_in_the_kernel() {
    drop(alone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("its address");
    let client = tokio::net::TcpStream::connect(address)
        .await
        .expect("a connection");
    let (mut server, _) = listener.accept().await.expect("its other end");
    let mut stream = WindowedStream::new(client);
    let sent: Vec<u8> = (0..4_000_000_u32).map(|i| (i % 251) as u8).collect();
    let expected = sent.clone();
    let writer = tokio::spawn(async move {
        let mut most = 0;
        for part in sent.chunks(100_000) {
            stream.write_all(part).await.expect("a write");
            let info = Info::of(stream.get_ref().as_fd()).expect("TCP_INFO");
            most = most.max(info.unsent());
        }
        stream.shutdown().await.expect("an end");
        (
            most,
            3 * Info::of(stream.get_ref().as_fd())
                .expect("TCP_INFO")
                .segment(),
        )
    });
    let mut received = Vec::new();
    server.read_to_end(&mut received).await.expect("all of it");
    assert!(received == expected);
    let (most, three_segments) = writer.await.expect("the writer");
    assert!(most <= three_segments, "{most} bytes waited");
}

#[test]
fn the_example_in_c_sends_a_file() {
    let folder = std::env::temp_dir().join(format!("bw-window-c-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (program, file) = (folder.join("sender"), folder.join("file"));
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let test = std::env::current_exe().expect("our own path");
    let library = test.with_file_name("libbatchwise_window.a");
    let library = if library.exists() {
        library
    } else {
        let deps = test.parent().expect("a folder");
        deps.with_file_name("libbatchwise_window.a")
    };
    let compiled = std::process::Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(root.join("examples/sender.c"))
        .arg("-I")
        .arg(root.join("include"))
        .arg(library)
        .args(["-lpthread", "-ldl", "-lm"])
        .output()
        .expect("a C compiler");
    let errors = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{errors}");

    let sent: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 253) as u8).collect();
    std::fs::write(&file, &sent).expect("a file");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let mut sender = std::process::Command::new(&program)
        .args(["127.0.0.1", &port.to_string()])
        .env("BATCHWISE_WINDOW_SOCKET", "/nonexistent/window.sock")
        .stdin(std::fs::File::open(&file).expect("the file"))
        .spawn()
        .expect("the example");
    let mut received = Vec::new();
    let (mut server, _) = listener.accept().expect("a connection");
    server.read_to_end(&mut received).expect("all of it");
    assert!(sender.wait().expect("its end").success());
    assert!(received == sent);
    std::fs::remove_dir_all(&folder).expect("ours");
}
