//! The client's application: connections that ask Redis for echoes and check every byte that comes
//! back, in the ways that applications use sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use batchwise_testbed::stage::eventually;
use batchwise_testbed::stage::scene::Scene;
use nix::libc::MSG_MORE;
use socket2::SockRef;

use crate::tcp::tune::sockets::Socket;

/// How a request is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// In one call.
    Whole,
    /// In two calls: with Nagle's algorithm the second waits for the peer's delayed ACK.
    Halves,
    /// In two calls with TCP_CORK set around them.
    Corked,
    /// In two calls, the first with MSG_MORE.
    More,
    /// Many requests, each in a call of its own, before the first reply is read: there is something to
    /// batch.
    Many,
}

/// Requests of [`Style::Many`].
const MANY: usize = 32;

/// Connections in use until dropped.
pub struct Application {
    connections: Vec<TcpStream>,
    replies: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Application {
    /// Connects `count` times and asks on each connection, over and over, with `pause` in between.
    pub fn start(scene: &Scene, count: usize, style: Style, pause: Duration) -> Self {
        Self::start_at(scene, scene.address(), count, style, pause)
    }

    /// The same at an address.
    pub fn start_at(
        scene: &Scene,
        address: SocketAddr,
        count: usize,
        style: Style,
        pause: Duration,
    ) -> Self {
        let replies = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let streams = (0..count).map(|_| scene.stage.connect(address));
        let connections: Vec<TcpStream> = streams.collect();
        let thread = |(id, stream): (usize, &TcpStream)| {
            let mut stream = stream.try_clone().expect("a second handle");
            let (replies, stop) = (replies.clone(), stop.clone());
            std::thread::spawn(move || {
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    echo(&mut stream, style, &format!("{id}-{number}"));
                    replies.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(pause);
                }
            })
        };
        let threads = connections.iter().enumerate().map(thread).collect();
        Self {
            connections,
            replies,
            stop,
            threads,
        }
    }

    /// It asks for TCP_NODELAY, or for Nagle's algorithm, on all its connections.
    pub fn set_nodelay(&self, nodelay: bool) -> Vec<Socket> {
        let set = |s| Socket::set(s, nodelay);
        self.connections.iter().map(set).collect()
    }

    /// Waits until many more replies have come, all of them right.
    pub fn assert_goes_on(&self) {
        let goal = self.replies.load(Ordering::Relaxed) + 200;
        eventually(
            "200 more replies",
            || (self.replies.load(Ordering::Relaxed) >= goal).then_some(()),
            || format!("{} so far", self.replies.load(Ordering::Relaxed)),
        );
    }

    /// Stops; fails if a connection was ever lost or a reply wrong.
    pub fn finish(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("every reply came and was right");
        }
        let replies = self.replies.load(Ordering::Relaxed);
        assert!(replies > 0);
        println!("{replies} replies, all right");
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// One request and its reply, or many.
///
/// # Panics
/// The connection is lost or the reply is wrong.
pub fn echo(stream: &mut TcpStream, style: Style, text: &str) {
    let request = format!("*2\r\n$4\r\nECHO\r\n$40\r\n{text:>40}\r\n").into_bytes();
    let expected = format!("$40\r\n{text:>40}\r\n").into_bytes();
    let (head, tail) = request.split_at(request.len() / 2);
    let replies = if style == Style::Many { MANY } else { 1 };
    match style {
        Style::Whole => stream.write_all(&request).expect("sent"),
        Style::Halves => {
            stream.write_all(head).expect("sent");
            stream.write_all(tail).expect("sent");
        }
        Style::Corked => {
            SockRef::from(&*stream)
                .set_tcp_cork(true)
                .expect("TCP_CORK");
            stream.write_all(head).expect("sent");
            stream.write_all(tail).expect("sent");
            SockRef::from(&*stream)
                .set_tcp_cork(false)
                .expect("TCP_CORK");
        }
        Style::More => {
            let sent = SockRef::from(&*stream).send_with_flags(head, MSG_MORE);
            assert_eq!(sent.expect("sent"), head.len());
            stream.write_all(tail).expect("sent");
        }
        Style::Many => (0..MANY).for_each(|_| stream.write_all(&request).expect("sent")),
    }
    for _ in 0..replies {
        let mut reply = vec![0; expected.len()];
        stream.read_exact(&mut reply).expect("a reply");
        assert_eq!(reply, expected);
    }
}
