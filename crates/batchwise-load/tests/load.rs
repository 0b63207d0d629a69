//! Whole runs against a server in a thread, on the loopback interface, with faults on demand.

mod support;

use std::collections::{HashMap, HashSet};
use std::io::{self, BufReader, Cursor};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use batchwise_load::{Arrivals, Config, Error, Mode, Phase, Rate, Report, run, write_hdr};
use support::{Answer, honest, serve};

const MS: Duration = Duration::from_millis(1);

fn open(rate: f64) -> Mode {
    Mode::Open {
        rate: Rate::constant(rate),
        arrivals: Arrivals::Poisson,
    }
}

fn config(addr: SocketAddr) -> Config {
    Config {
        mode: open(2_000.0),
        duration: 300 * MS,
        warmup: 50 * MS,
        keys: 10,
        ..Config::new(addr)
    }
}

fn report(config: &Config) -> Report {
    run(config, |_| Ok(())).expect("a report").report
}

fn honest_server(value_size: usize) -> SocketAddr {
    serve(move |command| honest(command, value_size))
}

#[test]
fn every_request_is_answered_and_counted_once() {
    let config = Config {
        get_ratio: 0.3,
        value_size: 20_000,
        ..config(honest_server(20_000))
    };
    let outcome = run(&config, |_| Ok(())).unwrap();
    let report = outcome.report;
    assert_eq!(report.errors, 0, "{report:?}");
    assert!(report.requests > 400, "{report:?}");
    assert_eq!(outcome.from_intended.len(), report.requests);
    assert_eq!(outcome.from_send.len(), report.requests);
    assert!(report.latency_ns.mean >= report.latency_from_send_ns.mean);
    assert!(report.arrival_check.unwrap().ok);
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
    let steady = report(&config(honest_server(64)));
    let stalled = report(&config(stalling));
    assert_eq!(stalled.requests, steady.requests);
    assert_eq!(stalled.errors, 0);
    // All that was due while the server slept waited for it, not only the one it slept on.
    assert!(stalled.latency_ns.p90 > Some(20_000_000), "{stalled:?}");
}

#[test]
fn many_connections_share_the_load() {
    let config = Config {
        connections: 30,
        get_ratio: 1.0,
        ..config(honest_server(64))
    };
    let report = report(&config);
    assert_eq!((report.errors, report.connections), (0, 30), "{report:?}");
}

#[test]
fn error_replies_make_a_run_invalid_and_are_quoted() {
    let addr = serve(|command| match command.number {
        0..200 => honest(command, 64),
        _ => Answer::Reply(b"-OOM command not allowed\r\n".to_vec()),
    });
    let report = report(&config(addr));
    assert!(report.errors > 0 && !report.valid);
    assert!(
        report
            .why_invalid
            .iter()
            .any(|why| why.contains("OOM command")),
        "{report:?}"
    );
}

#[test]
fn a_get_that_finds_nothing_is_an_error() {
    let addr = serve(|command| match &command.words[0][..] {
        b"GET" => Answer::Reply(b"$-1\r\n".to_vec()),
        _ => honest(command, 64),
    });
    let report = report(&Config {
        get_ratio: 0.5,
        ..config(addr)
    });
    assert!(
        report.errors > 0 && report.errors < report.requests,
        "{report:?}"
    );
    assert!(report.why_invalid[0].contains("did not find"), "{report:?}");
}

#[test]
fn a_server_that_dies_leaves_an_invalid_report_that_says_so() {
    for mode in [open(2_000.0), Mode::Closed { pipeline: 4 }] {
        let addr = serve(|command| match command.number {
            0..300 => honest(command, 64),
            _ => Answer::Close,
        });
        let config = Config {
            mode,
            duration: 60_000 * MS,
            warmup: Duration::ZERO,
            ..config(addr)
        };
        let report = report(&config);
        assert!(!report.valid && report.errors > 0, "{report:?}");
        assert!(
            report.why_invalid[0].contains("connections were lost"),
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
    let report = report(&Config {
        connections: 5,
        ..config(addr)
    });
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
    let config = Config {
        warmup: 60_000 * MS,
        ..config(addr)
    };
    let failed = run(&config, |_| Ok(())).unwrap_err();
    assert!(matches!(failed, Error::LostBeforeMeasuring(_)), "{failed}");
}

#[test]
fn a_socket_that_takes_no_more_is_back_pressure_and_unanswered_requests_are_errors() {
    let addr = serve(|command| {
        if command.number > 20 {
            std::thread::sleep(Duration::from_secs(3600));
        }
        honest(command, 64)
    });
    let config = Config {
        value_size: 1 << 20,
        ..config(addr)
    };
    let report = report(&config);
    assert!(report.backpressure > 0 && report.errors > 0, "{report:?}");
    let why = report.why_invalid.join("\n");
    for reason in ["unanswered", "back-pressure", "of the offered load"] {
        assert!(why.contains(reason), "{why}");
    }
}

#[test]
fn interim_reports_cover_the_window_without_gaps() {
    for mode in [open(2_000.0), Mode::Closed { pipeline: 2 }] {
        let config = Config {
            mode,
            progress: Some(100 * MS),
            ..config(honest_server(64))
        };
        let mut intervals = vec![];
        let keep = |interval: &batchwise_load::Interval| {
            intervals.push(interval.clone());
            Ok(())
        };
        let report = run(&config, keep).unwrap().report;
        let first = intervals.first().expect("an interval");
        assert_eq!(first.ts_ns - first.interval_ns, report.measured_from_ts_ns);
        for pair in intervals.windows(2) {
            assert_eq!(pair[1].ts_ns - pair[1].interval_ns, pair[0].ts_ns);
        }
        let total = |rate: fn(&batchwise_load::Interval) -> f64| -> f64 {
            intervals
                .iter()
                .map(|i| rate(i) * i.interval_ns as f64 * 1e-9)
                .sum()
        };
        assert_eq!(
            total(|i| i.achieved_rps).round(),
            (report.achieved_rps * 0.3).round()
        );
        assert_eq!(total(|i| i.offered_rps).round() as u64, report.requests);
        let line = serde_json::to_value(first).unwrap();
        assert_eq!(line["type"], "interval");
    }
}

fn phase(duration: Duration, rate: f64, value_size: usize, get_ratio: f64) -> Phase {
    Phase {
        duration,
        rate: Rate::constant(rate),
        value_size,
        get_ratio: Some(get_ratio),
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
    let config = Config {
        phases: vec![
            phase(150 * MS, 1_000.0, 64, 0.5),
            phase(110 * MS, 4_000.0, 4096, 0.5),
            phase(1_000 * MS, 1_000.0, 64, 0.0),
        ],
        progress: Some(40 * MS),
        ..config(addr)
    };
    let mut intervals = vec![];
    let keep = |interval: &batchwise_load::Interval| {
        intervals.push(interval.clone());
        Ok(())
    };
    let report = run(&config, keep).unwrap().report;
    assert_eq!(report.errors, 0, "{:?}", report.why_invalid);
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    let phases = &report.phases;
    assert_eq!(phases.len(), 3);
    assert_eq!(
        phases.iter().map(|p| p.requests).sum::<u64>(),
        report.requests
    );
    assert_eq!(phases[0].from_ts_ns, report.measured_from_ts_ns);
    assert_eq!(phases[2].to_ts_ns, report.measured_to_ts_ns);
    assert_eq!(phases[1].to_ts_ns - phases[1].from_ts_ns, 110_000_000);
    assert!(phases[1].offered_rps > 2.0 * phases[0].offered_rps);
    assert_eq!(phases[1].value_size, 4096);
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
    let config = Config {
        phases: vec![
            phase(100 * MS, 200.0, 64, 0.0),
            phase(100 * MS, 5_000.0, 64, 0.0),
            phase(700 * MS, 20.0, 64, 0.0),
        ],
        warmup: Duration::ZERO,
        ..config(addr)
    };
    let report = report(&config);
    let second = &report.phases[1];
    assert!(second.achieved_rps < 0.9 * second.offered_rps, "{second:?}");
    assert!(!second.valid && !report.valid);
    assert!(
        report
            .why_invalid
            .iter()
            .any(|why| why.starts_with("phase 2: only")),
        "{report:?}"
    );
}

#[test]
fn a_server_that_dies_leaves_only_the_phases_that_had_begun() {
    let addr = serve(|command| match command.number {
        0..200 => honest(command, 64),
        _ => Answer::Close,
    });
    let config = Config {
        phases: vec![
            phase(60_000 * MS, 2_000.0, 64, 0.0),
            phase(60_000 * MS, 2_000.0, 64, 0.0),
        ],
        warmup: Duration::ZERO,
        ..config(addr)
    };
    let report = report(&config);
    assert_eq!(report.phases.len(), 1);
    assert_eq!(report.phases[0].to_ts_ns, report.measured_to_ts_ns);
    assert!(!report.valid);
}

#[test]
fn a_consumer_of_interim_reports_that_fails_ends_the_run() {
    let config = Config {
        duration: Duration::from_secs(3600),
        progress: Some(20 * MS),
        ..config(honest_server(64))
    };
    let failed = run(&config, |_| Err(io::ErrorKind::BrokenPipe.into())).unwrap_err();
    assert!(matches!(failed, Error::Progress(_)), "{failed}");
}

#[test]
fn a_closed_loop_sends_as_fast_as_it_is_answered() {
    let mode = Mode::Closed { pipeline: 3 };
    let report = report(&Config {
        mode,
        connections: 2,
        ..config(honest_server(64))
    });
    assert!(
        report.valid && report.closed && report.from == "send",
        "{report:?}"
    );
    assert_eq!(report.latency_ns, report.latency_from_send_ns);
    assert!(report.requests > 0 && report.errors == 0);
}

#[test]
fn the_clients_own_work_counts_as_latency() {
    let busy_per_response = 200 * MS / 1000;
    let report = report(&Config {
        busy_per_response,
        ..config(honest_server(64))
    });
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
    let failed = run(&config(addr), |_| Ok(())).unwrap_err();
    assert!(matches!(failed, Error::Connect { .. }), "{failed}");
}

#[test]
fn a_server_that_wants_a_password_is_reported_in_its_own_words() {
    let addr = serve(|_| Answer::Reply(b"-NOAUTH Authentication required.\r\n".to_vec()));
    let failed = run(&config(addr), |_| Ok(())).unwrap_err().to_string();
    assert!(
        failed.contains("NOAUTH Authentication required."),
        "{failed}"
    );
}

#[test]
fn a_server_that_does_not_speak_resp_is_an_error() {
    let addr = serve(|_| Answer::Reply(b"HTTP/1.1 400 Bad Request\r\n".to_vec()));
    let failed = run(&config(addr), |_| Ok(())).unwrap_err().to_string();
    assert!(failed.contains("is this a Redis server?"), "{failed}");
}

#[test]
fn a_cpu_that_is_not_there_is_an_error() {
    let config = Config {
        cpu: Some(1000),
        ..config(honest_server(64))
    };
    let failed = run(&config, |_| Ok(())).unwrap_err().to_string();
    assert!(failed.contains("CPU 1000"), "{failed}");
}

#[test]
fn the_histogram_log_holds_both_latencies_of_every_request() {
    use base64::prelude::{BASE64_STANDARD as BASE64, Engine};
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    let outcome = run(&config(honest_server(64)), |_| Ok(())).unwrap();
    let dir = std::env::temp_dir().join(format!("batchwise-load-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (log, text) = (dir.join("run.hlog"), dir.join("run.hgrm"));
    write_hdr(&log, &outcome).unwrap();
    write_hdr(&text, &outcome).unwrap();
    let (log, text) = (
        std::fs::read(log).unwrap(),
        std::fs::read_to_string(text).unwrap(),
    );
    std::fs::remove_dir_all(&dir).unwrap();

    let mut tags = vec![];
    for entry in IntervalLogIterator::new(&log) {
        if let LogEntry::Interval(interval) = entry.unwrap() {
            tags.push(interval.tag().unwrap().as_str().to_owned());
            let bytes = BASE64.decode(interval.encoded_histogram()).unwrap();
            let mut reader = BufReader::new(Cursor::new(bytes));
            let histogram: hdrhistogram::Histogram<u64> =
                Deserializer::new().deserialize(&mut reader).unwrap();
            assert_eq!(histogram.len(), outcome.report.requests);
        }
    }
    assert_eq!(tags, ["intended", "send"]);
    assert!(
        text.contains("1.000000000000") && text.contains("#[Mean"),
        "{text}"
    );
}
