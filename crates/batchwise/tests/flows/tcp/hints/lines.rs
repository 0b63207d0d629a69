//! What the lines say when applications give hints.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use batchwise_core::sense::report::{Estimator, Line, Side, Unit};
use batchwise_hint::{Hints, SOCKET_VARIABLE};
use batchwise_testbed::redis::PORT;
use batchwise_testbed::stage::PATIENCE;
use batchwise_testbed::stage::close;
use batchwise_testbed::stage::request::ask;
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::watch::{Watch, now_ns, of};
use tempfile::TempDir;

/// The socket that this process's hints look for.
pub fn socket() -> PathBuf {
    static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
        let folder = TempDir::new().expect("a folder");
        // SAFETY: the tests take turns, and nothing else in them writes the environment.
        unsafe { std::env::set_var(SOCKET_VARIABLE, folder.path().join("hint.sock")) };
        folder
    });
    FOLDER.path().join("hint.sock")
}

/// A client of Redis that gives hints and times itself.
struct Client {
    stream: TcpStream,
    hints: Hints,
    /// Begin and end of every request, ns as the lines have it.
    requests: Vec<(u64, Duration)>,
}

impl Client {
    fn new(stream: TcpStream, hints: Hints) -> Self {
        let requests = Vec::new();
        Self {
            stream,
            hints,
            requests,
        }
    }

    /// Asks for a while.
    fn run(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let begin = Instant::now();
            self.hints.create(1);
            ask(&mut self.stream, b"PING\r\n", b"+PONG\r\n");
            self.hints.complete(1);
            self.requests.push((now_ns(), begin.elapsed()));
        }
    }

    /// Asks until the watcher has lines made by hints, and then for three intervals more.
    fn run_until_heard(&mut self, watch: &Watch) {
        let end = Instant::now() + PATIENCE;
        let heard = |l: &Line| l.estimator == Estimator::Hint;
        while !watch.lines().iter().any(heard) {
            assert!(Instant::now() < end, "no hint in {:#?}", watch.lines());
            self.run(Duration::from_millis(50));
        }
        self.run(4 * batchwise_testbed::stage::watch::INTERVAL);
    }

    /// Number of the requests that ended in the line's interval, and for how long requests were under
    /// way in it, ns, for each of these: what a queue's mean delay is.
    fn own(&self, line: &Line) -> (f64, f64) {
        let begin = line.ts_ns - line.interval_ns;
        let (mut n, mut sum) = (0, 0);
        for &(ended, took) in &self.requests {
            let came = ended - took.as_nanos() as u64;
            sum += ended.min(line.ts_ns).saturating_sub(came.max(begin));
            n += u32::from((begin..line.ts_ns).contains(&ended));
        }
        (f64::from(n), sum as f64 / f64::from(n))
    }
}

/// Watches both hosts, and nothing else on the machine.
fn watch(scene: &Scene, args: &[&str]) -> Watch {
    let socket = socket();
    let hints = ["--hints", socket.to_str().expect("text")];
    let both = scene.client().cgroup().parent();
    Watch::start(scene.client(), PORT, both, &[&hints, args].concat())
}

/// The lines made by hints, which must be there and agree with what the client measured.
fn assert_told(lines: &[Line], client: &Client) {
    let hints: Vec<_> = lines
        .iter()
        .filter(|l| l.estimator == Estimator::Hint)
        .collect();
    assert!(hints.len() >= 3, "{lines:#?}");
    // in the first the hint begins
    for line in &hints[1..hints.len() - 1] {
        let (n, own) = client.own(line);
        let total = line.latency_ns.total.expect("a total") as f64;
        let told = line.throughput_per_s * line.interval_ns as f64 / 1e9;
        println!("{n} requests, {own:.0} ns; told: {told:.0}, {total} ns");
        assert!(close(told, n, 0.05), "{told} {n}");
        assert!(close(total, own, 0.05), "{total} {own}");
        assert_eq!((line.side, line.unit), (Side::Client, Unit::Sends));
        assert_eq!(line.vantage, "application");
        // on a slow machine an interval has too few requests to be sure
        assert!(line.confidence > 0.9 || told < 100.0, "{line:?}");
        let parts = (line.latency_ns.network, line.latency_ns.turnaround);
        assert_eq!(parts, (None, None));
        assert!(line.stages_ns.unacked.is_none());
    }
}

#[test]
fn a_clients_hint_of_a_service_takes_the_place_of_its_sockets_estimate() {
    let scene = Scene::build("hints");
    let address = scene.address();
    let watch = watch(&scene, &["--count", "sends,bytes"]);
    let mut client = Client::new(scene.stage.connect(address), Hints::for_service(address));
    // a hint of a service that no socket is seen of
    let elsewhere: SocketAddr = "10.99.0.1:6379".parse().expect("an address");
    let idle = Hints::for_service(elsewhere);
    drop(idle.request());
    client.run_until_heard(&watch);
    let lines = watch.finish();
    assert_told(&lines, &client);
    for line in &lines {
        assert_eq!(line.service, address.to_string(), "{line:?}");
    }
    for line in of(&lines, Side::Server) {
        assert_ne!(line.estimator, Estimator::Hint, "a hint is the client's");
    }
    let bytes = |l: &&Line| l.unit == Unit::Bytes;
    assert!(lines.iter().filter(bytes).count() > 0);
    for line in lines.iter().filter(bytes) {
        assert_eq!(line.estimator, Estimator::Local, "requests are no bytes");
    }
}

#[test]
fn a_hint_of_a_connection_is_told_of_that_connection() {
    let scene = Scene::build("hintc");
    let address = scene.address();
    let watch = watch(&scene, &["--per-connection"]);
    let mut other = scene.stage.connect(address);
    let stream = scene.stage.connect(address);
    let local = stream.local_addr().expect("connected");
    let hints = Hints::for_connection(&stream);
    let mut client = Client::new(stream, hints);
    ask(&mut other, b"PING\r\n", b"+PONG\r\n");
    client.run_until_heard(&watch);
    let lines = watch.finish();
    assert_told(&lines, &client);
    for line in lines {
        let hinted = line.estimator == Estimator::Hint;
        let connection = line.connection.expect("the two ends");
        assert!(!hinted || connection == format!("{local} -> {address}"));
    }
}

#[test]
fn an_application_outlives_its_watcher_and_finds_the_next() {
    let scene = Scene::build("hintk");
    let address = scene.address();
    // the first handle of all looks up the variable
    socket();
    let mut client = Client::new(scene.stage.connect(address), Hints::for_service(address));
    for round in 0..2 {
        let watch = watch(&scene, &[]);
        client.run_until_heard(&watch);
        let lines = if round == 0 {
            watch.sigkill()
        } else {
            watch.finish()
        };
        assert_told(&lines, &client);
        client.run(Duration::from_millis(100));
    }
}
