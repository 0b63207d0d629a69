//! Frames that no network would send.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use batchwise_bpf::balance::{Backend, Method};

use crate::frames::kinds;
use crate::setup::{CLIENT_MAC, Lb, VIP_MAC, XDP_DROP, XDP_PASS, XDP_TX, backend, ip, mac};

/// Valid frames with some bytes changed, cut or made longer.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let mut valid = kinds();
    let about = [&[3, 4, 0, 0, 0, 0, 5, 0][..], &valid[0][14..60]].concat();
    valid.push(crate::frames::ethernet(
        &[],
        &crate::frames::v4(1, 0, 0, &about),
    ));
    let about = [&[2, 0, 0, 0, 0, 0, 5, 0][..], &valid[4][14..90]].concat();
    valid.push(crate::frames::ethernet(
        &[],
        &crate::frames::v6(&[], 58, &about),
    ));
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
    let outer = if method == Method::L2 { 0 } else { 20 };
    let ethernet = if outer == 0 { &frame[12..14] } else { &[8, 0] };
    out[..6] == mac(7) && out[12..14] == *ethernet && out[14 + outer..] == frame[14..]
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
            let never = ["no_backend", "unsent"];
            assert!(never.contains(&name) || packets > 0, "{name}: {outcomes:?}");
        }
    }
}
