//! The packets of a flow, in any order: the passive estimator's BPF program says of them what its reference
//! says. The first byte chooses the algorithm and the protocol.

use batchwise_core::passive::stream::{Segment, datagram};
use batchwise_core::passive::{Algorithm, Gaps, Params, Stream};
use batchwise_twins::types::{flow_gaps, flow_stream};
use batchwise_twins::{
    bw_twin_gaps_datagram, bw_twin_gaps_due, bw_twin_gaps_open, bw_twin_gaps_tcp,
    bw_twin_gaps_tcp_ack, gaps as twins,
};

use crate::input::Input;

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let how = input.number::<1>();
    let algorithm = match how & 2 {
        0 => Algorithm::Auto,
        _ => Algorithm::Modes,
    };
    let p = Params {
        algorithm,
        ..Params::default()
    };
    let c = twins::params(&p);
    let (mut ours, mut twin) = (Gaps::new(false), flow_gaps::default());
    let (mut stream, mut twin_stream) = (Stream::default(), flow_stream::default());
    let (mut now, mut seq) = (1, 0u32);
    ours.open(now);
    bw_twin_gaps_open(&mut twin, now);
    while !input.0.is_empty() {
        let kind = input.number::<1>();
        // 2^20 ns is a gap between bursts, 2^30 ns is idle
        now += u64::from(input.number::<2>()) << (kind & 15);
        seq = seq.wrapping_add(input.number::<1>()).rotate_left(kind >> 7);
        let (len, ip_len) = (input.number::<1>() << 4, input.number::<1>() << 3);
        let ack = seq.wrapping_add(input.number::<1>());
        let due = ours.due(&p, now);
        assert_eq!(bw_twin_gaps_due(&twin, &c, now) != 0, due);
        if due {
            ours.open(now);
            bw_twin_gaps_open(&mut twin, now);
        }
        if how & 1 != 0 {
            datagram(&mut ours, &p, now, ip_len);
            bw_twin_gaps_datagram(&mut twin, &c, now, ip_len);
        } else if kind & 16 != 0 {
            stream.ack(&ours, now, ack);
            bw_twin_gaps_tcp_ack(&twin, &mut twin_stream, now, ack);
        } else {
            #[rustfmt::skip]
            stream.segment(&mut ours, &p, now, &Segment { seq, len, ack, ip_len });
            bw_twin_gaps_tcp(&mut twin, &mut twin_stream, &c, now, seq, len, ack, ip_len);
        }
        let theirs = (twin_stream.next_seq, twin_stream.ack, twin_stream.acked_at);
        assert_eq!((stream.next_seq, stream.ack, stream.acked_at), theirs);
        assert_eq!(ours.estimate(&p), twins::estimate(&twin, &c, ours.kind));
    }
}
