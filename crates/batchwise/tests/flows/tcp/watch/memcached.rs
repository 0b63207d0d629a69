//! Another protocol and another server: nothing here is special to Redis. One watcher sees both
//! ends.

use std::time::{Duration, Instant};

use batchwise_core::sense::report::{Estimator, Line, Side, Unit};
use batchwise_testbed::memcached::{Memcached, PORT};
use batchwise_testbed::stage::close;
use batchwise_testbed::stage::request::ask;
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::watch::{Watch, now_ns};
use batchwise_testbed::stop::Stop;
use batchwise_testbed::window::estimates_in;

const MEASURED: Duration = Duration::from_secs(2);

#[test]
fn memcached_is_estimated_as_its_client_measures_it() {
    let scene = Scene::build("memcached");
    let _memcached = Memcached::start(scene.server(), &Stop::default()).expect("memcached");
    let address = scene.stage.hosts.server_address(PORT);

    let both = scene.client().cgroup().parent();
    let watch = Watch::start(scene.server(), PORT, both, &["--exchange"]);
    let mut stream = scene.stage.connect(address);
    stream.set_nodelay(true).expect("TCP_NODELAY");
    let set = [&b"set key 0 0 300\r\n"[..], &[b'v'; 300], b"\r\n"].concat();
    let mut requests = Vec::new();
    let from = now_ns();
    let begin = Instant::now();
    while begin.elapsed() < MEASURED {
        let sent = Instant::now();
        if requests.len().is_multiple_of(3) {
            ask(&mut stream, &set, b"STORED\r\n");
        } else {
            ask(&mut stream, b"get key\r\n", b"END\r\n");
        }
        requests.push((now_ns(), sent.elapsed()));
    }
    let to = now_ns();
    let lines = watch.finish();

    for side in [Side::Server, Side::Client] {
        // a busy machine changes pace: compare what happened in the same span of time
        let whole = |l: &&Line| l.side == side && l.ts_ns - l.interval_ns >= from && l.ts_ns <= to;
        let covered: Vec<&Line> = lines.iter().filter(whole).collect();
        let (first, last) = (covered[0], covered[covered.len() - 1]);
        let span = first.ts_ns - first.interval_ns..last.ts_ns;
        let same = requests.iter().filter(|(at, _)| span.contains(at));
        let took: Vec<f64> = same.map(|(_, took)| took.as_nanos() as f64).collect();
        let mean = took.iter().sum::<f64>() / took.len() as f64;
        let rate = took.len() as f64 * 1e9 / (span.end - span.start) as f64;

        let estimate = estimates_in(&lines, side, from, to).remove(&Unit::Sends);
        let estimate = estimate.unwrap_or_else(|| panic!("no {side:?} in {lines:#?}"));
        assert_eq!(estimate.estimator, Estimator::TwoSided, "{estimate:?}");
        let total = estimate.total_ns.expect("a total");
        assert!(
            close(total, mean, 0.35),
            "{side:?}: {total} ns, measured {mean} ns; {estimate:?}"
        );
        assert!(
            close(estimate.throughput_per_s, rate, 0.15),
            "{rate}/s; {estimate:?}"
        );
    }
}
