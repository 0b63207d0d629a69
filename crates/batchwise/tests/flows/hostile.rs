//! The exporter and clients that mean harm: the same process, no growth, normal scrapes go on, and
//! SIGTERM ends it. It needs no root, but its turn: others move this process, and what it starts, into cgroups
//! that they remove.

use std::io::{self, PipeWriter, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::MutexGuard;
use std::thread::sleep;
use std::time::{Duration, Instant};

use batchwise_testbed::process::Process;
use batchwise_testbed::stage::{PATIENCE, batchwise, connect_here, eventually, memory, turn};
use batchwise_testbed::stop::Stop;
use nix::sys::signal::{Signal, kill};

/// The head of a capture: magic, version 2.4, Ethernet.
const EMPTY_CAPTURE: [u8; 24] = [
    0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0,
];

/// An agent that needs no privilege: it waits for a capture on its standard input.
struct Agent {
    process: Process,
    _input: PipeWriter,
    address: SocketAddr,
    _turn: MutexGuard<'static, ()>,
}

impl Agent {
    fn start() -> Self {
        let turn = turn();
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("its address");
        drop(free);
        let (capture, mut input) = io::pipe().expect("a pipe");
        input.write_all(&EMPTY_CAPTURE).expect("taken");
        let mut command = batchwise();
        command
            .args(["passive", "--pcap", "-", "--format", "jsonl", "--metrics"])
            .arg(address.to_string())
            .stdin(capture)
            .stdout(Stdio::null());
        let mut process = Process::start("the agent", command).expect("it starts");
        eventually(
            "it to listen",
            || {
                process.check_alive().expect("it runs");
                TcpStream::connect(address).ok()
            },
            String::new,
        );
        Self {
            process,
            _input: input,
            address,
            _turn: turn,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = connect_here(self.address);
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
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

    /// It serves normal clients within a second, and has not grown by more than 4 MiB.
    fn assert_well(&mut self, before: u64) {
        self.process.check_alive().expect("it runs");
        let begin = Instant::now();
        let answer = self.scrape();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("# EOF\n"), "{answer}");
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(1), "a scrape took {took:?}");
        let now = self.memory();
        assert!(now < before + (4 << 20), "{before} bytes became {now}");
    }

    fn memory(&self) -> u64 {
        memory(self.process.pid(), "VmRSS")
    }

    /// SIGTERM ends it within five seconds, with success.
    fn assert_ends(mut self) {
        kill(self.process.pid(), Signal::SIGTERM).expect("signalled");
        let ended = self.process.wait(&Stop::default(), Duration::from_secs(5));
        let status = ended.expect("SIGTERM ends it");
        assert!(status.success(), "{status}");
    }
}

#[test]
fn a_body_is_neither_read_nor_allocated() {
    let mut agent = Agent::start();
    agent.scrape();
    let before = agent.memory();
    for length in ["4611686018427387904", "18446744073709551615", "104857600"] {
        for method in ["GET", "POST"] {
            let mut stream = agent.connect();
            let head = format!("{method} /metrics HTTP/1.1\r\nContent-Length: {length}");
            write!(stream, "{head}\r\n\r\nbody").expect("sent");
            // whatever the answer: the connection ends, the agent does not
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }
    let mut chunked = agent.connect();
    let head = b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    chunked.write_all(head).expect("sent");
    let megabyte = [b"100000\r\n", &[b'x'; 1 << 20][..], b"\r\n"].concat();
    // whether it is taken or not
    let _ = (0..64).try_for_each(|_| chunked.write_all(&megabyte));
    agent.assert_well(before);
    agent.assert_ends();
}

#[test]
fn a_head_without_an_end_is_refused() {
    let mut agent = Agent::start();
    agent.scrape();
    let before = agent.memory();
    for line in [
        format!("X-Filler: {}\r\n", "y".repeat(1000)),
        "y".repeat(1000),
    ] {
        let mut stream = agent.connect();
        let begin = b"GET /metrics HTTP/1.1\r\n";
        stream.write_all(begin).expect("sent");
        let refused = (0..65_536).any(|_| stream.write_all(line.as_bytes()).is_err());
        assert!(refused, "64 MiB of head were read");
    }
    agent.assert_well(before);
    agent.assert_ends();
}

mod long {
    use super::*;

    #[test]
    fn slow_and_idle_clients_and_those_that_do_not_read_keep_nobody_out() {
        let mut agent = Agent::start();
        agent.scrape();
        let before = agent.memory();
        let mut crowd = Vec::new();
        // six times as many as may be open, at the pace at which they are let in
        for n in 0..200 {
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
            if n % 50 == 0 {
                agent.assert_well(before);
            }
        }
        agent.assert_well(before);
        // one byte at a time, as long as it is let
        let mut slow = agent.connect();
        let begin = Instant::now();
        while slow.write_all(b"G").is_ok() {
            let time = begin.elapsed();
            assert!(time < Duration::from_secs(15), "a slow client stays");
            sleep(Duration::from_millis(100));
        }
        agent.assert_well(before);
        agent.assert_ends();
        drop(crowd);
    }
}
