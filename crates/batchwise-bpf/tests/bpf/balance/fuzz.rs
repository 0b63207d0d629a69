//! Frames that no network would send.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use batchwise_bpf::balance::{Backend, Method};

use super::setup::{CLIENT_MAC, Lb, VIP_MAC, XDP_DROP, XDP_PASS, XDP_TX, backend, ip, mac, routed};
use crate::frames::{Segment, TCP, ethernet, kinds, v4, v6};

/// Valid frames with some bytes changed, cut or made longer.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let mut valid = kinds();
    // errors about packets that the server sent: what the client sent, turned around
    let quote = |frame: &[u8], header: usize, address: usize| {
        let mut p = frame[14..14 + header + 8].to_vec();
        let (from, to) = p[header - 2 * address..header].split_at_mut(address);
        from.swap_with_slice(to);
        let (from, to) = p[header..header + 4].split_at_mut(2);
        from.swap_with_slice(to);
        p
    };
    let about = [&[3, 4, 0, 0, 0, 0, 5, 0], &quote(&valid[0], 20, 4)[..]].concat();
    valid.push(ethernet(&[], &v4(1, 0, 0, &about)));
    let about = [&[2, 0, 0, 0, 0, 0, 5, 0], &quote(&valid[4], 40, 16)[..]].concat();
    valid.push(ethernet(&[], &v6(&[], 58, &about)));
    valid.push(ethernet(&[], &v4(1, 0, 0, &[8, 0, 0, 0, 0, 0, 0, 1])));
    valid.push(ethernet(&[], &v6(&[], 58, &[128, 0, 0, 0, 0, 0, 0, 1])));
    let large = Segment {
        payload: 1480,
        ..Segment::default()
    };
    valid.push(ethernet(&[], &v4(TCP, 0, 0, &large.bytes())));
    valid.push(ethernet(&[], &v6(&[], TCP, &large.bytes())));
    let mut last_hop = ethernet(&[], &v6(&[], TCP, &Segment::default().bytes()));
    last_hop[21] = 1;
    valid.push(last_hop);
    let changes = vec((0..120usize, any::<u8>()), 0..6);
    (prop::sample::select(valid), changes, 0..1600usize).prop_map(|(mut frame, changes, len)| {
        for (at, to) in changes {
            if let Some(byte) = frame.get_mut(12 + at) {
                *byte = to;
            }
        }
        if len % 3 == 0 {
            frame.resize(len.max(14), 0);
        }
        frame
    })
}

/// What a frame may be on the way out, by its verdict.
fn allowed(method: Method, frame: &[u8], verdict: u32, out: &[u8]) -> bool {
    if verdict != XDP_TX {
        return (verdict == XDP_PASS || verdict == XDP_DROP) && out == frame;
    }
    if out[..6] == CLIENT_MAC && out[6..12] == VIP_MAC {
        return true; // an answer, which `replies` has the rest of
    }
    let rest = match method {
        Method::L2 => out[12..] == routed(frame),
        Method::Ipip => out[12..14] == [8, 0] && out[34..] == frame[14..],
    };
    out[..6] == mac(7) && rest
}

#[test]
fn whatever_comes_has_one_outcome_and_is_changed_only_as_that_allows() {
    for method in [Method::L2, Method::Ipip] {
        let lb = Lb::to(&Backend {
            address: ip("192.0.2.7"),
            source: ip("192.0.2.1"),
            method,
            ..backend(7)
        });
        let count = std::cell::Cell::new(0);
        let mut runner = TestRunner::new(ProptestConfig {
            cases: 20_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        runner
            .run(&frames(), |frame| {
                let (verdict, out) = lb.run(&frame);
                prop_assert!(allowed(method, &frame, verdict, &out), "{verdict} {out:?}");
                count.set(count.get() + 1);
                prop_assert_eq!(lb.outcomes().packets(), count.get());
                Ok(())
            })
            .unwrap();
        let outcomes = lb.outcomes();
        for (name, packets) in outcomes.by_name() {
            let never = ["no_backend", "unsent"].contains(&name)
                || (name == "expired" && method == Method::Ipip);
            assert!(never || packets > 0, "{name}: {outcomes:?}");
        }
    }
}
