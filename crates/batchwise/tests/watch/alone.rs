//! One end watches, its peer does not: local estimates, which connections they cover, how they are
//! told apart.

use std::net::SocketAddr;

use batchwise_core::report::{Estimator, Line, Nagle, Side};
use batchwise_lab::redis::PORT;

use crate::agreement::{LIGHT, assert_throughput, estimate};
use crate::closeness::close;
use crate::generator::{LASTING, Load};
use crate::stage::Stage;
use crate::watch::{Watch, items, now_ns, of};

#[test]
fn a_server_alone_gives_local_estimates_that_leave_the_peers_half_unknown() {
    let stage = Stage::build("alone");
    let _redis = stage.redis();
    let watch = Watch::host(&stage.hosts.server, PORT, &[]);
    let load = Load::start(&stage.hosts.client, stage.redis_address(), LIGHT).report();
    let lines = watch.finish();

    assert!(!lines.is_empty());
    for line in &lines {
        assert_eq!(line.estimator, Estimator::Local, "{line:?}");
        assert_eq!(line.side, Side::Server, "{line:?}");
        assert_eq!(line.service, "10.77.0.1:6379", "{line:?}");
        assert_eq!(line.stages_ns.unread_remote, None, "{line:?}");
        assert_eq!(line.stages_ns.ackdelay_remote, None, "{line:?}");
        assert_eq!((line.view, line.lost_events), (None, 0), "{line:?}");
        assert_eq!(line.connection, None, "{line:?}");
    }
    let estimate = estimate(&lines, Side::Server, &load);
    assert!(
        estimate.turnaround_ns.is_some_and(|t| t > 0.0),
        "{estimate:?}"
    );
    assert!(estimate.total_ns > estimate.turnaround_ns, "{estimate:?}");
    assert!(estimate.confidence < 0.5, "{estimate:?}");
    assert_throughput(estimate.throughput_per_s, &load);
}

#[test]
fn a_client_alone_gives_a_total_that_it_cannot_split() {
    let stage = Stage::build("cli-alone");
    let _redis = stage.redis();
    let watch = Watch::host(&stage.hosts.client, PORT, &[]);
    let options = format!("{LIGHT} --nodelay off");
    let load = Load::start(&stage.hosts.client, stage.redis_address(), &options).report();
    let lines = watch.finish();

    let estimate = estimate(&lines, Side::Client, &load);
    assert!(of(&lines, Side::Server).is_empty());
    assert_eq!(estimate.estimator, Estimator::Local);
    assert_eq!((estimate.network_ns, estimate.turnaround_ns), (None, None));
    assert!(estimate.total_ns.is_some_and(|t| t > 0.0), "{estimate:?}");
    assert_eq!(estimate.nagle, Nagle::On);
    assert_throughput(estimate.throughput_per_s, &load);
}

#[test]
fn connections_open_before_watch_starts_are_found_also_in_another_network_namespace() {
    let stage = Stage::build("adopt");
    let _redis = stage.redis();
    let options = LASTING.replace("300s", "6s") + " --connections 3";
    let mut load = Load::start(&stage.hosts.client, stage.redis_address(), &options);
    let before = Watch::host(&stage.hosts.client, PORT, &[]);
    before.until("traffic", 0, |l| !l.is_empty());

    let server = stage.hosts.server.cgroup();
    let there = Watch::start(&stage.hosts.client, PORT, Some(server), &[]);
    let here = Watch::host(&stage.hosts.server, PORT, &[]);
    load.assert_alive();
    for watch in [&there, &here] {
        watch.until("the three open connections", 0, |lines| {
            lines.iter().any(|l| {
                l.side == Side::Server
                    && l.service == "10.77.0.1:6379"
                    && l.connections == 3
                    && l.throughput_per_s > 0.0
                    && l.latency_ns.total.is_some()
            })
        });
    }
    let load = load.report();
    for watch in [there, here] {
        let estimate = estimate(&watch.finish(), Side::Server, &load);
        assert_throughput(estimate.throughput_per_s, &load);
    }
}

#[test]
fn an_ipv6_service_is_shown_in_brackets() {
    let stage = Stage::build("v6");
    let _redis = stage.redis();
    let address: SocketAddr = "[fd77::1]:6379".parse().expect("an address");
    let server = Watch::host(&stage.hosts.server, PORT, &["--per-connection"]);
    let client = Watch::host(&stage.hosts.client, PORT, &[]);
    let load = Load::start(&stage.hosts.client, address, LIGHT).report();
    for (watch, side) in [(server, Side::Server), (client, Side::Client)] {
        let lines = watch.finish();
        for line in &lines {
            assert_eq!((line.service.as_str(), line.side), ("[fd77::1]:6379", side));
        }
        assert_throughput(estimate(&lines, side, &load).throughput_per_s, &load);
        if side == Side::Server {
            let ends = lines[0].connection.as_deref().unwrap_or_default();
            assert!(ends.starts_with("[fd77::1]:6379 -> [fd77::2]:"), "{ends}");
        }
    }
}

#[test]
fn per_connection_lines_add_up_to_the_service() {
    let stage = Stage::build("percon");
    let _redis = stage.redis();
    let service = Watch::host(&stage.hosts.server, PORT, &[]);
    let each = Watch::host(&stage.hosts.server, PORT, &["--per-connection"]);
    let start = |rate| {
        let options = format!("--rate {rate} --duration 300s --value-size 64 --arrivals constant");
        Load::start(&stage.hosts.client, stage.redis_address(), &options)
    };
    let _loads = [start("1000"), start("3000")];
    let enough = |lines: &[Line]| lines.iter().filter(|l| l.throughput_per_s > 500.0).count() > 12;
    each.until("lines of two connections", 0, enough);
    service.until("lines of the service", now_ns(), |lines| lines.len() >= 3);

    // the same span of time for both
    let lines = service.lines();
    let (from, to) = (lines[lines.len() - 3].ts_ns, lines[lines.len() - 1].ts_ns);
    each.until("as much of each", to, |lines| !lines.is_empty());
    let rate = |lines: &[Line]| {
        let chosen = lines.iter().filter(|l| l.ts_ns > from && l.ts_ns <= to);
        let chosen: Vec<&Line> = chosen.collect();
        let last = chosen.last().expect("a line").ts_ns;
        let spans = chosen
            .iter()
            .filter(|l| l.connection == chosen[0].connection);
        let ns: u64 = spans.map(|l| l.interval_ns).sum();
        assert!(last > from);
        items(&chosen) * 1e9 / ns as f64
    };
    let each = each.finish();
    let at_once = |ts| each.iter().filter(move |l| l.ts_ns == ts);
    let last = each.last().expect("lines").ts_ns;
    let names: std::collections::BTreeSet<_> = at_once(last).map(|l| &l.connection).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for line in &each {
        let ends = line.connection.as_deref().expect("`connection` is set");
        assert!(ends.starts_with("10.77.0.1:6379 -> 10.77.0.2:"), "{ends}");
        assert_eq!(line.connections, 1, "{line:?}");
        assert_eq!(line.service, "10.77.0.1:6379");
    }
    let (sum, whole) = (rate(&each), rate(&lines));
    assert!(
        close(sum, whole, 0.15),
        "{sum}/s in sum, {whole}/s of the service"
    );
}
