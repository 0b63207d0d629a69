//! Frames for tests, put together layer by layer.

use std::thread::sleep;
use std::time::{Duration, Instant};

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const ACK: u8 = 0x10;

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

pub const VLAN: u16 = 0x8100;
pub const QINQ: u16 = 0x88a8;

pub const CLIENT_PORT: u16 = 40_000;
pub const SERVER_PORT: u16 = 80;

/// A TCP segment.
#[derive(Clone, Copy)]
pub struct Segment {
    pub sport: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub options: usize,
    pub payload: usize,
}

impl Default for Segment {
    fn default() -> Self {
        Self {
            sport: CLIENT_PORT,
            seq: 1,
            ack: 1,
            flags: ACK,
            options: 12,
            payload: 100,
        }
    }
}

impl Segment {
    pub fn bytes(self) -> Vec<u8> {
        let mut b = Vec::new();
        b.extend(self.sport.to_be_bytes());
        b.extend(SERVER_PORT.to_be_bytes());
        b.extend(self.seq.to_be_bytes());
        b.extend(self.ack.to_be_bytes());
        b.push(((20 + self.options) / 4) as u8 * 16);
        b.push(self.flags);
        b.extend([0xff, 0xff, 0, 0, 0, 0]);
        b.resize(20 + self.options, 1); // no-operation
        b.resize(20 + self.options + self.payload, b'x');
        b
    }
}

/// A segment of a connection, which its port names; flags and payload.
pub fn tcp(sport: u16, flags: u8, payload: usize) -> Segment {
    Segment {
        sport,
        flags,
        payload,
        ..Segment::default()
    }
}

/// A frame with another byte at a place.
pub fn with(mut frame: Vec<u8>, at: usize, to: u8) -> Vec<u8> {
    frame[at] = to;
    frame
}

pub fn udp(payload: usize) -> Vec<u8> {
    let mut b = Vec::new();
    b.extend(CLIENT_PORT.to_be_bytes());
    b.extend(SERVER_PORT.to_be_bytes());
    b.extend((8 + payload as u16).to_be_bytes());
    b.extend([0, 0]);
    b.resize(8 + payload, b'x');
    b
}

/// IPv4; `fragment` is the field of flags and offset.
pub fn v4(protocol: u8, options: usize, fragment: u16, payload: &[u8]) -> Vec<u8> {
    v4_from([10, 0, 0, 2], protocol, options, fragment, payload)
}

pub fn v4_from(
    source: [u8; 4],
    protocol: u8,
    options: usize,
    fragment: u16,
    payload: &[u8],
) -> Vec<u8> {
    let head = 20 + options;
    let mut b = vec![0x40 | (head / 4) as u8, 0];
    b.extend(((head + payload.len()) as u16).to_be_bytes());
    b.extend([0, 7]);
    b.extend(fragment.to_be_bytes());
    b.extend([64, protocol, 0, 0]);
    b.extend(source);
    b.extend([10, 0, 0, 1]);
    b.resize(head, 1);
    b.extend(payload);
    b
}

/// IPv6; extension headers by kind and bytes, the first two of which are filled in here.
pub fn v6(extensions: &[(u8, usize)], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len: usize = extensions.iter().map(|(_, bytes)| bytes).sum();
    let mut kinds = extensions.iter().map(|(kind, _)| *kind).chain([protocol]);
    let mut b = vec![0x60, 0, 0, 0];
    b.extend(((len + payload.len()) as u16).to_be_bytes());
    b.push(kinds.next().unwrap_or(protocol));
    b.push(64);
    b.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    b.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    for (&(kind, bytes), next) in extensions.iter().zip(kinds) {
        let units = match kind {
            51 => bytes / 4 - 2,
            44 => 0,
            _ => bytes / 8 - 1,
        };
        let start = b.len();
        b.extend([next, units as u8]);
        b.resize(start + bytes, 0);
    }
    b.extend(payload);
    b
}

pub fn ethernet(tags: &[u16], packet: &[u8]) -> Vec<u8> {
    let kind = match packet[0] >> 4 {
        6 => 0x86dd_u16,
        _ => 0x0800,
    };
    ethernet_of(tags, kind, packet)
}

pub fn ethernet_of(tags: &[u16], kind: u16, packet: &[u8]) -> Vec<u8> {
    let mut b = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for tag in tags {
        b.extend(tag.to_be_bytes());
        b.extend([0, 5]);
    }
    b.extend(kind.to_be_bytes());
    b.extend(packet);
    b
}

/// Over IPv4.
pub fn tcp_frame(segment: Segment) -> Vec<u8> {
    ethernet(&[], &v4(TCP, 0, 0, &segment.bytes()))
}

/// What a burst's segments may take to be handed over: far from what a gap between bursts is told by.
pub const AT_ONCE: Duration = Duration::from_micros(200);

/// Hands over bursts of three segments of a connection, 2 ms apart, each answered before the next.
/// How far apart they were in the mean; `None` when those of some burst did not come at once, as when
/// another process ran between them: what is measured is then another flow than this.
pub fn bursts(count: u32, sport: u16, mut hand_over: impl FnMut(Segment)) -> Option<Duration> {
    let start = Instant::now();
    let (mut last, mut at_once) = (start, true);
    for i in 0..count {
        last = Instant::now();
        for j in 0..3 {
            hand_over(Segment {
                sport,
                seq: 1 + (i * 3 + j) * 100,
                ack: 1 + i * 1000,
                ..Segment::default()
            });
        }
        at_once &= last.elapsed() < AT_ONCE;
        sleep(Duration::from_millis(2));
    }
    at_once.then(|| (last - start) / (count - 1))
}

/// Begins anew until `attempt` was not disturbed by other processes.
pub fn undisturbed<T>(attempt: impl FnMut() -> Option<T>) -> T {
    let mut attempts = std::iter::repeat_with(attempt).take(200);
    let undisturbed = attempts.find_map(|attempt| attempt);
    undisturbed.expect("a time at which three packets come within 200 us")
}

/// What a parser should make of each: valid frames of every kind, to begin with.
pub fn kinds() -> Vec<Vec<u8>> {
    let tcp = Segment::default().bytes();
    let ah = (51, 24);
    vec![
        ethernet(&[], &v4(TCP, 0, 0, &tcp)),
        ethernet(&[], &v4(TCP, 40, 0x4000, &tcp)),
        ethernet(&[VLAN], &v4(UDP, 0, 0, &udp(100))),
        ethernet(&[QINQ, VLAN], &v4(UDP, 4, 0, &udp(0))),
        ethernet(&[], &v6(&[], TCP, &tcp)),
        ethernet(&[], &v6(&[(0, 8), (60, 16), (43, 24)], UDP, &udp(1200))),
        ethernet(&[VLAN], &v6(&[(0, 8), ah, (44, 8)], TCP, &tcp)),
        ethernet(&[QINQ, VLAN], &v6(&[(60, 8)], UDP, &udp(10))),
    ]
}
