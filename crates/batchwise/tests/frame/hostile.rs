//! The exporter and clients that mean harm: the same process, no growth, normal scrapes go on, and
//! SIGTERM ends it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The head of a capture: magic, version 2.4, Ethernet.
pub const EMPTY_CAPTURE: [u8; 24] = [
    0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0,
];

/// An agent that needs no privilege: it waits for a capture on its standard input.
struct Agent {
    process: Child,
    _input: ChildStdin,
    address: SocketAddr,
}

impl Agent {
    fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("its address");
        drop(free);
        let mut process = Command::new(env!("CARGO_BIN_EXE_batchwise"))
            .args(["passive", "--pcap", "-", "--format", "jsonl", "--metrics"])
            .arg(address.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut input = process.stdin.take().expect("its input");
        input.write_all(&EMPTY_CAPTURE).expect("taken");
        let mut agent = Self {
            process,
            _input: input,
            address,
        };
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "it does not listen"
            );
            agent.assert_alive();
            sleep(Duration::from_millis(20));
        }
        agent
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).expect("a timeout");
        stream.set_write_timeout(patience).expect("a timeout");
        stream
    }

    /// What a normal client gets.
    fn scrape(&self) -> String {
        let mut stream = self.connect();
        let request = b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn assert_alive(&mut self) {
        let ended = self.process.try_wait().expect("its state");
        assert_eq!(ended, None, "it has ended");
    }

    /// It serves normal clients within a second, and has not grown by more than 4 MiB.
    fn assert_well(&mut self, before_kib: u64) {
        self.assert_alive();
        let begin = Instant::now();
        let answer = self.scrape();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("# EOF\n"), "{answer}");
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(1), "a scrape took {took:?}");
        let now = self.rss_kib();
        assert!(now < before_kib + 4096, "{before_kib} KiB became {now} KiB");
    }

    fn rss_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.process.id());
        let text = std::fs::read_to_string(path).expect("its status");
        let mut lines = text.lines();
        let rss = lines.find_map(|l| l.strip_prefix("VmRSS:"));
        let number = rss.and_then(|l| l.split_whitespace().next());
        number.and_then(|n| n.parse().ok()).expect("a number")
    }

    /// SIGTERM ends it within five seconds, with success.
    fn assert_ends(mut self) {
        kill(
            Pid::from_raw(self.process.id().cast_signed()),
            Signal::SIGTERM,
        )
        .expect("signalled");
        let begin = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().expect("its state") {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(5),
                "SIGTERM did not end it"
            );
            sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // it is gone already where all went well
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_body_is_neither_read_nor_allocated() {
    let mut agent = Agent::start();
    agent.scrape();
    let before = agent.rss_kib();
    for length in ["4611686018427387904", "18446744073709551615", "104857600"] {
        for method in ["GET", "POST"] {
            let mut stream = agent.connect();
            write!(
                stream,
                "{method} /metrics HTTP/1.1\r\nContent-Length: {length}\r\n\r\nbody"
            )
            .expect("sent");
            // whatever the answer: the connection ends, the agent does not
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
    let mut chunked = agent.connect();
    write!(
        chunked,
        "GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    .expect("sent");
    let megabyte = vec![b'x'; 1 << 20];
    for _ in 0..64 {
        if write!(chunked, "{:x}\r\n", megabyte.len()).is_err()
            || chunked.write_all(&megabyte).is_err()
            || chunked.write_all(b"\r\n").is_err()
        {
            break;
        }
    }
    agent.assert_well(before);
    agent.assert_ends();
}

#[test]
fn a_head_without_an_end_is_refused() {
    let mut agent = Agent::start();
    agent.scrape();
    let before = agent.rss_kib();
    for line in [
        format!("X-Filler: {}\r\n", "y".repeat(1000)),
        "y".repeat(1000),
    ] {
        let mut stream = agent.connect();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\n")
            .expect("sent");
        let refused = (0..65_536).any(|_| stream.write_all(line.as_bytes()).is_err());
        assert!(refused, "64 MiB of head were read");
    }
    agent.assert_well(before);
    agent.assert_ends();
}

#[test]
fn slow_and_idle_clients_and_those_that_do_not_read_keep_nobody_out() {
    // our own ends of a thousand connections
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(4096).min(hard), hard).expect("a higher limit");
    let mut agent = Agent::start();
    agent.scrape();
    let before = agent.rss_kib();
    let mut crowd = Vec::new();
    for n in 0..1000 {
        let mut stream = agent.connect();
        match n % 4 {
            0 | 1 => {} // idle
            2 => stream.write_all(b"GET /met").expect("sent"),
            _ => {
                // asks again and again, and reads nothing
                let request = b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n".repeat(20);
                let _ = stream.write_all(&request);
            }
        }
        crowd.push(stream);
        if n % 250 == 0 {
            agent.assert_well(before);
        }
    }
    agent.assert_well(before);
    // one byte at a time, as long as it is let
    let mut slow = agent.connect();
    let begin = Instant::now();
    while slow.write_all(b"G").is_ok() {
        assert!(
            begin.elapsed() < Duration::from_secs(15),
            "a slow client stays"
        );
        sleep(Duration::from_millis(100));
    }
    agent.assert_well(before);
    agent.assert_ends();
    drop(crowd);
}
