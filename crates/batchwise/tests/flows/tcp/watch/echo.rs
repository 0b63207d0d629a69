//! A server and a client of the test's own, each in its host, both at hand to look into their
//! sockets: the client sends, the server sends it back, over and over.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use batchwise_testbed::stage::{Stage, connect, eventually, listen};
use socket2::SockRef;

const MESSAGE: [u8; 700] = [b'x'; 700];
/// Between two messages.
const PAUSE: Duration = Duration::from_micros(200);

/// Options that watching must not change.
fn options(stream: &TcpStream) -> String {
    let s = SockRef::from(stream);
    let flags = (s.tcp_nodelay(), s.tcp_cork(), s.keepalive());
    format!("{flags:?} {:?} {:?}", s.tcp_mss(), s.tcp_congestion())
}

/// Both ends of one connection, in use until dropped.
pub struct Echo {
    ends: [TcpStream; 2],
    rounds: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Echo {
    /// Connects client and server, with and without TCP_NODELAY, and starts the traffic.
    pub fn start(stage: &Stage, port: u16) -> Self {
        let address = stage.hosts.server_address(port);
        let listener = listen(&stage.hosts.server, address);
        let mut client = connect(&stage.hosts.client, address);
        client.set_nodelay(true).expect("TCP_NODELAY");
        let (mut server, _) = listener.accept().expect("the client");
        let copy = |s: &TcpStream| s.try_clone().expect("a second handle");
        let ends = [copy(&client), copy(&server)];

        let rounds = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (counter, stopped) = (rounds.clone(), stop.clone());
        let asks = std::thread::spawn(move || {
            let mut answer = MESSAGE;
            while !stopped.load(Ordering::Relaxed) {
                client.write_all(&MESSAGE).expect("sent");
                client.read_exact(&mut answer).expect("the echo");
                assert_eq!(answer, MESSAGE);
                counter.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
        });
        let answers = std::thread::spawn(move || {
            let mut buffer = MESSAGE;
            while let Ok(n @ 1..) = server.read(&mut buffer) {
                if server.write_all(&buffer[..n]).is_err() {
                    break;
                }
            }
        });
        Self {
            ends,
            rounds,
            stop,
            threads: vec![asks, answers],
        }
    }

    /// The options of both sockets.
    pub fn options(&self) -> [String; 2] {
        self.ends.each_ref().map(options)
    }

    /// Waits until many more messages have passed.
    pub fn assert_goes_on(&self) {
        let goal = self.rounds.load(Ordering::Relaxed) + 300;
        eventually(
            "300 more messages",
            || (self.rounds.load(Ordering::Relaxed) >= goal).then_some(()),
            || format!("{} so far", self.rounds.load(Ordering::Relaxed)),
        );
    }

    /// Stops the traffic; fails if a message was ever lost or changed.
    pub fn finish(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let answers = self.threads.pop();
        for thread in self.threads.drain(..) {
            thread.join().expect("every message came back");
        }
        let _ = self.ends[0].shutdown(std::net::Shutdown::Both);
        if let Some(answers) = answers {
            answers.join().expect("the server ends");
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
