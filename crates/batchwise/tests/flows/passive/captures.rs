//! Captures whose latencies are known give these latencies, by server and by flow; broken ones give what
//! they hold, and an error.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Stdio;
use std::time::Duration;

use batchwise_testbed::stage::batchwise;
use batchwise_testbed::stage::refusal::run;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::passive::run::{Lines, over};
use crate::passive::synthetic::{BEGIN_NS, Conversation, TimedPacket, write};

const WEB: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 80);
const CACHE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 3), 11_211);

fn conversation(client: u16, server: SocketAddrV4, latency: Duration) -> Conversation {
    Conversation {
        client: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), client),
        server,
        latency,
        burst: 3,
        bursts: (Duration::from_millis(2_400).as_micros() / latency.as_micros()) as u32,
        both_ways: false,
        opening: true,
    }
}

fn all(conversations: &[Conversation]) -> Vec<TimedPacket> {
    let packets = conversations.iter().map(Conversation::packets);
    packets.flatten().collect()
}

/// Two flows to one server, and one to another that is ten times as fast.
fn three() -> [Conversation; 3] {
    [
        conversation(40_000, WEB, Duration::from_millis(4)),
        conversation(40_001, WEB, Duration::from_millis(12)),
        conversation(40_002, CACHE, Duration::from_micros(400)),
    ]
}

fn assert_near(ns: f64, truth: Duration) {
    let truth = truth.as_nanos() as f64;
    assert!((ns / truth - 1.0).abs() < 0.02, "{ns} instead of {truth}");
}

fn assert_three(lines: &Lines) {
    // 600 latencies of 4 ms, 200 of 12 ms
    assert_near(lines.mean("10.0.0.1:80").1, Duration::from_millis(6));
    assert_near(lines.mean("10.0.0.3:11211").1, Duration::from_micros(400));
    for conversation in three() {
        let client = conversation.client.to_string();
        let mut of = lines.epochs.clone();
        of.retain(|e| e.client.as_deref() == Some(&client));
        assert!(of.len() >= 2, "{client}: {of:?}");
        for epoch in of {
            let latency = epoch.latency_ns.expect("known") as f64;
            assert_near(latency, conversation.latency);
        }
    }
}

#[test]
fn one_direction_gives_each_servers_and_each_flows_latency() {
    let (_folder, path) = write(all(&three()), usize::MAX);
    let lines = over(&path, &["--per-flow"]);
    assert_three(&lines);
    let totals = lines.totals.expect("totals");
    assert_eq!((totals.born, totals.acks, totals.other), (3, 3, 0));
    assert_eq!(totals.packets, totals.measured + totals.acks);
}

#[test]
fn answers_in_the_capture_change_nothing() {
    let both_ways = three().map(|c| Conversation {
        both_ways: true,
        ..c
    });
    for opening in [true, false] {
        let conversations = both_ways.map(|c| Conversation { opening, ..c });
        let (_folder, path) = write(all(&conversations), usize::MAX);
        assert_three(&over(&path, &["--per-flow"]));
    }
}

#[test]
fn a_port_decides_who_the_server_is_and_what_is_measured() {
    let mut odd = conversation(80, WEB, Duration::from_millis(4));
    odd.server.set_port(50_051);
    (odd.both_ways, odd.opening) = (true, false);
    let other = conversation(40_000, CACHE, Duration::from_millis(1));
    let (_folder, path) = write(all(&[odd, other]), usize::MAX);
    let lines = over(&path, &["--port", "50051"]);
    assert_near(lines.mean("10.0.0.1:50051").1, Duration::from_millis(4));
    assert!(lines.servers.iter().all(|l| l.server == "10.0.0.1:50051"));
}

#[test]
fn a_capture_of_headers_only_gives_the_same() {
    let (_folder, path) = write(all(&three()), 60);
    assert_three(&over(&path, &["--per-flow"]));
}

#[test]
fn a_capture_through_a_pipe_gives_the_same() {
    let (_folder, path) = write(all(&three()), usize::MAX);
    let output = batchwise()
        .args(["passive", "--pcap", "-", "--format", "jsonl", "--per-flow"])
        .stdin(Stdio::from(fs::File::open(path).expect("the capture")))
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    assert_three(&Lines::read(&String::from_utf8_lossy(&output.stdout)));
}

#[test]
fn control_c_ends_a_capture_that_is_still_being_written() {
    let (_folder, path) = write(all(&three()), usize::MAX);
    let mut passive = batchwise()
        .args(["passive", "--pcap", "-", "--format", "jsonl"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut input = passive.stdin.take().expect("its input");
    // it is behind by at most what a pipe holds
    let capture = fs::read(path).expect("the capture");
    input.write_all(&capture).expect("written");
    let mut output = BufReader::new(passive.stdout.take().expect("its output"));
    let mut text = String::new();
    output.read_line(&mut text).expect("a line");
    kill(Pid::from_raw(passive.id().cast_signed()), Signal::SIGINT).expect("it is there");
    output.read_to_string(&mut text).expect("text");
    assert!(passive.wait().expect("it ends").success());
    drop(input);
    assert!(
        Lines::read(&text).totals.is_some_and(|t| t.measured > 0),
        "{text}"
    );
}

#[test]
fn intervals_follow_the_captures_own_time() {
    let (_folder, path) = write(all(&three()), usize::MAX);
    let times = "--interval 500ms --epoch 300ms --duration 2s";
    let lines = over(&path, &times.split(' ').collect::<Vec<_>>());
    let mut ends: Vec<u64> = lines.servers.iter().map(|l| l.ts_ns - BEGIN_NS).collect();
    ends.dedup();
    assert!(ends.len() >= 3, "{ends:?}");
    let (last, full) = ends.split_last().expect("intervals");
    assert!(full.iter().all(|end| end % 500_000_000 == 0), "{ends:?}");
    assert!(*last < 2_000_000_000, "{ends:?}");
}

#[test]
fn text_and_report_name_every_server() {
    let (folder, path) = write(all(&three()), usize::MAX);
    let report = folder.path().join("report.html");
    let mut command = batchwise();
    command.args(["passive", "--format", "plain", "--pcap"]);
    command.arg(&path);
    let output = run(command.arg("--report").arg(&report));
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let page = fs::read_to_string(&report).expect("a report");
    for server in ["10.0.0.1:80", "10.0.0.3:11211"] {
        assert!(text.contains(server), "{text}");
        assert!(page.contains(server), "{page}");
    }
    assert!(text.contains("3 flows began"), "{text}");
    assert!(!text.contains("waiting"), "{text}");
    assert!(page.contains("</html>") && page.matches("<svg").count() == 5);
}

#[test]
fn the_published_algorithms_can_be_asked() {
    let one = conversation(40_000, WEB, Duration::from_millis(4));
    let (_folder, path) = write(all(&[one]), usize::MAX);
    for estimator in ["paper", "paper:50us", "fixed:1ms"] {
        let lines = over(&path, &["--estimator", estimator]);
        assert_near(lines.mean("10.0.0.1:80").1, Duration::from_millis(4));
    }
}

/// It is refused with each of `words`, and with the file's name; gives what was read before.
fn refused(bytes: &[u8], words: &[&str]) -> Lines {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("broken.pcap");
    fs::write(&path, bytes).expect("written");
    let mut command = batchwise();
    command.args(["passive", "--format", "jsonl", "--pcap"]);
    let output = run(command.arg(&path));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(error.lines().count(), 1, "{error}");
    for word in words.iter().chain(&["broken.pcap"]) {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
    Lines::read(&String::from_utf8_lossy(&output.stdout))
}

#[test]
fn a_broken_capture_shows_what_it_holds_and_names_the_packet_and_the_remedy() {
    let mut one = conversation(40_000, WEB, Duration::from_millis(4));
    (one.burst, one.bursts, one.opening) = (1, 100, false);
    let (_folder, path) = write(one.packets(), usize::MAX);
    let good = fs::read(path).expect("the capture");
    let cut = &good[..good.len() - 1];
    let lines = refused(cut, &["packet 100", "cut off", "tcpdump -r"]);
    assert_eq!(lines.totals.expect("totals").measured, 99);
    assert!(lines.mean("10.0.0.1:80").0 > 90);

    let mut wireless = good;
    wireless[20..24].copy_from_slice(&105u32.to_be_bytes());
    refused(&wireless, &["packet 1", "IEEE802_11", "tcpdump -i any"]);
    // nothing is shown of what is no capture
    for (bytes, word) in [
        (&b""[..], "empty"),
        (b"GET / HTTP/1.1\r\n", "no pcap"),
        (&[0x1f, 0x8b, 8, 0], "gunzip"),
        (&[0x0a, 0x0d, 0x0d, 0x0a], "cut off"),
    ] {
        assert!(refused(bytes, &[word]).totals.is_none());
    }
}
