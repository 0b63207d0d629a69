//! Both ends watch and tell each other their queue states: two-sided estimates, and what happens
//! when the exchange is cut.

use batchwise_core::sense::report::{Estimator, Line, Side};
use batchwise_testbed::host::Host;
use batchwise_testbed::redis::PORT;
use batchwise_testbed::stage::Stage;
use batchwise_testbed::stage::generator::{LASTING, Load};
use batchwise_testbed::stage::watch::{Watch, now_ns, of};

use crate::tcp::watch::agreement::{LIGHT, Measured, SINGLE, estimate};
use crate::tcp::watch::nft::{Filter, STRIP, STRIP_SYN};

/// Watches at the server and at the client.
pub fn watch_both(stage: &Stage) -> (Watch, Watch) {
    let watch = |host| Watch::host(host, PORT, &["--exchange"]);
    (watch(&stage.hosts.server), watch(&stage.hosts.client))
}

pub fn until_two_sided(server: &Watch, client: &Watch) {
    server.until_estimator(Side::Server, Estimator::TwoSided);
    client.until_estimator(Side::Client, Estimator::TwoSided);
}

/// From the second interval that began after the cut on, lines are local; waits for three of them.
fn assert_local_within_two_intervals(watch: &Watch, side: Side, cut: u64) {
    let lines = watch.until("lines after the cut", cut, |l| of(l, side).len() >= 4);
    for line in &of(&lines, side)[1..] {
        assert!(line.estimator.is_one_sided(), "{line:?}");
    }
}

#[test]
fn both_ends_agree_with_the_load_generator_while_they_exchange() {
    let stage = Stage::build("both");
    // Redis listens before the watchers start: the exchange must reach its listener
    let _redis = stage.redis();
    let (server, client) = watch_both(&stage);
    let load = Measured::run(&stage.hosts.client, stage.redis_address(), LIGHT);
    for (watch, side) in [(server, Side::Server), (client, Side::Client)] {
        let lines = load.lines(&watch, side);
        watch.finish();
        load.assert_agrees(&lines, side);
        let estimate = estimate(&lines, side);
        assert!(estimate.confidence > 0.5, "{estimate:?}");
        assert!(estimate.network_ns > estimate.turnaround_ns, "{estimate:?}");
        for line in of(&lines, side) {
            let two_sided = line.estimator == Estimator::TwoSided;
            assert_eq!(line.view.is_some(), two_sided, "{line:?}");
            let stages = [line.stages_ns.unread_remote, line.stages_ns.ackdelay_remote];
            assert_eq!(stages.map(|s| s.is_some()), [two_sided; 2], "{line:?}");
        }
    }
}

#[test]
fn watchers_that_are_there_before_the_server_listens_exchange_on_every_kernel() {
    let stage = Stage::build("before");
    let (server, client) = watch_both(&stage);
    let _redis = stage.redis();
    let light = "--rate 500 --duration 300s";
    let mut load = Load::start(&stage.hosts.client, stage.redis_address(), light);
    until_two_sided(&server, &client);
    load.assert_alive();
    server.finish();
    client.finish();
}

#[test]
fn both_ends_agree_with_the_load_generator_over_ipv6_with_large_values() {
    let stage = Stage::build("both6");
    let _redis = stage.redis();
    let (server, client) = watch_both(&stage);
    let address = "[fd77::1]:6379".parse().expect("an address");
    // Redis answers a long GET with two writes: were several requests under way, none could be told
    let options = SINGLE.replace("size 64", "size 16384") + " --get-ratio 0.5";
    let load = Measured::run(&stage.hosts.client, address, &options);
    for (watch, side) in [(server, Side::Server), (client, Side::Client)] {
        load.assert_agrees(&load.lines(&watch, side), side);
        watch.finish();
    }
}

#[test]
fn a_peer_that_is_killed_leaves_local_estimates_and_a_new_one_two_sided_ones() {
    let stage = Stage::build("peerkill");
    let _redis = stage.redis();
    let (server, client) = watch_both(&stage);
    let mut first = Load::start(&stage.hosts.client, stage.redis_address(), LASTING);
    until_two_sided(&server, &client);

    client.sigkill();
    assert_local_within_two_intervals(&server, Side::Server, now_ns());
    first.assert_alive();

    drop(first);
    let client = Watch::host(&stage.hosts.client, PORT, &["--exchange"]);
    let _second = Load::start(&stage.hosts.client, stage.redis_address(), LASTING);
    until_two_sided(&server, &client);
}

#[test]
fn options_stripped_in_mid_run_leave_local_estimates_until_they_pass_again() {
    let stage = Stage::build("strip");
    let _redis = stage.redis();
    let (server, client) = watch_both(&stage);
    let mut load = Load::start(&stage.hosts.client, stage.redis_address(), LASTING);
    until_two_sided(&server, &client);

    let filters = [&stage.hosts.server, &stage.hosts.client].map(|h| Filter::add(h, STRIP));
    let cut = now_ns();
    assert_local_within_two_intervals(&server, Side::Server, cut);
    assert_local_within_two_intervals(&client, Side::Client, cut);
    for filter in filters {
        assert!(filter.hits() > 0, "nothing was stripped");
    }

    until_two_sided(&server, &client);
    load.assert_alive();
    for watch in [&server, &client] {
        let open = |l: &Line| l.connections == 1;
        let all_open = watch.lines_since(cut).iter().all(open);
        assert!(all_open, "another connection");
    }
}

/// Options of handshakes are stripped from what arrives at this host.
fn strip_handshakes(name: &str, host: impl Fn(&Stage) -> &Host) {
    let stage = Stage::build(name);
    let _redis = stage.redis();
    let (server, client) = watch_both(&stage);
    let filter = Filter::add(host(&stage), STRIP_SYN);
    let load = Measured::run(&stage.hosts.client, stage.redis_address(), SINGLE);
    assert!(filter.hits() > 0, "nothing was stripped");
    for (watch, side) in [(server, Side::Server), (client, Side::Client)] {
        let lines = load.lines(&watch, side);
        watch.finish();
        let alone = |l: &Line| l.estimator.is_one_sided();
        assert!(lines.iter().all(alone), "{lines:#?}");
        load.assert_counted(&lines, side);
    }
}

#[test]
fn a_handshake_that_loses_the_option_connects_and_stays_local() {
    strip_handshakes("synstrip", |stage| &stage.hosts.server);
}

#[test]
fn a_syn_ack_that_loses_the_option_connects_and_stays_local() {
    strip_handshakes("sastrip", |stage| &stage.hosts.client);
}
