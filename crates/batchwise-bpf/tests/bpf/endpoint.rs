//! The C arithmetic that runs in the kernel, compiled on the host, against its reference in
//! batchwise-core: the same events must leave the same counters, bit for bit.

use batchwise_core::sense::queue::QueueState;
use batchwise_core::sense::wire::{ITEMS, LEN, PeerQueue, QUEUES, Tuple};
use batchwise_reference::{Segment, SockView};
use batchwise_twins::endpoint::{Event, Pair};
use batchwise_twins::types::{sense_peer_queue, sense_queue};
use batchwise_twins::{bw_twin_encode, bw_twin_hear};
use proptest::prelude::*;

/// Any time step (none, too), any view and any event near the given point of sequence space:
/// orderly traffic, wraps, steps back, acknowledgments of what was never sent.
fn step(base: u32) -> impl Strategy<Value = (u64, SockView, Event)> {
    let near = move || (0u32..20_000).prop_map(move |d| base.wrapping_add(d));
    let view = (near(), near(), near(), near(), 0u64..20_000_000).prop_map(
        |(write_seq, rcv_nxt, copied_seq, rcv_wup, last_tx)| SockView {
            write_seq,
            rcv_nxt,
            copied_seq,
            rcv_wup,
            last_tx,
        },
    );
    let send = (near(), any::<bool>(), 0u32..3_000).prop_map(|(end, more, mss)| Event::Send {
        end,
        more,
        mss,
    });
    let segment = (near(), 0u32..20_000, near(), any::<bool>(), 1u16..50).prop_map(
        |(seq, len, ack, push, segs)| {
            let end = seq.wrapping_add(len);
            Event::Segment(Segment {
                seq,
                end,
                ack,
                push,
                segs,
            })
        },
    );
    let resync = near().prop_map(|una| Event::Resync { una });
    let event = prop_oneof![8 => send, 8 => segment, 8 => Just(Event::Read), 1 => resync];
    (0u64..8_000_000, view, event)
}

fn run(start: SockView, una: u32, steps: &[(u64, SockView, Event)]) {
    let mut now = 1_000;
    let mut pair = Pair::new(now, &start, una);
    pair.same_counters();
    for (dt, view, event) in steps {
        now += dt;
        pair.apply(now, view, event);
        // arrivals wait in the log until something needs the counters
        if *dt % 2 == 0 {
            pair.same_counters();
        }
    }
}

proptest! {
    #[test]
    fn c_and_rust_agree_on_any_events(
        (start, una, steps) in prop_oneof![Just(0u32), Just(u32::MAX - 10_000), any::<u32>()]
            .prop_flat_map(|base| {
                let start = SockView { write_seq: base, rcv_nxt: base, copied_seq: base, rcv_wup: base, last_tx: 0 };
                (Just(start), Just(base), proptest::collection::vec(step(base), 0..200))
            })
    ) {
        run(start, una, &steps);
    }

    #[test]
    fn c_and_rust_write_the_same_option(
        item in 0usize..3, queue in 0usize..4, time: u64, integral: u64, total: u64
    ) {
        let q = QueueState { time, integral, total, size: 0 };
        let mut opt = [0; LEN];
        let c_queue = sense_queue { time, integral, total, ..sense_queue::default() };
        bw_twin_encode(&mut opt, item as u32, queue as u32, &c_queue);
        prop_assert_eq!(opt, Tuple::new(ITEMS[item], QUEUES[queue], &q).encode());
    }

    #[test]
    fn c_and_rust_hear_the_same_whatever_the_peer_says(
        options in proptest::collection::vec(
            prop_oneof![
                any::<[u8; LEN]>(),
                (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(head, total, integral)| {
                    let mut o = [253, 16, 0x42, 0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                    o[4..8].copy_from_slice(&head.to_be_bytes());
                    o[8..12].copy_from_slice(&total.to_be_bytes());
                    o[12..].copy_from_slice(&integral.to_be_bytes());
                    o
                }),
            ],
            0..50,
        )
    ) {
        let mut ours = PeerQueue::default();
        let mut twin = sense_peer_queue::default();
        for opt in &options {
            let verdict = bw_twin_hear(&mut twin, opt);
            let expected = match Tuple::decode(opt) {
                None => -2,
                Some(t) if ours.add(&t) => 0,
                Some(_) => -1,
            };
            prop_assert_eq!(verdict, expected);
            prop_assert_eq!((twin.time, twin.integral, twin.total, twin.heard), (ours.time, ours.integral, ours.total, ours.heard));
        }
    }
}

/// Golden vectors: `tests/vectors/*.txt`, a session a file; see the first lines of each.
#[test]
fn c_and_rust_both_give_the_vectors_counters() {
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors")).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        play(&text, &path.display().to_string());
    }
}

fn play(text: &str, name: &str) {
    let mut view = SockView::default();
    let mut pair: Option<Pair> = None;
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split('#').next().unwrap().split_whitespace().collect();
        let arg = |key: &str| {
            words
                .iter()
                .find_map(|w| w.strip_prefix(key)?.strip_prefix('='))
                .map(|v| {
                    v.parse::<u64>()
                        .unwrap_or_else(|e| panic!("{name}:{}: {v}: {e}", number + 1))
                })
        };
        let Some((&verb, _)) = words.split_first() else {
            continue;
        };
        for (key, field) in [
            ("write_seq", &mut view.write_seq),
            ("rcv_nxt", &mut view.rcv_nxt),
            ("copied_seq", &mut view.copied_seq),
            ("rcv_wup", &mut view.rcv_wup),
        ] {
            if let Some(v) = arg(key) {
                *field = v as u32;
            }
        }
        view.last_tx = arg("last_tx").unwrap_or(view.last_tx);
        let now = arg("at").unwrap_or(0);
        if verb == "start" {
            let una = view.write_seq;
            pair = Some(Pair::new(now, &view, una));
            continue;
        }
        let pair = pair.as_mut().expect("a vector begins with start");
        let need = |key| arg(key).unwrap_or_else(|| panic!("{name}:{}: no {key}", number + 1));
        let event = match verb {
            "send" => Event::Send {
                end: need("end") as u32,
                more: false,
                mss: 1448,
            },
            "segment" => Event::Segment(Segment {
                seq: need("seq") as u32,
                end: need("end") as u32,
                ack: need("ack") as u32,
                push: arg("push") == Some(1),
                segs: 1,
            }),
            "read" => Event::Read,
            "resync" => Event::Resync {
                una: need("una") as u32,
            },
            "expect" => {
                let item = ITEMS[need("item") as usize];
                let queue = QUEUES[need("queue") as usize];
                let q = pair.queue(item, queue);
                let got = (u64::from(q.size), q.total, q.integral);
                assert_eq!(
                    got,
                    (need("size"), need("total"), need("integral")),
                    "{name}:{}",
                    number + 1
                );
                continue;
            }
            other => panic!("{name}:{}: {other}?", number + 1),
        };
        pair.apply(now, &view, &event);
        pair.same_counters();
    }
}
