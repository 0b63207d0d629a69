//! What holds of the estimator of gaps whatever packets come.

use batchwise_core::passive::stream::{Segment, datagram};
use batchwise_core::passive::{Algorithm, Estimate, Gaps, Params, Stream};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// Gaps over the whole range, evenly by their logarithm.
fn gap() -> impl Strategy<Value = u64> {
    (0u32..36, any::<u64>()).prop_map(|(bits, low)| (1 << bits) | (low & ((1 << bits) - 1)))
}

fn packets() -> impl Strategy<Value = Vec<(u64, bool, bool)>> {
    proptest::collection::vec((gap(), any::<bool>(), any::<bool>()), 0..500)
}

proptest! {
    #[test]
    fn every_gap_is_counted_once_and_modes_never_overlap(packets in packets(), acks: bool) {
        let p = Params::default();
        let mut gaps = Gaps::new(acks);
        gaps.open(1);
        let mut now = 1;
        for (i, &(gap, marked, resent)) in packets.iter().enumerate() {
            now += gap;
            gaps.packet(&p, now, marked, resent);
            let modes = gaps.modes();
            let held: u32 = modes.iter().map(|m| u32::from(m.count)).sum();
            let apart = u32::from(gaps.discarded) + u32::from(gaps.idle) + u32::from(gaps.resent);
            prop_assert_eq!(held + apart, i as u32);
            prop_assert_eq!(gaps.estimate(&p).gaps, i as u32);
            prop_assert!(modes.iter().all(|m| m.lo <= m.hi && m.marked <= m.count));
            prop_assert!(modes.windows(2).all(|w| w[0].hi < w[1].lo));
        }
    }

    #[test]
    fn an_estimate_scales_with_time(
        bursts in proptest::collection::vec((64u64..4_096, 1u64..5), 1..100), octaves in 1u32..5, acks: bool,
    ) {
        // whole units of 16 ns, so that nothing is rounded
        let estimate = |scale: u32| {
            let p = Params { idle_ns: 3_000_000_000, ..Params::default() };
            let mut gaps = Gaps::new(acks);
            gaps.open(16);
            let mut now = 16;
            gaps.packet(&p, now, true, false);
            for &(pause, requests) in &bursts {
                for i in 0..requests {
                    let gap = if i == 0 { pause << 8 } else { pause };
                    now += gap << scale << 4;
                    gaps.packet(&p, now, i == 0, false);
                }
            }
            gaps.estimate(&p)
        };
        let (a, b) = (estimate(0), estimate(octaves));
        prop_assert_eq!((a.batches, a.confidence), (b.batches, b.confidence));
        // means are rounded down
        let (a, b) = (a.latency.unwrap_or(0) << octaves, b.latency.unwrap_or(0));
        prop_assert!(b >= a && b - a <= 1 << octaves, "{a} {b}");
    }

    #[test]
    fn no_header_and_no_clock_makes_it_panic(
        headers in proptest::collection::vec((any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>(), 0u8..4), 0..200),
        delta: u64,
    ) {
        for algorithm in [Algorithm::Auto, Algorithm::Modes, Algorithm::Fixed(delta)] {
            let p = Params { algorithm, ..Params::default() };
            let (mut gaps, mut stream) = (Gaps::default(), Stream::default());
            for &(now, seq, len, ack, ip_len, kind) in &headers {
                if gaps.due(&p, now) {
                    gaps.estimate(&p);
                    gaps.open(now);
                }
                match kind {
                    0 => datagram(&mut gaps, &p, now, ip_len),
                    1 => stream.ack(&gaps, now, ack),
                    _ => stream.segment(&mut gaps, &p, now, &Segment { seq, len, ack, ip_len }),
                }
                gaps.estimate(&p);
            }
        }
    }
}

/// A TCP client.
struct Client {
    gaps: Gaps,
    stream: Stream,
    now: u64,
    sent: u32,
    heard: u32,
}

impl Client {
    fn new() -> Self {
        let mut client = Self {
            gaps: Gaps::default(),
            stream: Stream::default(),
            now: MS,
            sent: 0,
            heard: 0,
        };
        client.gaps.open(MS);
        client
    }

    fn packet(&mut self, seq: u32, len: u32) {
        let s = Segment {
            seq,
            len,
            ack: self.heard,
            ip_len: len + 40,
        };
        let p = Params::default();
        self.stream.segment(&mut self.gaps, &p, self.now, &s);
    }

    /// A request, and then nothing for so long.
    fn request(&mut self, pause: u64) {
        self.packet(self.sent, 300);
        self.sent += 300;
        self.now += pause;
    }

    /// The last request once more, and then nothing for so long.
    fn resend(&mut self, pause: u64) {
        self.packet(self.sent - 300, 300);
        self.now += pause;
    }

    fn respond(&mut self, after: u64) {
        self.now += after;
        self.heard += 1_000;
    }

    fn exchange(&mut self, latency: u64, think: u64, acked: bool) {
        self.request(0);
        self.respond(latency);
        if acked {
            self.stream.ack(&self.gaps, self.now, self.heard);
        }
        self.now += think;
    }

    fn estimate(&self) -> Estimate {
        self.gaps.estimate(&Params::default())
    }
}

#[test]
fn think_time_after_an_acknowledged_response_is_no_latency() {
    let mut client = Client::new();
    for i in 0..50 {
        client.exchange(2 * MS, if i % 2 == 0 { 7 * MS } else { 0 }, true);
    }
    let e = client.estimate();
    assert_eq!((e.latency, e.batches), (Some(2 * MS), 49));
}

#[test]
fn a_window_that_is_always_full_shows_the_whole_latency() {
    let mut client = Client::new();
    for _ in 0..4 {
        client.request(4_000);
    }
    for _ in 0..200 {
        client.respond(MS);
        client.request(0);
    }
    let latency = client.estimate().latency.unwrap();
    // the first four wait for fewer
    assert!((3_900_000..4_010_000).contains(&latency), "{latency}");
}

#[test]
fn bursts_that_wait_for_all_responses_are_left_to_the_gaps() {
    let mut client = Client::new();
    for i in 0u64..120 {
        if client.gaps.due(&Params::default(), client.now) || i % 40 == 39 {
            client.gaps.open(client.now);
        }
        let requests = 1 + (i * 7 % 4) as u32;
        for _ in 0..requests {
            client.request(4_000);
        }
        client.heard += 1_000 * requests;
        client.now += 2 * MS;
    }
    let latency = client.estimate().latency.unwrap();
    assert!((1_900_000..2_200_000).contains(&latency), "{latency}");
}

#[test]
fn requests_that_fill_a_packet_are_requests() {
    let mut client = Client::new();
    for _ in 0..20 {
        client.packet(client.sent, 1_460);
        client.sent += 1_460;
        client.respond(3 * MS);
    }
    let e = client.estimate();
    assert_eq!((e.latency, e.batches), (Some(3 * MS), 19));
}

#[test]
fn a_response_that_takes_seconds_is_slow_and_not_idle_time() {
    let mut client = Client::new();
    for _ in 0..6 {
        client.exchange(2_500 * MS, 0, false);
    }
    let e = client.estimate();
    assert_eq!((e.latency, e.idle), (Some(2_500 * MS), 0));
}

#[test]
fn a_clock_that_steps_back_makes_no_latency_of_a_minute() {
    let mut client = Client::new();
    for i in 0..50 {
        client.exchange(2 * MS, 0, false);
        client.now -= if i % 10 == 9 { 3 * MS } else { 0 };
    }
    let latency = client.estimate().latency.unwrap();
    assert!(latency <= 2 * MS, "{latency}");
}

#[test]
fn a_server_that_does_not_answer_is_stalled_and_has_no_latency() {
    let mut client = Client::new();
    client.request(200 * MS);
    for timeout in [400, 800, 1_600, 0] {
        client.resend(timeout * MS);
    }
    let e = client.estimate();
    assert_eq!((e.latency, e.stalled), (None, true));
}

#[test]
fn after_it_recovers_there_is_a_latency_again() {
    let mut client = Client::new();
    client.request(200 * MS);
    client.resend(0);
    client.respond(MS);
    for _ in 0..9 {
        client.exchange(MS, 0, false);
    }
    let e = client.estimate();
    assert_eq!((e.latency, e.stalled), (Some(MS), false));
    assert_eq!(client.gaps.resent, 1);
}

#[test]
fn a_request_that_was_overtaken_and_is_resent_needlessly_counts_once() {
    let mut client = Client::new();
    for _ in 0..4 {
        client.request(4_000);
    }
    for round in 0..200 {
        client.respond(MS);
        if round % 10 == 9 {
            // two are overtaken by the next one; the client takes the first for lost
            for after in [600, 0, 300, 0] {
                client.packet(client.sent + after, 300);
                client.respond(30_000);
            }
            client.sent += 900;
        } else {
            client.request(0);
        }
    }
    assert_eq!(client.gaps.resent, 20);
    assert_eq!((client.gaps.flight.cap, client.gaps.flight.len), (4, 4));
}

#[test]
fn a_retransmission_after_the_last_response_does_not_hide_that_it_came() {
    let mut client = Client::new();
    for _ in 0..50 {
        client.exchange(2 * MS, MS / 10, true);
        client.resend(7 * MS);
    }
    client.request(0);
    assert_eq!(client.gaps.resent, 50);
    assert_eq!(client.gaps.flight.len, 1);
    assert_eq!(client.gaps.flight.tainted, 0);
}
