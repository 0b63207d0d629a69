//! What happens on a socket, in any order: the BPF program's queues are those of its reference.

use batchwise_reference::{Segment, SockView};
use batchwise_twins::endpoint::{Event, Pair};

use crate::input::Input;

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let base = input.number::<4>();
    let mut now = 1_000;
    let start = SockView {
        write_seq: base,
        rcv_nxt: base,
        copied_seq: base,
        rcv_wup: base,
        last_tx: 0,
    };
    let mut pair = Pair::new(now, &start, base);
    while !input.0.is_empty() {
        let kind = input.number::<1>();
        // up to 17 s, so that timers are passed
        now += u64::from(input.number::<3>()) << 10;
        let last_tx = now.saturating_sub(u64::from(input.number::<2>()) << 10);
        let mut near = || base.wrapping_add(input.number::<2>());
        let view = SockView {
            write_seq: near(),
            rcv_nxt: near(),
            copied_seq: near(),
            rcv_wup: near(),
            last_tx,
        };
        let (flag, segs) = (kind & 4 != 0, (kind >> 3) as u16 + 1);
        let event = match kind & 3 {
            0 => Event::Send {
                end: near(),
                more: flag,
                mss: u32::from(segs) * 100,
            },
            1 => {
                let (seq, length) = (near(), near().wrapping_sub(base));
                Event::Segment(Segment {
                    seq,
                    end: seq.wrapping_add(length),
                    ack: near(),
                    push: flag,
                    segs,
                })
            }
            2 => Event::Read,
            _ => Event::Resync { una: near() },
        };
        pair.apply(now, &view, &event);
        if flag {
            pair.same_counters();
        }
    }
    pair.same_counters();
}
