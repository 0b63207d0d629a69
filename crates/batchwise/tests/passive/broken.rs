//! Captures that are broken: what could be read is shown, the error says what is wrong and what to
//! do, and the exit code is 1.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use batchwise_testbed::stage::batchwise;
use batchwise_testbed::stage::refusal::run;
use tempfile::TempDir;

use crate::run::Lines;
use crate::synthetic::{Conversation, bytes, write};

/// Of the file, and of each packet in it.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;

fn good() -> Vec<u8> {
    let conversation = Conversation {
        client: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 40_000),
        server: SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 80),
        latency: Duration::from_millis(4),
        burst: 1,
        bursts: 100,
        both_ways: false,
        opening: false,
    };
    let (_folder, path) = write(conversation.packets(), usize::MAX);
    bytes(&path)
}

fn read(path: &Path) -> Output {
    let mut command = batchwise();
    command.args(["passive", "--format", "jsonl", "--pcap"]);
    run(command.arg(path))
}

/// It is refused with each of `words`, and with the file's name; gives what was read before.
fn refused(bytes: &[u8], words: &[&str]) -> Lines {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("broken.pcap");
    std::fs::write(&path, bytes).expect("written");
    let output = read(&path);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!error.contains("panicked"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    for word in words.iter().chain(&["broken.pcap"]) {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
    Lines::read(&String::from_utf8_lossy(&output.stdout))
}

#[test]
fn a_capture_that_was_cut_off_shows_what_it_holds_and_names_the_packet() {
    let good = good();
    let lines = refused(
        &good[..good.len() - 1],
        &["packet 100", "cut off", "tcpdump -r"],
    );
    assert_eq!(lines.totals.expect("totals").measured, 99);
    assert!(lines.mean("10.0.0.1:80").0 > 90);
}

#[test]
fn a_cut_anywhere_is_an_error_or_between_two_packets() {
    let good = good();
    let packet = PACKET_HEADER + 154;
    for cut in (0..FILE_HEADER + 2 * packet).step_by(7) {
        if cut >= FILE_HEADER && (cut - FILE_HEADER).is_multiple_of(packet) {
            continue;
        }
        refused(&good[..cut], &[]);
    }
}

#[test]
fn lengths_and_times_that_cannot_be_name_the_packet() {
    let second = FILE_HEADER + PACKET_HEADER + 154;
    for (offset, words) in [(4, "malformed"), (8, "packet 2")] {
        let mut bytes = good();
        bytes[second + offset..second + offset + 4].fill(0xff);
        let lines = refused(&bytes, &["packet 2", words]);
        assert_eq!(lines.totals.expect("totals").measured, 1);
    }
}

#[test]
fn a_link_type_that_is_not_known_is_named_with_what_to_capture() {
    let mut bytes = good();
    bytes[20..24].copy_from_slice(&105u32.to_be_bytes());
    refused(&bytes, &["packet 1", "IEEE802_11", "tcpdump -i any"]);
}

#[test]
fn what_is_no_capture_is_refused_before_anything_is_shown() {
    for (bytes, word) in [
        (&b""[..], "empty"),
        (b"GET / HTTP/1.1\r\n", "no pcap"),
        (&[0x1f, 0x8b, 8, 0], "gunzip"),
        (&[0x0a, 0x0d, 0x0d, 0x0a], "cut off"),
    ] {
        let lines = refused(bytes, &[word]);
        assert!(lines.totals.is_none());
    }
}

#[test]
fn a_missing_capture_is_named() {
    let output = read(Path::new("/no/such/broken.pcap"));
    batchwise_testbed::stage::refusal::assert_refused(
        &output,
        1,
        &["/no/such/broken.pcap", "No such file"],
    );
}
