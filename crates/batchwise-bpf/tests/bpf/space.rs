//! The C formula of a connection's space, compiled on the host, against its reference in batchwise-core.

use batchwise_core::window::{Sender, device_room};
use batchwise_twins::types::window_sender;
use batchwise_twins::{bw_twin_allowed, bw_twin_device_room, bw_twin_space};
use proptest::prelude::*;

fn twin(s: &Sender) -> window_sender {
    window_sender {
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
        device: s.device,
    }
}

/// Numbers as connections have them, and any others.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..50_u32, 1000..2_000_000_u32, any::<u32>()]
}

proptest! {
    #[test]
    fn both_say_the_same_of_any_connection(
        segments in prop::array::uniform6(number()),
        bytes in prop::array::uniform6(number()),
        pacing_rate: u64,
    ) {
        let [cwnd, mss, unacked, sacked, lost, retrans] = segments;
        let [flight, peer, unsent, buffer, device, slack] = bytes;
        let sender = Sender {
            cwnd, mss, unacked, sacked, lost, retrans, flight, peer, unsent, buffer, device,
        };
        let twin = twin(&sender);
        prop_assert_eq!(bw_twin_space(&twin, slack), sender.space(slack));
        prop_assert_eq!(bw_twin_allowed(&twin), sender.allowed());
        let pacing_rate = pacing_rate >> (pacing_rate % 64);
        let room = bw_twin_device_room(pacing_rate, mss, unsent);
        prop_assert_eq!(room, device_room(pacing_rate, mss, unsent));
    }
}
