//! SIGUSR1 stops the counting and SIGUSR2 lets it go on; what is estimated afterwards is as true as
//! before, on connections that were open all the time as on new ones, and with the exchange.

use std::thread;

use batchwise_core::sense::report::{Line, Side};
use batchwise_testbed::bpf_stats::attached_links;
use batchwise_testbed::redis::PORT;
use batchwise_testbed::stage::generator::{LASTING, Load};
use batchwise_testbed::stage::watch::{INTERVAL, Watch, items, now_ns, of};
use batchwise_testbed::stage::{Stage, close, eventually};
use nix::sys::signal::{Signal, kill};

use crate::tcp::watch::agreement::{LIGHT, Measured, SINGLE};
use crate::tcp::watch::exchange::{until_two_sided, watch_both};

/// Requests a second of [`LASTING`].
const RATE: f64 = 4000.0;

/// Sends `signal` until `obeyed` holds for the number of attached programs. It is sent again because
/// it may have come just before the watcher slept.
fn signal(watch: &Watch, signal: Signal, obeyed: impl Fn(usize) -> bool) {
    let links = || attached_links(watch.pid()).expect("its links");
    eventually(
        &format!("{signal} to be obeyed"),
        || {
            kill(watch.pid(), signal).expect("the watcher is there");
            obeyed(links()).then_some(())
        },
        || format!("it holds {} links", links()),
    );
}

/// Pauses these watchers for a few intervals, and lets them go on.
fn pause(watches: &[&Watch]) {
    let all: Vec<_> = watches
        .iter()
        .map(|watch| attached_links(watch.pid()).expect("its links"))
        .collect();
    for (watch, &all) in watches.iter().zip(&all) {
        signal(watch, Signal::SIGUSR1, |links| links < all);
    }
    let began = now_ns();
    thread::sleep(INTERVAL * 4);
    for watch in watches {
        let lines = watch.lines_since(began);
        assert!(lines.is_empty(), "it counted in the pause: {lines:#?}");
    }
    for (watch, &all) in watches.iter().zip(&all) {
        signal(watch, Signal::SIGUSR2, |links| links >= all);
    }
}

/// No line holds the pause: their intervals and rates are those of the time that was counted.
fn assert_rate(lines: &[Line], side: Side) {
    let lines = of(lines, side);
    let seconds: f64 = lines.iter().map(|l| l.interval_ns as f64 / 1e9).sum();
    let rate = items(&lines) / seconds;
    assert!(close(rate, RATE, 0.2), "{rate} requests/s: {lines:#?}");
    for line in &lines {
        let longest = 3 * INTERVAL.as_nanos() as u64;
        assert!(line.interval_ns < longest, "{line:?}");
        assert_eq!(line.connections, 1, "{line:?}");
    }
}

#[test]
fn counting_stops_and_goes_on_and_lines_are_true_after_it() {
    let stage = Stage::build("pause");
    let _redis = stage.redis();
    let watch = Watch::host(&stage.hosts.server, PORT, &[]);
    let mut load = Load::start(&stage.hosts.client, stage.redis_address(), LASTING);
    watch.until("lines", now_ns(), |l| l.len() >= 3);

    for _ in 0..2 {
        pause(&[&watch]);
        let enough = |l: &[Line]| l.len() >= 6;
        let lines = watch.until("lines after the pause", now_ns(), enough);
        assert_rate(&lines, Side::Server);
    }
    load.assert_alive();

    drop(load);
    thread::sleep(INTERVAL * 3);
    let load = Measured::run(&stage.hosts.client, stage.redis_address(), SINGLE);
    load.assert_counted(&load.lines(&watch, Side::Server), Side::Server);
    watch.finish();
}

#[test]
fn an_interval_is_as_long_without_its_pause_as_others() {
    let stage = Stage::build("pause-amid");
    let _redis = stage.redis();
    let watch = Watch::host(&stage.hosts.server, PORT, &["--interval", "2s"]);
    let _load = Load::start(&stage.hosts.client, stage.redis_address(), LASTING);
    watch.until("a line", now_ns(), |l| !l.is_empty());
    let paused = now_ns();
    pause(&[&watch]);
    let lines = watch.until("a line after the pause", paused, |l| !l.is_empty());
    let interval = lines[0].interval_ns as f64 / 2e9;
    assert!(close(interval, 1.0, 0.2), "{lines:#?}");
}

#[test]
fn the_exchange_goes_on_after_a_pause_and_both_ends_agree_with_the_load_generator() {
    let stage = Stage::build("pause-both");
    let _redis = stage.redis();
    let (server, client) = watch_both(&stage);
    let mut load = Load::start(&stage.hosts.client, stage.redis_address(), LASTING);
    until_two_sided(&server, &client);

    pause(&[&server, &client]);
    // the same connection
    until_two_sided(&server, &client);
    load.assert_alive();

    drop(load);
    thread::sleep(INTERVAL * 3);
    let load = Measured::run(&stage.hosts.client, stage.redis_address(), LIGHT);
    for (watch, side) in [(server, Side::Server), (client, Side::Client)] {
        let lines = load.lines(&watch, side);
        watch.finish();
        load.assert_agrees(&lines, side);
    }
}
