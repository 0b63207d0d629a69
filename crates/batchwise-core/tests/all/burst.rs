//! Bursts that are admitted whole, as properties: never more is promised than there is room, nothing
//! leaks, a promise is kept, and a source takes no more from others than its credit.

use std::collections::VecDeque;

use batchwise_core::burst::algorithm1::{Algorithm1, Tagged};
use batchwise_core::burst::mark::CodePoints;
use batchwise_core::burst::{Admission, Packet, Rules, Sender, Verdict};
use proptest::prelude::*;

const FULL: u32 = 1500;
/// 100 full-sized packets before 1 Gbit/s.
const LIMIT: u32 = 100 * FULL;
const RATE: u64 = 1_000_000_000;
/// To send a full-sized packet, ns.
const PACKET: u64 = 12_000;

/// A queue that empties at the link's rate.
struct Router {
    admission: Admission,
    queue: VecDeque<u32>,
    /// When the first packet has left.
    free_at: u64,
}

impl Router {
    fn new(sources: usize) -> Self {
        Self {
            admission: Admission::new(Rules::new(LIMIT, RATE), sources),
            queue: VecDeque::new(),
            free_at: 0,
        }
    }

    fn queued(&self) -> u32 {
        self.queue.iter().sum()
    }

    fn packet(&mut self, now: u64, source: u64, flow: u64, packet: Packet) -> Verdict {
        while !self.queue.is_empty() && self.free_at <= now {
            self.queue.pop_front();
            let next = self.queue.front().copied().unwrap_or_default();
            self.free_at += u64::from(next) * 8;
        }
        let sender = Sender { source, flow };
        let queued = self.queued();
        let verdict = self.admission.admit(now, sender, packet, queued);
        if verdict.is_in() {
            if self.queue.is_empty() {
                self.free_at = now + u64::from(packet.bytes) * 8;
            }
            self.queue.push_back(packet.bytes);
        }
        verdict
    }

    /// A full-sized packet.
    fn full(&mut self, now: u64, who: u64, segments: Option<u32>) -> Verdict {
        let bytes = FULL;
        self.packet(now, who, who, Packet { bytes, segments })
    }
}

#[test]
fn a_mark_tells_a_length_rounded_up_and_leaves_ecn_alone() {
    for points in CodePoints::ALL {
        for (segments, ecn) in (2..=64).flat_map(|n| (0..4).map(move |ecn| (n, ecn))) {
            let tos = points.mark(ecn, segments).unwrap();
            let told = points.segments(tos).unwrap();
            let longest = segments * 4 / 3;
            assert!((segments..=longest).contains(&told), "{segments}: {told}");
            assert_eq!((tos & 3, points.unmark(tos)), (ecn, ecn));
        }
        let longest = points.mark(0, 1000).unwrap();
        assert_eq!(points.segments(longest), Some(64));
        assert_eq!(points.mark(0, 1), None, "one segment is no burst");
    }
}

#[test]
fn a_mark_is_its_class_before_the_bits_that_were_chosen() {
    for (points, dscps) in [
        (CodePoints::Pool2, [0b000011, 0b011011, 0b111111]),
        (CodePoints::Pool3, [0b000001, 0b011001, 0b111101]),
    ] {
        assert_eq!([2, 10, 64].map(|n| points.mark(0, n).unwrap() >> 2), dscps);
        let low = points.name().trim_start_matches('x');
        for tos in 0..=u8::MAX {
            let is_one = format!("{:06b}", tos >> 2).ends_with(low);
            assert_eq!(points.segments(tos).is_some(), is_one, "{tos:#x}");
        }
    }
    assert_eq!(CodePoints::default(), CodePoints::Pool2);
}

#[test]
fn marks_of_other_code_points_are_those_of_others() {
    let [two, three] = CodePoints::ALL;
    for (mine, theirs) in [(two, three), (three, two)] {
        for tos in (0..=u8::MAX).filter(|tos| theirs.segments(*tos).is_some()) {
            assert_eq!((mine.segments(tos), mine.mark(tos, 10)), (None, None));
            assert_eq!(mine.unmark(tos), tos);
        }
    }
}

#[test]
fn what_others_say_in_the_dscp_survives() {
    let expedited = 46 << 2 | 2;
    for points in CodePoints::ALL {
        assert_eq!(points.mark(expedited, 10), None);
        assert_eq!(points.unmark(expedited), expedited);
        assert_eq!(points.segments(expedited), None);
    }
}

#[test]
fn a_burst_without_room_is_dropped_whole_and_the_next_one_asks_anew() {
    let mut router = Router::new(64);
    for who in 0..95 {
        assert_eq!(router.full(0, 1000 + who, None), Verdict::Taken);
    }
    assert_eq!(router.full(0, 1, Some(10)), Verdict::Refused);
    for _ in 1..9 {
        assert_eq!(router.full(0, 1, Some(10)), Verdict::Denied);
    }
    assert_eq!(
        router.full(0, 1, Some(10)),
        Verdict::Last,
        "its sender hears of it"
    );
    assert_eq!(
        router.full(0, 2, None),
        Verdict::Taken,
        "its room is others'"
    );
    let later = 100 * PACKET;
    assert_eq!(router.full(later, 1, Some(10)), Verdict::Admitted);
    for _ in 1..10 {
        assert_eq!(router.full(later, 1, Some(10)), Verdict::Promised);
    }
}

#[test]
fn the_state_of_a_refused_burst_ends_with_its_lease() {
    let mut router = Router::new(64);
    for who in 0..95 {
        router.full(0, 1000 + who, None);
    }
    assert_eq!(router.full(0, 1, Some(10)), Verdict::Refused);
    let later = 60 * PACKET;
    assert_eq!(router.full(later, 1, Some(5)), Verdict::Admitted);
}

#[test]
fn beyond_its_credit_a_source_is_treated_as_one_that_does_not_mark() {
    let mut router = Router::new(64);
    let ask = |router: &mut Router, flow| {
        let packet = Packet {
            bytes: FULL,
            segments: Some(5),
        };
        router.packet(0, 7, flow, packet)
    };
    // a tenth of the queue: 10 packets
    assert_eq!(ask(&mut router, 1), Verdict::Admitted);
    assert_eq!(ask(&mut router, 2), Verdict::Admitted);
    assert_eq!(ask(&mut router, 3), Verdict::Taken);
    assert_eq!(
        router.full(0, 8, Some(11)),
        Verdict::Taken,
        "more than any credit"
    );
}

#[test]
fn a_full_table_is_no_reason_to_drop() {
    let mut router = Router::new(1);
    let verdicts: Vec<_> = (0..20).map(|who| router.full(0, who, Some(2))).collect();
    assert!(verdicts.contains(&Verdict::Admitted));
    assert_eq!(verdicts[19], Verdict::Taken);
}

#[test]
fn who_reserves_and_does_not_send_holds_little_and_not_for_long() {
    let mut router = Router::new(64);
    let mut held = 0;
    let steps = 100_000;
    for step in 0..steps {
        let now = step * PACKET;
        router.packet(
            now,
            7,
            step,
            Packet {
                bytes: FULL,
                segments: Some(10),
            },
        );
        held += u64::from(router.admission.reserved(now));
    }
    // a burst's lease is twice its sending time and an epoch, and a burst takes a hundred sending times
    let mean = held / steps;
    assert!(mean < u64::from(LIMIT) / 100, "{mean} B");
}

#[test]
fn algorithm_1_admits_by_the_longest_super_packet_whatever_the_length() {
    let mut paper = Algorithm1::new(100, 10, 1_000_000);
    let regular = Tagged {
        key: 0,
        length: 1,
        first: false,
        last: false,
    };
    assert!(paper.admit(0, regular, 90));
    assert!(
        !paper.admit(0, regular, 91),
        "there is room, but not for the longest"
    );
}

#[test]
fn algorithm_1_as_published_never_gives_back_what_expired() {
    let mut paper = Algorithm1::new(100, 10, 1_000_000);
    let first = |key| Tagged {
        key,
        length: 10,
        first: true,
        last: false,
    };
    let mut now = 0;
    let admitted = (0..100).filter(|&key| {
        now += 10_000_000;
        paper.admit(now, first(key), 0)
    });
    // 9 packets each, at 70 %
    assert_eq!(admitted.count(), 15);
}

/// Who asks when, for how much, and who sends without a mark.
fn traffic() -> impl Strategy<Value = Vec<(u64, u64, u64, u32, Option<u32>)>> {
    let wait = prop_oneof![Just(0_u64), 0..PACKET, 0..100 * PACKET];
    let bytes = prop_oneof![Just(FULL), 40..9000_u32];
    let packet = (
        wait,
        0..20_u64,
        0..40_u64,
        bytes,
        prop::option::of(2..=64_u32),
    );
    prop::collection::vec(packet, 1..400)
}

proptest! {
    #[test]
    fn never_more_is_promised_than_there_is_room_and_nothing_leaks(traffic in traffic()) {
        let mut router = Router::new(16);
        let mut now = 0;
        for (wait, source, flow, bytes, segments) in traffic {
            now += wait;
            router.packet(now, source, flow, Packet { bytes, segments });
            let reserved = router.admission.reserved(now);
            prop_assert!(router.queued() + reserved <= LIMIT);
        }
        // the longest lease, and the epoch that it ends in
        now += 4 * 10 * PACKET;
        prop_assert_eq!(router.admission.reserved(now), 0);
    }

    #[test]
    fn an_admitted_burst_that_comes_in_time_is_never_cut(
        traffic in traffic(),
        segments in 2..=10_u32,
        share in 0.0..1.0_f64,
    ) {
        let mut router = Router::new(1024);
        let own = u64::MAX;
        let mut now = 1_000_000_000;
        prop_assert_eq!(router.full(now, own, Some(segments)), Verdict::Admitted);
        // evenly, within twice the time that it takes to send
        let gap = (share * (2 * PACKET) as f64) as u64;
        let mut others = traffic.into_iter();
        for _ in 1..segments {
            for (_, source, flow, bytes, segments) in others.by_ref().take(40) {
                router.packet(now, source, flow, Packet { bytes, segments });
            }
            now += gap;
            prop_assert_eq!(router.full(now, own, Some(segments)), Verdict::Promised);
        }
    }

    #[test]
    fn a_liar_is_promised_no_more_than_its_credit(
        asks in prop::collection::vec((0..50 * PACKET, 0..8_u64, 2..=64_u32), 1..300),
    ) {
        let mut router = Router::new(64);
        let (mut now, mut promised) = (0, 0_u64);
        for (wait, flow, segments) in asks {
            now += wait;
            let verdict = router.packet(now, 7, flow, Packet { bytes: FULL, segments: Some(segments) });
            if verdict == Verdict::Admitted {
                promised += u64::from(segments * FULL);
            }
        }
        // a tenth of the queue, and a hundredth of what the link carried in the meantime
        let fair = u64::from(LIMIT / 10) + now / 8 / 100;
        prop_assert!(promised <= fair + fair / 1000 + 1, "{promised} of {fair}");
    }
}
