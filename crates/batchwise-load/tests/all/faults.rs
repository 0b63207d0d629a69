//! Whole runs against a server in a thread, on the loopback interface, with faults on demand.

use std::collections::{HashMap, HashSet};
use std::io::{BufReader, Cursor};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Answer, honest, serve};
use batchwise_load::{Config, Figures, Interval, Report, run, write_hdr};
use clap::{CommandFactory, FromArgMatches};

const MS: Duration = Duration::from_millis(1);

/// A short run with these options besides or instead of its own.
fn config(addr: SocketAddr, options: &str) -> Config {
    // a schedule says itself how long it is
    let duration = match options.contains("--schedule") {
        true => "",
        false => "--duration 300ms",
    };
    let line = format!("redis --addr {addr} --seed 1 --keys 10 --warmup 50ms {duration} {options}");
    let command = Config::command().args_override_self(true);
    let matches = command.get_matches_from(line.split_whitespace());
    Config::from_arg_matches(&matches).unwrap()
}

fn report(addr: SocketAddr, options: &str) -> Report {
    let outcome = run(&config(addr, options), |_| Ok(()));
    outcome.expect("a report").report
}

fn figures(addr: SocketAddr, options: &str) -> Figures {
    report(addr, options).whole
}

/// Why there is no report.
fn failure(addr: SocketAddr, options: &str) -> String {
    let failed = run(&config(addr, options), |_| Ok(()));
    failed.unwrap_err().to_string()
}

/// The report of a run, and its interim reports.
fn intervals(addr: SocketAddr, options: &str) -> (Report, Vec<Interval>) {
    let mut intervals = vec![];
    let keep = |interval: &Interval| {
        intervals.push(interval.clone());
        Ok(())
    };
    let outcome = run(&config(addr, options), keep).unwrap();
    (outcome.report, intervals)
}

fn honest_server(value_size: usize) -> SocketAddr {
    serve(move |command| honest(command, value_size))
}

#[test]
fn every_request_is_answered_and_counted_once() {
    let options = "--rate 2000 --get-ratio 0.3 --value-size 20000";
    let config = config(honest_server(20_000), options);
    let outcome = run(&config, |_| Ok(())).unwrap();
    let (report, whole) = (&outcome.report, &outcome.report.whole);
    assert_eq!(whole.errors, 0, "{report:?}");
    assert!(whole.requests > 400, "{report:?}");
    assert_eq!(outcome.from_intended.len(), whole.requests);
    assert_eq!(outcome.from_send.len(), whole.requests);
    assert!(whole.latency_ns.mean >= whole.latency_from_send_ns.mean);
    assert!(report.arrival_check.as_ref().unwrap().ok);
    assert_eq!(
        report.measured_to_ts_ns - report.measured_from_ts_ns,
        300_000_000
    );
}

#[test]
fn a_server_that_stands_still_does_not_change_the_schedule() {
    let stalling = serve(|command| {
        if command.number == 400 {
            std::thread::sleep(150 * MS);
        }
        honest(command, 64)
    });
    let steady = figures(honest_server(64), "--rate 2000");
    let stalled = figures(stalling, "--rate 2000");
    assert_eq!(stalled.requests, steady.requests);
    assert_eq!(stalled.errors, 0);
    // All that was due while the server slept waited for it, not only the one it slept on.
    assert!(stalled.latency_ns.p90 > Some(20_000_000), "{stalled:?}");
}

#[test]
fn many_connections_share_the_load() {
    let options = "--rate 2000 --connections 30 --get-ratio 1";
    let report = report(honest_server(64), options);
    assert_eq!(
        (report.whole.errors, report.connections),
        (0, 30),
        "{report:?}"
    );
}

#[test]
fn error_replies_make_a_run_invalid_and_are_quoted() {
    let addr = serve(|command| match command.number {
        0..200 => honest(command, 64),
        _ => Answer::Reply(b"-OOM command not allowed\r\n".to_vec()),
    });
    let report = figures(addr, "--rate 2000");
    assert!(report.errors > 0 && !report.valid);
    let why = report.why_invalid.join("\n");
    assert!(why.contains("OOM command"), "{why}");
}

#[test]
fn a_get_that_finds_nothing_is_an_error() {
    let addr = serve(|command| match &command.words[0][..] {
        b"GET" => Answer::Reply(b"$-1\r\n".to_vec()),
        _ => honest(command, 64),
    });
    let report = figures(addr, "--rate 2000 --get-ratio 0.5");
    assert!(
        report.errors > 0 && report.errors < report.requests,
        "{report:?}"
    );
    assert!(report.why_invalid[0].contains("did not find"), "{report:?}");
}

#[test]
fn a_server_that_dies_leaves_an_invalid_report_that_says_so() {
    for mode in ["--rate 2000", "--closed --pipeline 4"] {
        let addr = serve(|command| match command.number {
            0..300 => honest(command, 64),
            _ => Answer::Close,
        });
        let report = report(addr, &format!("{mode} --duration 60s --warmup 0s"));
        let whole = &report.whole;
        assert!(!whole.valid && whole.errors > 0, "{report:?}");
        assert!(
            whole.why_invalid[0].contains("connections were lost"),
            "{report:?}"
        );
        let length = report.measured_to_ts_ns - report.measured_from_ts_ns;
        assert!(
            length < 60_000_000_000,
            "the window ends with the last connection: {report:?}"
        );
    }
}

#[test]
fn one_dead_connection_of_many_is_noticed_while_the_others_go_on() {
    let addr = serve(|command| match command.number {
        300 => Answer::Close,
        _ => honest(command, 64),
    });
    let report = figures(addr, "--rate 2000 --connections 5");
    assert!(!report.valid && report.errors > 0, "{report:?}");
    assert!(
        report.latency_ns.mean.is_some() && report.errors < report.requests,
        "{report:?}"
    );
}

#[test]
fn a_server_that_dies_in_the_warm_up_gives_no_report() {
    let addr = serve(|command| match command.number {
        0..15 => honest(command, 64),
        _ => Answer::Close,
    });
    let failed = failure(addr, "--rate 2000 --warmup 60s");
    assert!(failed.contains("before the measurement began"), "{failed}");
}

#[test]
fn a_socket_that_takes_no_more_is_back_pressure_and_unanswered_requests_are_errors() {
    let addr = serve(|command| {
        if command.number > 20 {
            std::thread::sleep(Duration::from_secs(3600));
        }
        honest(command, 64)
    });
    let report = figures(addr, "--rate 2000 --value-size 1048576");
    assert!(report.backpressure > 0 && report.errors > 0, "{report:?}");
    let why = report.why_invalid.join("\n");
    for reason in ["unanswered", "back-pressure", "of the offered load"] {
        assert!(why.contains(reason), "{why}");
    }
}

#[test]
fn interim_reports_cover_the_window_without_gaps() {
    for mode in ["--rate 2000", "--closed --pipeline 2"] {
        let options = format!("{mode} --progress 100ms");
        let (report, intervals) = intervals(honest_server(64), &options);
        let first = intervals.first().expect("an interval");
        assert_eq!(first.ts_ns - first.interval_ns, report.measured_from_ts_ns);
        for pair in intervals.windows(2) {
            assert_eq!(pair[1].ts_ns - pair[1].interval_ns, pair[0].ts_ns);
        }
        let total = |rate: fn(&Interval) -> f64| -> f64 {
            let counts = intervals
                .iter()
                .map(|i| rate(i) * i.interval_ns as f64 * 1e-9);
            counts.sum::<f64>().round()
        };
        let whole = &report.whole;
        assert_eq!(
            total(|i| i.achieved_rps),
            (whole.achieved_rps * 0.3).round()
        );
        assert_eq!(total(|i| i.offered_rps) as u64, whole.requests);
        let line = serde_json::to_value(first).unwrap();
        assert_eq!(line["type"], "interval");
    }
}

#[test]
fn a_schedule_changes_load_and_value_size_on_one_connection_and_reports_each_phase() {
    let connections = Arc::new(AtomicU64::new(0));
    let seen = Arc::new(Mutex::new(HashMap::new()));
    let (opened, values) = (connections.clone(), seen.clone());
    let addr = serve(move |command| {
        let mut values = values.lock().unwrap();
        match &command.words[0][..] {
            b"PING" => {
                opened.fetch_add(1, Ordering::Relaxed);
                Answer::Reply(b"+PONG\r\n".to_vec())
            }
            b"SET" => {
                values.insert(command.words[1].clone(), command.words[2].len());
                Answer::Reply(b"+OK\r\n".to_vec())
            }
            _ => honest(command, values[&command.words[1]]),
        }
    });
    let phases = "150ms:1k@64/0.5,110ms:4k@4096/0.5,1s:1k@64/0";
    let options = format!("--schedule {phases} --progress 40ms");
    let (report, intervals) = intervals(addr, &options);
    assert_eq!(report.whole.errors, 0, "{report:?}");
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    let phases = &report.phases;
    assert_eq!(phases.len(), 3);
    let requests = phases.iter().map(|p| p.figures.requests);
    assert_eq!(requests.sum::<u64>(), report.whole.requests);
    assert_eq!(phases[0].from_ts_ns, report.measured_from_ts_ns);
    assert_eq!(phases[2].to_ts_ns, report.measured_to_ts_ns);
    assert_eq!(phases[1].to_ts_ns - phases[1].from_ts_ns, 110_000_000);
    let (first, second) = (&phases[0].figures, &phases[1].figures);
    assert!(second.offered_rps > 2.0 * first.offered_rps);
    assert_eq!(second.value_size, 4096);
    // Each interval lies in one phase: the one that it names.
    for interval in &intervals {
        let phase = &phases[interval.phase as usize];
        assert!(interval.ts_ns - interval.interval_ns >= phase.from_ts_ns);
    }
    assert_eq!(intervals.last().map(|i| i.phase), Some(2));
    let sizes: HashSet<_> = seen.lock().unwrap().values().copied().collect();
    assert_eq!(sizes, HashSet::from([64, 4096]));
}

#[test]
fn a_phase_that_was_too_much_makes_the_run_invalid_and_is_named() {
    let addr = serve(|command| {
        if command.number > 60 {
            std::thread::sleep(MS);
        }
        honest(command, 64)
    });
    let phases = "100ms:200@64,100ms:5k@64,700ms:20@64";
    let report = report(addr, &format!("--schedule {phases} --warmup 0s"));
    let second = &report.phases[1].figures;
    assert!(second.achieved_rps < 0.9 * second.offered_rps, "{second:?}");
    assert!(!second.valid && !report.whole.valid);
    let mut why = report.whole.why_invalid.iter();
    assert!(
        why.any(|why| why.starts_with("phase 2: only")),
        "{report:?}"
    );
}

#[test]
fn a_server_that_dies_leaves_only_the_phases_that_had_begun() {
    let addr = serve(|command| match command.number {
        0..200 => honest(command, 64),
        _ => Answer::Close,
    });
    let report = report(addr, "--schedule 60s:2k@64,60s:2k@64 --warmup 0s");
    assert_eq!(report.phases.len(), 1);
    assert_eq!(report.phases[0].to_ts_ns, report.measured_to_ts_ns);
    assert!(!report.whole.valid);
}

#[test]
fn a_consumer_of_interim_reports_that_fails_ends_the_run() {
    let options = "--rate 2000 --duration 1h --progress 20ms";
    let config = config(honest_server(64), options);
    let failed = run(&config, |_| anyhow::bail!("no pipe")).unwrap_err();
    assert_eq!(failed.to_string(), "no pipe");
}

#[test]
fn a_closed_loop_sends_as_fast_as_it_is_answered() {
    let options = "--closed --pipeline 3 --connections 2";
    let report = report(honest_server(64), options);
    let whole = &report.whole;
    assert!(
        whole.valid && report.closed && report.from == "send",
        "{report:?}"
    );
    assert_eq!(whole.latency_ns, whole.latency_from_send_ns);
    assert!(whole.requests > 0 && whole.errors == 0);
}

#[test]
fn the_clients_own_work_counts_as_latency() {
    let report = figures(honest_server(64), "--rate 2000 --busy-per-response 200us");
    assert!(
        report.latency_from_send_ns.p50 >= Some(200_000),
        "{report:?}"
    );
}

#[test]
fn a_server_that_is_not_there_is_a_connect_error() {
    // the port of a connection's other end: nobody listens there, nor can begin to
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let addr = taken.local_addr().unwrap();
    let failed = failure(addr, "--rate 2000");
    assert!(failed.contains("cannot connect to"), "{failed}");
}

#[test]
fn a_server_that_wants_a_password_is_reported_in_its_own_words() {
    let addr = serve(|_| Answer::Reply(b"-NOAUTH Authentication required.\r\n".to_vec()));
    let failed = failure(addr, "--rate 2000");
    assert!(
        failed.contains("NOAUTH Authentication required."),
        "{failed}"
    );
}

#[test]
fn a_server_that_does_not_speak_resp_is_an_error() {
    let addr = serve(|_| Answer::Reply(b"HTTP/1.1 400 Bad Request\r\n".to_vec()));
    let failed = failure(addr, "--rate 2000");
    assert!(failed.contains("is this a Redis server?"), "{failed}");
}

#[test]
fn a_cpu_that_is_not_there_is_an_error() {
    let failed = failure(honest_server(64), "--rate 2000 --cpu 1000");
    assert!(failed.contains("CPU 1000"), "{failed}");
}

#[test]
fn the_histogram_log_holds_both_latencies_of_every_request() {
    use base64::prelude::{BASE64_STANDARD as BASE64, Engine};
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    let config = config(honest_server(64), "--rate 2000");
    let outcome = run(&config, |_| Ok(())).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (log, text) = (dir.path().join("run.hlog"), dir.path().join("run.hgrm"));
    write_hdr(&log, &outcome).unwrap();
    write_hdr(&text, &outcome).unwrap();
    let (log, text) = (
        std::fs::read(log).unwrap(),
        std::fs::read_to_string(text).unwrap(),
    );

    let mut tags = vec![];
    for entry in IntervalLogIterator::new(&log) {
        if let LogEntry::Interval(interval) = entry.unwrap() {
            tags.push(interval.tag().unwrap().as_str().to_owned());
            let bytes = BASE64.decode(interval.encoded_histogram()).unwrap();
            let mut reader = BufReader::new(Cursor::new(bytes));
            let histogram: hdrhistogram::Histogram<u64> =
                Deserializer::new().deserialize(&mut reader).unwrap();
            assert_eq!(histogram.len(), outcome.report.whole.requests);
        }
    }
    assert_eq!(tags, ["intended", "send"]);
    assert!(
        text.contains("1.000000000000") && text.contains("#[Mean"),
        "{text}"
    );
}
