//! What the other end learns: the hints of a client's application, told in TCP options.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use batchwise_core::sense::report::{Estimator, Line, Side, Unit};
use batchwise_core::tune::report::Decision;
use batchwise_hint::Hints;
use batchwise_testbed::process::lock;
use batchwise_testbed::redis::PORT;
use batchwise_testbed::stage::PATIENCE;
use batchwise_testbed::stage::capture::{Capture, Segment};
use batchwise_testbed::stage::request::ask;
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::tune::Agent;
use batchwise_testbed::stage::watch::{Watch, items, of};
use tempfile::TempDir;

use crate::tcp::hints::lines::socket;

/// A request waits for so long in the application before it is sent: no queue of TCP's knows.
const HELD: Duration = Duration::from_millis(20);
/// Lines: some seconds, as tcpdump hands out what it saw a second later.
const ENOUGH: usize = 10;
/// The first half byte of an option's tuple (docs/research/exchange.md): a hint.
const HINT: u8 = 3 << 2 | 1;
/// … and of what an agent says of itself: that it counts.
const STATE: u8 = 3 << 2;
/// IPv4, TCP and its timestamps: a segment without any option of ours.
const PLAIN_HEADERS: usize = 20 + 20 + 12;

/// Connections in use, each of which asks, holds back and asks again, until dropped.
struct Application {
    stop: Arc<AtomicBool>,
    /// For how long each request took.
    took: Arc<Mutex<Vec<Duration>>>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Application {
    /// `hints`: whether it gives any.
    fn start(scene: &Scene, connections: usize, hints: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let took = Arc::new(Mutex::new(Vec::new()));
        let one = |_| {
            let mut stream = scene.stage.connect(scene.address());
            let hints = hints.then(|| Hints::for_service(scene.address()));
            let (stop, took) = (stop.clone(), took.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    let request = hints.as_ref().map(Hints::request);
                    thread::sleep(HELD);
                    ask(&mut stream, b"PING\r\n", b"+PONG\r\n");
                    drop(request);
                    lock(&took).push(begin.elapsed());
                }
            })
        };
        let threads = (0..connections).map(one).collect();
        Self {
            stop,
            took,
            threads,
        }
    }

    /// Requests so far.
    fn requests(&self) -> usize {
        lock(&self.took).len()
    }

    /// Ends it; gives the mean latency that it measured itself, ns.
    fn finish(mut self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("every reply came");
        }
        let sum: Duration = lock(&self.took).iter().sum();
        sum.as_nanos() as f64 / self.requests() as f64
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Far above all that TCP's queues can hold, and of the size of what the client measured, which is
/// what was held back and what a busy machine adds. (Requests that are under way at a window's ends
/// weigh: it may be a little less.)
fn assert_is_the_clients(latency_ns: f64, own_ns: f64) {
    let held = HELD.as_nanos() as f64;
    assert!(own_ns >= held, "{own_ns} ns");
    assert!(
        (held / 2.0..3.0 * own_ns).contains(&latency_ns),
        "{latency_ns} ns told, {own_ns} ns measured"
    );
}

/// The mean latency of all requests of these lines, ns.
fn mean(lines: &[&Line]) -> f64 {
    let parts = lines.iter().filter_map(|l| {
        let total = l.latency_ns.total? as f64;
        Some((items(&[l]), total))
    });
    let (n, sum) = parts.fold((0.0, 0.0), |(n, sum), (items, total)| {
        (n + items, sum + items * total)
    });
    sum / n
}

/// Both ends watch and exchange, the client's with hints.
fn watch_both(scene: &Scene) -> (Watch, Watch) {
    let path = socket();
    let hints = ["--exchange", "--hints", path.to_str().expect("text")];
    (
        Watch::host(scene.server(), PORT, &["--exchange"]),
        Watch::host(scene.client(), PORT, &hints),
    )
}

/// What the options of established segments are: the first half byte of their tuples.
fn kinds<'a>(segments: impl IntoIterator<Item = &'a Segment>) -> Vec<u8> {
    let established = segments.into_iter().filter(|s| !s.syn);
    let ours = established.flat_map(Segment::ours);
    ours.map(|option| option[4] >> 4).collect()
}

#[test]
fn a_servers_agent_reports_what_the_clients_application_measures_and_that_alone_is_exchanged() {
    let scene = Scene::build("hintw");
    let (server, client) = watch_both(&scene);
    let capture = Capture::start(&scene.stage, PORT);
    let application = Application::start(&scene, 1, true);
    let hinted = |l: &Line| l.side == Side::Server && l.estimator == Estimator::Hint;
    let lines = server.until("lines made by the client's hints", 0, |lines| {
        lines.iter().filter(|l| hinted(l)).count() >= ENOUGH
    });
    let asked = application.requests() as f64;
    let own = application.finish();
    let segments = capture.finish();
    client.finish();
    server.finish();

    // in the first the hints begin
    let lines: Vec<&Line> = lines.iter().filter(|l| hinted(l)).skip(1).collect();
    for line in &lines {
        assert_eq!(
            (line.unit, line.vantage.as_str()),
            (Unit::Sends, "application")
        );
        assert_eq!(line.latency_ns.network, None, "{line:?}");
    }
    println!("told {} ns, measured {own:.0} ns", mean(&lines));
    assert_is_the_clients(mean(&lines), own);
    // what was asked before the first and after the last of them is not in them
    let told = items(&lines);
    assert!(told < 1.05 * asked && told > asked / 4.0, "{told} {asked}");

    // once the server's end has heard that there are hints, and answered
    let is_hint = |s: &Segment| s.ours().iter().any(|o| o.len() == 16 && o[4] >> 4 == HINT);
    let hints = segments.iter().enumerate().filter(|(_, s)| is_hint(s));
    let (third, _) = hints.clone().nth(2).expect("three hints");
    let later = &segments[third..];
    assert!(later.len() > 50, "{}", later.len());
    let (servers, clients): (Vec<_>, Vec<_>) = later.iter().partition(|s| s.from_server);
    let (servers, clients) = (kinds(servers), kinds(clients));
    let hints = clients.iter().filter(|k| **k == HINT).count();
    let others = clients
        .iter()
        .filter(|k| ![HINT, STATE].contains(k))
        .count();
    assert!(hints > clients.len() / 2 && others == 0, "{clients:?}");
    // whose application gives none
    assert!(servers.iter().all(|k| *k == STATE), "{servers:?}");
    for segment in later.iter().filter(|s| s.from_server) {
        let headers = usize::from(segment.ip_length) - segment.payload;
        let state: usize = segment.ours().iter().map(|option| option.len()).sum();
        let plain = PLAIN_HEADERS + segment.sack() + state;
        assert_eq!(headers, plain, "padding: {:?}", segment.options);
    }
    let options = clients.len() + servers.len();
    println!("{options} options in {} segments", later.len());
}

#[test]
fn where_no_application_gives_hints_none_are_told() {
    let scene = Scene::build("hintn");
    let (server, client) = watch_both(&scene);
    let capture = Capture::start(&scene.stage, PORT);
    let application = Application::start(&scene, 1, false);
    let lines = server.until("two-sided lines", 0, |lines| {
        let two_sided = |l: &&&Line| l.estimator == Estimator::TwoSided;
        of(lines, Side::Server).iter().filter(two_sided).count() >= ENOUGH
    });
    let own = application.finish();
    let kinds = kinds(&capture.finish());
    client.finish();
    server.finish();
    assert!(!kinds.is_empty() && !kinds.contains(&HINT), "{kinds:?}");
    for line in &lines {
        assert_ne!(line.estimator, Estimator::Hint, "{line:?}");
    }
    // what a busy machine adds is in both
    let told = mean(&of(&lines, Side::Server));
    let held = HELD.as_nanos() as f64;
    assert!(told < own - held / 2.0, "TCP knew: {told} ns of {own} ns");
}

#[test]
fn a_clients_tuner_judges_by_the_latency_and_the_load_that_its_application_counts() {
    const REQUESTS: usize = 64;
    let scene = Scene::build("hintt");
    let logs = TempDir::new().expect("a folder");
    let path = socket();
    let hints = ["--hints", path.to_str().expect("text"), "--budget", "1"];
    let client = Agent::start(scene.client(), logs.path(), &hints);
    let mut stream = scene.stage.connect(scene.address());
    stream.set_nodelay(true).expect("TCP_NODELAY");
    let hints = Hints::for_service(scene.address());
    let held = HELD.as_nanos() as f64;
    // the application takes a request for under way long before it is sent
    let mut under_way = VecDeque::new();
    let begin = Instant::now();
    let (mut requests, mut ended, mut tens) = (0_u32, 0_u32, vec![begin]);
    let told = |d: &Decision| {
        let known = d.arms.on.or(d.arms.off)?;
        Some((known.latency_ns as f64, d.load_per_s))
    };
    let found = loop {
        under_way.push_back((Instant::now(), hints.request()));
        for _ in 0..REQUESTS {
            stream.write_all(b"PING\r\n").expect("sent");
        }
        let mut replies = [0; REQUESTS * b"+PONG\r\n".len()];
        stream.read_exact(&mut replies).expect("replies");
        requests += 1;
        while under_way
            .front()
            .is_some_and(|(since, _)| since.elapsed() >= HELD)
        {
            under_way.pop_front();
            ended += 1;
            if ended.is_multiple_of(10) {
                tens.push(Instant::now());
            }
        }
        if requests.is_multiple_of(1_000)
            && let Some(found) = client.decisions().iter().rev().find_map(told)
            // the first test may be over before the agent has heard of the application
            && found.0 > held / 2.0
        {
            break found;
        }
        assert!(begin.elapsed() < PATIENCE, "{:#?}", client.decisions());
    };
    let (latency, load) = found;
    client.finish();
    assert!(latency < 10.0 * held, "{latency} ns");
    // a test's slices are as short as ten requests, and a busy machine has its moments
    let rates = tens
        .windows(2)
        .map(|two| 10.0 / (two[1] - two[0]).as_secs_f64());
    let (slowest, fastest) = rates.fold((f64::MAX, 0.0_f64), |(a, b), rate| {
        (a.min(rate), b.max(rate))
    });
    assert!(
        (slowest / 2.0..2.0 * fastest).contains(&load),
        "told of {load}/s; {slowest:.0} to {fastest:.0}/s were made"
    );
}
