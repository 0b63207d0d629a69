//! The C formula of a connection's space, compiled on the host, against its reference in batchwise-core.

use batchwise_core::window::Sender;
use batchwise_twins::bw_twin_space;
use batchwise_twins::types::bw_sender;
use proptest::prelude::*;

fn twin(s: &Sender, slack: u32) -> u32 {
    let s = bw_sender {
        cwnd: s.cwnd,
        mss: s.mss,
        unacked: s.unacked,
        sacked: s.sacked,
        lost: s.lost,
        retrans: s.retrans,
        flight: s.flight,
        peer: s.peer,
        unsent: s.unsent,
        buffer: s.buffer,
        throttled: u32::from(s.throttled),
    };
    bw_twin_space(&s, slack)
}

/// Numbers as connections have them, and any others.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..50_u32, 1000..2_000_000_u32, any::<u32>()]
}

proptest! {
    #[test]
    fn both_say_the_same_of_any_connection(
        segments in prop::array::uniform6(number()),
        bytes in prop::array::uniform5(number()),
        throttled in prop::bool::weighted(0.1),
    ) {
        let [cwnd, mss, unacked, sacked, lost, retrans] = segments;
        let [flight, peer, unsent, buffer, slack] = bytes;
        let sender = Sender {
            cwnd, mss, unacked, sacked, lost, retrans, flight, peer, unsent, buffer, throttled,
        };
        prop_assert_eq!(twin(&sender, slack), sender.space(slack));
    }
}
