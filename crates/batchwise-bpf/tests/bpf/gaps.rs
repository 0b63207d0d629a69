//! The C estimator of gaps, compiled on the host, against its reference in batchwise-core: the same
//! packets must leave the same modes and give the same estimate, bit for bit.

use batchwise_bpf::gaps_from;
use batchwise_core::passive::stream::{Segment, datagram};
use batchwise_core::passive::{Algorithm, Estimate, Gaps, Kind, Params, Stream};
use batchwise_twins::types::{flow_gaps, flow_gaps_flag, flow_gaps_params, flow_stream};
use batchwise_twins::{
    bw_twin_gaps_datagram, bw_twin_gaps_due, bw_twin_gaps_open, bw_twin_gaps_packet,
    bw_twin_gaps_tcp, bw_twin_gaps_tcp_ack, gaps as twins,
};
use proptest::prelude::*;

const ACKS: u8 = flow_gaps_flag::FLOW_GAPS_ACKS.0 as u8;

/// Both sides of one flow.
struct Pair {
    ours: Gaps,
    twin: flow_gaps,
    params: Params,
    c_params: flow_gaps_params,
}

/// A packet that counts.
#[derive(Clone, Copy, Debug)]
struct Packet {
    gap: u64,
    marked: bool,
    resent: bool,
}

impl Pair {
    fn new(params: Params, acks: bool) -> Self {
        let ours = Gaps::new(acks);
        let twin = flow_gaps {
            flags: if acks { ACKS } else { 0 },
            ..flow_gaps::default()
        };
        let c_params = twins::params(&params);
        let mut pair = Self {
            ours,
            twin,
            params,
            c_params,
        };
        pair.open(1);
        pair
    }

    fn open(&mut self, now: u64) {
        self.ours.open(now);
        bw_twin_gaps_open(&mut self.twin, now);
    }

    fn due(&self, now: u64) -> bool {
        let theirs = bw_twin_gaps_due(&self.twin, &self.c_params, now) != 0;
        assert_eq!(self.ours.due(&self.params, now), theirs);
        theirs
    }

    fn packet(&mut self, now: u64, p: Packet) {
        self.ours.packet(&self.params, now, p.marked, p.resent);
        let (marked, resent) = (p.marked.into(), p.resent.into());
        bw_twin_gaps_packet(&mut self.twin, &self.c_params, now, marked, resent);
    }

    fn estimate(&self) -> Estimate {
        let theirs = twins::estimate(&self.twin, &self.c_params, self.ours.kind);
        assert_eq!(self.ours.estimate(&self.params), theirs);
        theirs
    }

    fn same(&self) {
        // SAFETY: a struct of integers without padding, and its size.
        let twin = unsafe {
            std::slice::from_raw_parts((&raw const self.twin).cast(), size_of_val(&self.twin))
        };
        let fixed = matches!(self.params.algorithm, Algorithm::Fixed(_));
        let said = |g: &Gaps| {
            let in_flight = g.kind == Kind::Flight;
            let modes = g.modes().iter().filter(|m| !fixed || m.count > 0);
            (
                g.kind,
                in_flight.then_some(g.flight),
                (!in_flight).then(|| modes.copied().collect::<Vec<_>>()),
                [g.start, g.last],
                [g.discarded, g.idle, g.resent],
                [g.full, g.after_full, g.acks],
                g.largest,
            )
        };
        let theirs = gaps_from(twin).expect("all of it");
        assert_eq!(said(&self.ours), said(&theirs));
    }
}

/// Any gaps, without the headers that requests in flight would need.
const GAPS: Params = Params {
    algorithm: Algorithm::Modes,
    epoch_ns: 1_000_000_000,
    max_ns: 10_000_000_000,
    idle_ns: 200_000_000,
    min_gaps: 5,
};

fn run(params: Params, acks: bool, close: bool, packets: &[Packet]) {
    let mut pair = Pair::new(params, acks);
    let mut now = 1_000u64;
    for (i, p) in packets.iter().enumerate() {
        // a gap may be negative: clocks of CPUs differ
        now = if i % 17 == 16 {
            now.saturating_sub(p.gap / 64)
        } else {
            now + p.gap
        };
        if pair.due(now) && close {
            pair.estimate();
            pair.open(now);
        }
        pair.packet(now, *p);
        pair.same();
    }
    pair.estimate();
}

/// Gaps over the whole range, evenly by their logarithm.
fn gap() -> impl Strategy<Value = u64> {
    (0u32..38, any::<u64>()).prop_map(|(bits, low)| (1 << bits) | (low & ((1 << bits) - 1)))
}

fn packet() -> impl Strategy<Value = Packet> {
    let resent = prop_oneof![19 => Just(false), 1 => Just(true)];
    (gap(), any::<bool>(), resent).prop_map(|(gap, marked, resent)| Packet {
        gap,
        marked,
        resent,
    })
}

/// As flows are: bursts with pauses between them.
fn bursts() -> impl Strategy<Value = Vec<Packet>> {
    let burst = (1u64..6, 0u64..100, 0u64..100);
    (10u32..34, 1u32..8, proptest::collection::vec(burst, 1..80)).prop_map(
        |(scale, under, bursts)| {
            let mut packets = Vec::new();
            for (n, pause, spread) in bursts {
                for i in 0..n {
                    let base = if i == 0 {
                        1 << scale
                    } else {
                        1u64 << scale >> under
                    };
                    packets.push(Packet {
                        gap: base + base * (pause + spread) / 200,
                        marked: i == 0 || pause % 7 == 0,
                        resent: pause == 99,
                    });
                }
            }
            packets
        },
    )
}

fn params() -> impl Strategy<Value = Params> {
    let algorithm = prop_oneof![
        3 => Just(Algorithm::Modes),
        1 => gap().prop_map(Algorithm::Fixed),
    ];
    (
        algorithm,
        0u64..2_000_000_000,
        0u64..3_000_000_000,
        0u32..50,
    )
        .prop_map(|(algorithm, epoch_ns, idle_ns, min_gaps)| Params {
            algorithm,
            epoch_ns,
            max_ns: epoch_ns * 4,
            idle_ns,
            min_gaps,
        })
}

proptest! {
    #[test]
    fn c_and_rust_agree_on_any_gaps(
        params in params(), acks: bool, close: bool,
        packets in proptest::collection::vec(packet(), 0..400),
    ) {
        run(params, acks, close, &packets);
    }

    #[test]
    fn c_and_rust_agree_on_bursts(
        params in params(), acks: bool, close: bool, packets in bursts(),
    ) {
        run(params, acks, close, &packets);
    }

    #[test]
    fn c_and_rust_read_any_headers_alike(
        base: u32, auto: bool, udp: bool,
        headers in proptest::collection::vec(
            (gap(), 0u32..3_000, 0u32..4_000, 0u32..3_000, 0u32..2_000, 0u8..8), 0..300,
        ),
    ) {
        let algorithm = if auto { Algorithm::Auto } else { Algorithm::Modes };
        let mut pair = Pair::new(Params { algorithm, ..Params::default() }, false);
        let (mut ours, mut twin) = (Stream::default(), flow_stream::default());
        let (mut now, mut from) = (1_000, base);
        for (gap, seq, len, ack, ip_len, kind) in headers {
            now += gap >> 4;
            from = from.wrapping_add(seq / 2);
            if pair.due(now) {
                pair.estimate();
                pair.open(now);
                pair.same();
            }
            let s = Segment { seq: from.wrapping_sub(seq), len, ack: from.wrapping_add(ack), ip_len };
            let (g, p) = (&mut pair.twin, &pair.c_params);
            match kind {
                _ if udp => {
                    datagram(&mut pair.ours, &pair.params, now, ip_len);
                    bw_twin_gaps_datagram(g, p, now, ip_len);
                }
                0 | 1 => {
                    ours.ack(&pair.ours, now, s.ack);
                    bw_twin_gaps_tcp_ack(g, &mut twin, now, s.ack);
                }
                _ => {
                    ours.segment(&mut pair.ours, &pair.params, now, &s);
                    bw_twin_gaps_tcp(g, &mut twin, p, now, s.seq, len, s.ack, ip_len);
                }
            }
            pair.same();
            let theirs = (twin.next_seq, twin.ack, twin.acked_at);
            prop_assert_eq!((ours.next_seq, ours.ack, ours.acked_at), theirs);
        }
        pair.estimate();
    }
}

#[test]
fn c_and_rust_agree_when_counters_are_at_their_end() {
    let packets: Vec<_> = (0..150_000u64)
        .map(|i| Packet {
            gap: if i % 2 == 0 { 1_000 } else { 2_000_000 },
            marked: i % 2 == 1,
            resent: false,
        })
        .collect();
    run(GAPS, true, false, &packets);
    let many: Vec<_> = packets
        .iter()
        .map(|p| Packet { resent: true, ..*p })
        .collect();
    run(GAPS, false, false, &many);
}

/// Golden vectors: `tests/gaps/*.txt`; see the first lines of each.
#[test]
fn c_and_rust_both_give_the_vectors_estimates() {
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gaps")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        play(&text, &path.display().to_string());
    }
}

fn play(text: &str, name: &str) {
    let mut pair = Pair::new(GAPS, false);
    let mut now = 1_000;
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split('#').next().unwrap().split_whitespace();
        let Some(verb) = words.next() else {
            continue;
        };
        let at = format!("{name}:{}", number + 1);
        match verb {
            "flow" => {
                let acks = words.next() == Some("acks");
                pair = Pair::new(GAPS, acks);
                pair.packet(
                    now,
                    Packet {
                        gap: 0,
                        marked: true,
                        resent: false,
                    },
                );
            }
            // repeat=N gaps in us: plain, + marked, ! resent
            "gaps" => {
                let times = words.next().and_then(|w| w.strip_prefix("x")?.parse().ok());
                let gaps: Vec<Packet> = words
                    .map(|w| Packet {
                        gap: w.trim_end_matches(['+', '!']).parse::<u64>().expect(&at) * 1_000,
                        marked: w.ends_with('+'),
                        resent: w.ends_with('!'),
                    })
                    .collect();
                for p in std::iter::repeat_n(&gaps, times.expect(&at)).flatten() {
                    now += p.gap;
                    pair.packet(now, *p);
                    pair.same();
                }
            }
            "expect" => {
                let e = pair.estimate();
                for word in words {
                    let (key, value) = word.split_once('=').expect(&at);
                    let got = match key {
                        "latency_us" => e
                            .latency
                            .map_or("none".into(), |ns| (ns / 1_000).to_string()),
                        "batches" => e.batches.to_string(),
                        "gaps" => e.gaps.to_string(),
                        "idle" => e.idle.to_string(),
                        "stalled" => e.stalled.to_string(),
                        other => panic!("{at}: {other}?"),
                    };
                    assert_eq!(got, value, "{at}: {key}");
                }
            }
            other => panic!("{at}: {other}?"),
        }
    }
}
