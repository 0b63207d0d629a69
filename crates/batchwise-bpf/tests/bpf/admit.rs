//! Admission of bursts, held against its reference in `batchwise-core`.

use batchwise_core::burst::mark::CodePoints;
use batchwise_core::burst::{Credit, Lease, Packet, Reserved, Rules, Verdict, decide};
use batchwise_twins::types::{
    burst_credit, burst_lease, burst_packet, burst_reserved, burst_rules,
};
use batchwise_twins::{
    bw_twin_burst_decide, bw_twin_burst_mark, bw_twin_burst_segments, bw_twin_burst_unmark,
};
use proptest::prelude::*;

/// `enum burst_verdict`, in order.
const VERDICTS: [Verdict; 7] = [
    Verdict::Taken,
    Verdict::Admitted,
    Verdict::Promised,
    Verdict::Last,
    Verdict::Full,
    Verdict::Refused,
    Verdict::Denied,
];

#[test]
fn both_read_write_and_take_away_the_same_marks() {
    for points in CodePoints::ALL {
        let low = points.low().into();
        for tos in 0..=u8::MAX {
            let told = points.segments(tos).unwrap_or(0);
            assert_eq!(bw_twin_burst_segments(tos, low), told, "{tos:#x}");
            assert_eq!(
                bw_twin_burst_unmark(tos, low),
                points.unmark(tos),
                "{tos:#x}"
            );
            for segments in (0..100).chain([u32::MAX]) {
                let marked = points.mark(tos, segments).unwrap_or(tos);
                let twin = bw_twin_burst_mark(tos, segments, low);
                assert_eq!(twin, marked, "{tos:#x} {segments}");
            }
        }
    }
}

/// A packet: time since the one before, whose it is, its length, its mark, what is queued, and whether
/// there is room to keep something of its flow and of its source.
type Step = (u64, usize, u32, Option<u32>, u32, bool, bool);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![
        0..20_000_u64,
        0..2_000_000_u64,
        any::<u32>().prop_map(u64::from)
    ];
    let bytes = prop_oneof![Just(1500_u32), 0..9000_u32, any::<u32>()];
    let segments = prop::option::of(prop_oneof![0..70_u32, any::<u32>()]);
    let queued = prop_oneof![0..150_000_u32, any::<u32>()];
    let kept = || prop::bool::weighted(0.9);
    let step = (wait, 0..4_usize, bytes, segments, queued, kept(), kept());
    prop::collection::vec(step, 1..100)
}

proptest! {
    #[test]
    fn both_decide_the_same_of_any_packets(
        limit in 10_000..2_000_000_u32,
        rate in 1_000_000..100_000_000_000_u64,
        steps in steps(),
    ) {
        let rules = Rules::new(limit, rate);
        let twin_rules = burst_rules {
            send_time: rules.send_time,
            refill_time: rules.refill_time,
            limit: rules.limit,
            source_bytes: rules.source_bytes,
            epoch_shift: rules.epoch_shift,
            pad: 0,
        };
        let (mut reserved, mut twin) = (Reserved::default(), burst_reserved::default());
        let (mut leases, mut credits) = ([Lease::default(); 4], [Credit::default(); 4]);
        let mut twin_leases = [burst_lease::default(); 4];
        let mut twin_credits = [burst_credit::default(); 4];
        let mut now = 0;
        for (wait, who, bytes, segments, queued, has_lease, has_source) in steps {
            now += wait;
            let verdict = decide(
                &rules,
                &mut reserved,
                has_lease.then_some(&mut leases[who]),
                has_source.then_some(&mut credits[who / 2]),
                now,
                queued,
                Packet { bytes, segments },
            );
            let packet = burst_packet { bytes, segments: segments.unwrap_or(0) };
            let said = bw_twin_burst_decide(
                &twin_rules,
                &mut twin,
                has_lease.then_some(&mut twin_leases[who]),
                has_source.then_some(&mut twin_credits[who / 2]),
                now,
                queued,
                &packet,
            );
            prop_assert_eq!(VERDICTS[said as usize], verdict);
            prop_assert_eq!((twin.epoch, twin.bytes), (reserved.epoch, reserved.bytes));
            prop_assert_eq!(twin.until, reserved.until);
            let lease = &twin_leases[who];
            let kept = (lease.epoch, lease.left, lease.refused != 0);
            prop_assert_eq!(kept, (leases[who].epoch, leases[who].left, leases[who].refused));
            prop_assert_eq!(twin_credits[who / 2].full_at, credits[who / 2].full_at);
        }
    }
}
