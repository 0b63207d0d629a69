//! Captures of both formats, whole and broken.

use std::io::Write;

use tempfile::NamedTempFile;

use super::*;

const LITTLE: Endianness = Endianness::Little;

/// Time, link type, bytes, length.
type Read = (u64, DataLink, Vec<u8>, u32);

/// What the file holds, or the error.
fn read(bytes: &[u8]) -> anyhow::Result<Vec<Read>> {
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("written");
    let mut capture = Capture::open(file.path(), &Arc::default())?;
    let mut packets = Vec::new();
    while let Some(packet) = capture.next()? {
        packets.push((
            packet.at_ns,
            packet.link,
            packet.data.to_vec(),
            packet.length,
        ));
    }
    Ok(packets)
}

fn error(bytes: &[u8]) -> String {
    format!("{:#}", read(bytes).expect_err("not readable"))
}

fn word(endianness: Endianness, value: u32) -> [u8; 4] {
    match endianness {
        Endianness::Big => value.to_be_bytes(),
        Endianness::Little => value.to_le_bytes(),
    }
}

fn words(endianness: Endianness, values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| word(endianness, *v)).collect()
}

fn pcap(endianness: Endianness, magic: u32, network: u32, packets: &[[u32; 4]]) -> Vec<u8> {
    let versions = match endianness {
        Endianness::Big => 0x0002_0004,
        Endianness::Little => 0x0004_0002,
    };
    let mut bytes = words(endianness, &[magic, versions, 0, 0, 96, network]);
    for packet in packets {
        bytes.extend(words(endianness, packet));
        bytes.resize(bytes.len() + packet[2] as usize, 7);
    }
    bytes
}

fn block(endianness: Endianness, kind: u32, body: &[u8]) -> Vec<u8> {
    let length = word(endianness, body.len() as u32 + 12);
    [&word(endianness, kind)[..], &length, body, &length].concat()
}

/// A section header, an interface with a resolution of time, and a packet at so many units.
fn pcapng(endianness: Endianness, resolution: Option<u8>, ticks: u64) -> Vec<u8> {
    let versions = match endianness {
        Endianness::Big => 0x0001_0000,
        Endianness::Little => 0x0000_0001,
    };
    let section = words(endianness, &[0x1a2b_3c4d, versions, u32::MAX, u32::MAX]);
    let link = match endianness {
        Endianness::Big => 1 << 16,
        Endianness::Little => 1,
    };
    let mut interface = words(endianness, &[link, 0]);
    if let Some(resolution) = resolution {
        let option: u32 = match endianness {
            Endianness::Big => 9 << 16 | 1,
            Endianness::Little => 1 << 16 | 9,
        };
        interface.extend(word(endianness, option));
        interface.extend([resolution, 0, 0, 0, 0, 0, 0, 0]);
    }
    let head = [0, (ticks >> 32) as u32, ticks as u32, 5, 60];
    let mut packet = words(endianness, &head);
    packet.extend([1, 2, 3, 4, 5, 0, 0, 0]);
    [
        block(endianness, 0x0a0d_0d0a, &section),
        block(endianness, 1, &interface),
        block(endianness, 6, &packet),
    ]
    .concat()
}

#[test]
fn pcap_times_are_nanoseconds_in_either_order_and_resolution() {
    for endianness in [Endianness::Big, LITTLE] {
        for (magic, fraction, ns) in [(0xa1b2_c3d4, 5, 5_000), (0xa1b2_3c4d, 5, 5)] {
            let bytes = pcap(endianness, magic, 1, &[[3, fraction, 4, 4]]);
            let packets = read(&bytes).expect("a capture");
            let expected = (3_000_000_000 + ns, DataLink::ETHERNET, vec![7; 4], 4);
            assert_eq!(packets, [expected]);
        }
    }
}

#[test]
fn packets_cut_at_the_snap_length_keep_their_length_on_the_wire() {
    let bytes = pcap(LITTLE, 0xa1b2_c3d4, 1, &[[0, 0, 96, 1514]]);
    let packets = read(&bytes).expect("a capture");
    assert_eq!((packets[0].2.len(), packets[0].3), (96, 1514));
}

#[test]
fn the_length_of_check_sequences_in_the_header_is_no_part_of_the_link_type() {
    let bytes = pcap(LITTLE, 0xa1b2_c3d4, 0x2400_0001, &[[0, 0, 1, 1]]);
    assert_eq!(read(&bytes).expect("a capture")[0].1, DataLink::ETHERNET);
}

#[test]
fn pcapng_times_are_in_the_interfaces_own_units() {
    for endianness in [Endianness::Big, LITTLE] {
        for (resolution, ticks, ns) in [
            (None, 1_500_000, 1_500_000_000),
            (Some(6), 1_500_000, 1_500_000_000),
            (Some(9), 1_500_000_001, 1_500_000_001),
            (Some(0x80 | 10), 1536, 1_500_000_000),
        ] {
            let packets = read(&pcapng(endianness, resolution, ticks)).expect("a capture");
            let expected = (ns, DataLink::ETHERNET, vec![1, 2, 3, 4, 5], 60);
            assert_eq!(packets, [expected]);
        }
    }
}

#[test]
fn times_beyond_all_calendars_are_malformed_rather_than_wrapped() {
    for (resolution, ticks) in [(0, u64::MAX), (6, u64::MAX), (0x7f, 1)] {
        let error = error(&pcapng(LITTLE, Some(resolution), ticks));
        assert!(error.contains("packet 1 is malformed"), "{error}");
    }
}

#[test]
fn a_file_that_ends_too_early_is_named_with_the_packet_and_the_remedy() {
    let whole = pcap(LITTLE, 0xa1b2_c3d4, 1, &[[0, 0, 60, 60], [1, 0, 60, 60]]);
    let cut = error(&whole[..whole.len() - 1]);
    assert!(cut.contains("packet 2 is cut off"), "{cut}");
    assert!(cut.contains("tcpdump -r"), "{cut}");
    let header = error(&whole[..10]);
    assert!(header.contains("its header is cut off"), "{header}");
    for end in 0..whole.len() {
        let between_packets = [24, 24 + 76].contains(&end);
        assert_eq!(read(&whole[..end]).is_ok(), between_packets, "{end}");
    }
    let whole = pcapng(LITTLE, None, 0);
    let cut = error(&whole[..whole.len() - 3]);
    assert!(cut.contains("packet 1 is cut off"), "{cut}");
}

#[test]
fn lengths_and_fractions_that_cannot_be_are_malformed() {
    for packet in [[0, 1_000_000, 4, 4], [0, 0, 5, 4]] {
        let error = error(&pcap(LITTLE, 0xa1b2_c3d4, 1, &[packet]));
        assert!(error.contains("packet 1 is malformed"), "{error}");
    }
    // a captured length of 60 in a block of 8 bytes of data; an interface that is not described
    let whole = pcapng(LITTLE, None, 0);
    let packet = whole.len() - 12 - 28;
    for (field, value) in [(20, 60), (8, 1)] {
        let mut bytes = whole.clone();
        bytes[packet + field] = value;
        let error = error(&bytes);
        assert!(error.contains("packet 1 is malformed"), "{error}");
    }
}

#[test]
fn packets_without_a_time_are_refused() {
    let mut bytes = pcapng(LITTLE, None, 0);
    bytes.extend(block(LITTLE, 3, &words(LITTLE, &[4, 0])));
    assert!(error(&bytes).contains("packet 2 is malformed (Invalid field value: a packet without"));
}

#[test]
fn what_is_no_capture_is_said_with_what_to_do() {
    for (bytes, words) in [
        (&b""[..], "is empty"),
        (b"<html>", "no pcap or pcapng capture"),
        (b"ab", "no pcap or pcapng capture"),
        (&[0x1f, 0x8b, 8, 0, 0][..], "gunzip"),
        (&[0x28, 0xb5, 0x2f, 0xfd, 0][..], "unzstd"),
    ] {
        let error = error(bytes);
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_directory_is_named() {
    let error = Capture::open(Path::new("/tmp"), &Arc::default()).err();
    let error = error.expect("an error").to_string();
    assert!(error.contains("/tmp is a directory"), "{error}");
}

proptest::proptest! {
    #[test]
    fn whatever_is_in_a_file_gives_packets_or_an_error(
        ng: bool,
        cut in 0usize..200,
        changes in proptest::collection::vec((0usize..200, proptest::num::u8::ANY), 0..8),
    ) {
        let mut bytes = if ng {
            pcapng(LITTLE, Some(9), 1 << 40)
        } else {
            pcap(LITTLE, 0xa1b2_c3d4, 1, &[[0, 0, 60, 60], [1, 0, 20, 20]])
        };
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        if let Err(error) = read(&bytes) {
            let said = format!("{error:#}");
            proptest::prop_assert!(said.len() > 30, "{}", said);
        }
    }
}
