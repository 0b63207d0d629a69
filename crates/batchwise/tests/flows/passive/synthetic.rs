//! Captures of conversations whose latencies are known, since they were made up.

use std::fs::File;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use etherparse::PacketBuilder;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};
use tempfile::TempDir;

/// When the first capture packet is, ns since 1970.
pub const BEGIN_NS: u64 = 1_760_000_000_000_000_000;

/// A client that sends bursts of small requests and waits for the answers to each.
#[derive(Clone, Copy)]
pub struct Conversation {
    pub client: SocketAddrV4,
    pub server: SocketAddrV4,
    /// From a burst's first request to the next burst's.
    pub latency: Duration,
    /// Requests in a burst, 10 us apart.
    pub burst: u32,
    pub bursts: u32,
    /// Answers are in the capture, too.
    pub both_ways: bool,
    /// The capture begins before the connection does.
    pub opening: bool,
}

/// A packet and when it was seen.
pub type TimedPacket = (u64, Vec<u8>);

const REQUEST: usize = 100;
const ANSWER: usize = 1_000;
const SPACING_NS: u64 = 10_000;

impl Conversation {
    /// Its packets in order.
    pub fn packets(&self) -> Vec<TimedPacket> {
        let latency = self.latency.as_nanos() as u64;
        let (mut sequence, mut acknowledged) = (1_000, 5_000);
        let mut packets = Vec::new();
        if self.opening {
            packets.push((BEGIN_NS, self.opening()));
        }
        for burst in 0..u64::from(self.bursts) {
            let at = BEGIN_NS + 1_000_000 + burst * latency;
            for n in 0..u64::from(self.burst) {
                let from_to = (self.client, self.server);
                let request = segment(from_to, sequence, acknowledged, REQUEST);
                packets.push((at + n * SPACING_NS, request));
                sequence += REQUEST as u32;
            }
            if self.both_ways {
                let from_to = (self.server, self.client);
                let answer = segment(from_to, acknowledged, sequence, ANSWER);
                packets.push((at + latency - SPACING_NS, answer));
            }
            acknowledged += ANSWER as u32;
        }
        packets
    }

    fn opening(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        ip(self.client, self.server)
            .tcp(self.client.port(), self.server.port(), 999, 64_000)
            .syn()
            .write(&mut bytes, &[])
            .expect("a packet");
        bytes
    }
}

fn ip(
    from: SocketAddrV4,
    to: SocketAddrV4,
) -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ipv4(
        from.ip().octets(),
        to.ip().octets(),
        64,
    )
}

fn segment(
    (from, to): (SocketAddrV4, SocketAddrV4),
    sequence: u32,
    acknowledged: u32,
    payload: usize,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    ip(from, to)
        .tcp(from.port(), to.port(), sequence, 64_000)
        .ack(acknowledged)
        .write(&mut bytes, &vec![0; payload])
        .expect("a packet");
    bytes
}

/// Writes a pcap with nanoseconds of all these packets in order of time; the file lives as long as
/// the folder.
pub fn write(mut packets: Vec<TimedPacket>, snap: usize) -> (TempDir, PathBuf) {
    packets.sort_by_key(|packet| packet.0);
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("made-up.pcap");
    let header = PcapHeader {
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        ..PcapHeader::default()
    };
    let file = File::create(&path).expect("a file");
    let mut writer = PcapWriter::with_header(file, header).expect("a capture");
    for (at, bytes) in &packets {
        let kept = &bytes[..bytes.len().min(snap)];
        let packet = PcapPacket::new(Duration::from_nanos(*at), bytes.len() as u32, kept);
        writer.write_packet(&packet).expect("written");
    }
    drop(writer);
    (folder, path)
}
