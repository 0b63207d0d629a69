//! The program that admits bursts before a queue, packet by packet, held against core's [`Admission`].

use std::thread::sleep;
use std::time::Duration;

use batchwise_bpf::burst::{Admitter, Bottleneck, Counts};
use batchwise_core::burst::mark::CodePoints;
use batchwise_core::burst::{Admission, Packet, Rules, Sender, Verdict};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::kernel::{need_root, run_forwarded};

const TC_ACT_SHOT: i32 = 2;
const POINTS: CodePoints = CodePoints::Pool2;

/// TCP over IPv4 of a flow of a source, so long, with this mark.
fn frame(source: u8, flow: u8, length: usize, tos: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, tos];
    frame.extend(((length - 14) as u16).to_be_bytes());
    frame.extend([0, 7, 0x40, 0, 64, 6, 0, 0, 10, 1, 0, source, 10, 2, 0, 1]);
    frame.extend([
        1, flow, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 255, 255, 0, 0, 0, 0,
    ]);
    frame.resize(length, b'x');
    frame
}

fn bottleneck(limit: u32, rate: u64) -> Bottleneck {
    Bottleneck {
        limit,
        rate,
        packet_bytes: None,
        points: POINTS,
        border: false,
    }
}

/// What core makes of the packets that the program was given.
#[derive(Default)]
struct Told(Vec<Verdict>);

impl Told {
    fn count(&self, verdict: Verdict) -> u64 {
        self.0.iter().filter(|v| **v == verdict).count() as u64
    }
}

/// The queue stays empty, and no lease ends while the test runs: what is promised decides.
#[test]
fn the_program_decides_as_core_does_of_any_packets() {
    need_root();
    const LIMIT: u32 = 60_000;
    const RATE: u64 = 1_000;
    const NOW: u64 = 1;
    let mut random = SmallRng::seed_from_u64(18);
    let admitter = Admitter::load(&bottleneck(LIMIT, RATE)).expect("the program");
    let mut core = Admission::new(Rules::new(LIMIT, RATE), 8192);
    let (mut marked, mut unmarked) = (Told::default(), Told::default());
    for number in 0..1_000 {
        let (source, flow) = (random.random_range(0..40), random.random_range(0..3));
        let length = random.random_range(500..1_514);
        let segments = [None, Some(2), Some(4), Some(6), Some(10)][random.random_range(0..5)];
        let tos = segments.and_then(|s| POINTS.mark(0, s)).unwrap_or(0);
        let packet = Packet {
            bytes: length as u32,
            segments,
        };
        let sender = Sender {
            source: u64::from(source) + 1,
            flow: u64::from(source) << 8 | u64::from(flow) | 1 << 32,
        };
        let verdict = core.admit(NOW, sender, packet, 0);
        let dropped =
            run_forwarded(admitter.program(), &frame(source, flow, length, tos)) == TC_ACT_SHOT;
        assert_eq!(
            dropped,
            !verdict.is_in(),
            "packet {number}: {packet:?} {verdict:?}"
        );
        let told = if segments.is_some() {
            &mut marked
        } else {
            &mut unmarked
        };
        told.0.push(verdict);
    }
    let (counts, sources) = admitter.read().expect("counts");
    let wanted = Counts {
        bursts_admitted: marked.count(Verdict::Admitted),
        bursts_refused: marked.count(Verdict::Refused),
        promised: marked.count(Verdict::Promised),
        last: marked.count(Verdict::Last),
        denied: marked.count(Verdict::Denied),
        ignored: marked.count(Verdict::Taken),
        overflowed: marked.count(Verdict::Full),
        unmarked: unmarked.count(Verdict::Taken),
        unmarked_dropped: unmarked.count(Verdict::Full),
        reserved_bytes: core.reserved(NOW).into(),
        sources: sources.len() as u64,
        ..Counts::default()
    };
    assert_eq!(counts, wanted);
    let kinds = [
        counts.bursts_admitted,
        counts.bursts_refused,
        counts.promised,
        counts.denied,
        counts.ignored,
    ];
    assert!(
        kinds.iter().all(|&count| count > 10),
        "all are met: {counts:?}"
    );
}

#[test]
fn what_a_burst_left_of_its_lease_is_not_the_next_bursts() {
    need_root();
    let admitter = Admitter::load(&bottleneck(150_000, 1_000_000_000)).expect("the program");
    let mark = POINTS.mark(0, 8).expect("a mark");
    for _ in 0..2 {
        // seven are told of as eight
        for _ in 0..7 {
            run_forwarded(admitter.program(), &frame(1, 1, 1_000, mark));
        }
        // far longer than the lease, and until its credit is back
        sleep(Duration::from_millis(100));
    }
    let (counts, _) = admitter.read().expect("counts");
    assert_eq!(
        (counts.bursts_admitted, counts.promised),
        (2, 12),
        "{counts:?}"
    );
    assert_eq!(
        (counts.leases_lost, counts.lost_bytes),
        (2, 2_000),
        "{counts:?}"
    );
}

/// UDP over IPv6 from this host, with this mark.
fn frame_v6(host: u8, tos: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd];
    frame.extend([0x60 | tos >> 4, tos << 4, 0, 0, 0x03, 0x84, 17, 64]);
    for host in [host, 99] {
        frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    frame.extend([0, host, 0, 80, 0x03, 0x84, 0, 0]);
    frame.resize(14 + 40 + 0x384, b'x');
    frame
}

#[test]
fn each_ipv6_address_has_a_credit_of_its_own() {
    need_root();
    let mark = POINTS.mark(0, 8).expect("a mark");
    let admitter = Admitter::load(&bottleneck(100_000, 1_000)).expect("the program");
    for host in [1, 2, 3, 1, 2, 3] {
        run_forwarded(admitter.program(), &frame_v6(host, mark));
    }
    let (counts, sources) = admitter.read().expect("counts");
    assert_eq!(counts.bursts_admitted, 3, "{counts:?}");
    assert_eq!(sources.len(), 3);
}
