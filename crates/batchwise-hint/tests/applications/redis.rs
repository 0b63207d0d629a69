//! The C example, built as its users would and run against a real Redis.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use batchwise_hint::SOCKET_VARIABLE;
use tempfile::TempDir;

use crate::support::{Agent, until};

/// Killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The library for C, which cargo builds beside this test.
fn library() -> PathBuf {
    let test = env::current_exe().expect("our own path");
    let folder = test.parent().expect("a folder");
    let names = ["libbatchwise_hint.a"].map(|n| folder.join(n));
    let beside = folder.with_file_name("libbatchwise_hint.a");
    let found = names.into_iter().chain([beside]).find(|p| p.exists());
    found.expect("libbatchwise_hint.a: cargo builds it with the library")
}

fn compile(into: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = into.join("redis_hiredis");
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(root.join("examples/redis_hiredis.c"))
        .arg("-I")
        .arg(root.join("include"))
        .arg(library())
        .args(["-lhiredis", "-lpthread", "-ldl", "-lm"])
        .output()
        .expect("a C compiler");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "is libhiredis-dev installed? {errors}"
    );
    program
}

fn redis(folder: &Path) -> (Running, SocketAddr) {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("its address");
    drop(free);
    let server = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--port", &address.port().to_string(), "--dir"])
        .arg(folder)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server");
    let mut server = Running(server);
    until("Redis", || {
        let ended = server.0.try_wait().expect("its state");
        assert!(ended.is_none(), "is {address} taken? Redis: {ended:?}");
        TcpStream::connect(address).ok()
    });
    (server, address)
}

#[test]
fn a_c_client_of_redis_is_timed_as_it_times_itself() {
    let folder = TempDir::new().expect("a folder");
    let program = compile(folder.path());
    let (_redis, address) = redis(folder.path());
    let path = folder.path().join("hint.sock");
    let agent = Agent::listen(&path);

    // each takes so long that it does not matter when the client once waits for a CPU between the clocks
    for (depth, count) in [("1", "20000"), ("16", "2000"), ("200", "2000")] {
        let client = Command::new(&program)
            .args(["127.0.0.1", &address.port().to_string(), count, depth])
            .env(SOCKET_VARIABLE, &path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the client");
        let mut client = Running(client);
        let application = agent.accept();
        let mut handle = agent.next(&application);
        let identity = handle.registration.identity;
        assert_eq!(identity.service, address);
        assert!(identity.cookie.is_some());
        let before = handle.read();

        let mut stdin = client.0.stdin.take().expect("its input");
        writeln!(stdin).expect("it begins");
        let mut line = String::new();
        let mut stdout = BufReader::new(client.0.stdout.take().expect("its output"));
        stdout.read_line(&mut line).expect("its figures");
        let own: serde_json::Value = serde_json::from_str(&line).expect("JSON");

        let (requests, hint) = handle.mean_since(&before);
        assert_eq!(Some(requests), own["requests"].as_u64());
        let own = own["mean_ns"].as_f64().expect("a mean");
        let ratio = hint / own;
        println!(
            "depth {depth}: {requests} requests, {hint:.0} ns by hints, {own:.0} ns by the client: {ratio:.4}"
        );
        // both clocks are read for the same requests; between them lies the reading itself
        assert!((0.98..=1.02).contains(&ratio), "depth {depth}: {ratio}");

        writeln!(stdin).expect("it ends");
        let status = client.0.wait().expect("its end");
        assert!(status.success(), "{status}");
        assert!(handle.read().closed);
    }
}
