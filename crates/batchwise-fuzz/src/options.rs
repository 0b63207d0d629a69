//! The exchange's TCP options, as a peer may send them: the BPF program's parser and its reference hear the
//! same.

use batchwise_core::sense::wire::{LEN, PeerQueue, Tuple};
use batchwise_twins::bw_twin_hear;
use batchwise_twins::types::sense_peer_queue;

pub fn run(data: &[u8]) {
    let (mut ours, mut twin) = (PeerQueue::default(), sense_peer_queue::default());
    for option in data.chunks_exact(LEN) {
        // memory of its own: the sanitizer sees what reads beyond it
        let option: Box<[u8; LEN]> = Box::new(option.try_into().expect("its length"));
        let (before, tuple) = (ours, Tuple::decode(&option));
        let expected = match &tuple {
            None => -2,
            Some(tuple) if ours.add(tuple) => 0,
            Some(_) => -1,
        };
        assert_eq!(bw_twin_hear(&mut twin, &option), expected);
        let theirs = (twin.time, twin.integral, twin.total, twin.heard);
        let sums = (ours.time, ours.integral, ours.total, ours.heard);
        assert_eq!(theirs, sums);
        if let Some(tuple) = tuple {
            assert_eq!(tuple.encode(), *option);
            ours.since(&before, tuple.item);
        }
    }
}
