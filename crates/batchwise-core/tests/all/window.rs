//! The space of a connection, as properties: more room at the peer or in the network never means less,
//! and what was handed over counts.

use batchwise_core::window::{Sender, device_room, patience};
use proptest::prelude::*;

/// A connection with 4 of 10 segments under way, and much room at the peer.
const SENDER: Sender = Sender {
    cwnd: 10,
    mss: 1000,
    unacked: 4,
    sacked: 0,
    lost: 0,
    retrans: 0,
    flight: 4000,
    peer: 1_000_000,
    unsent: 0,
    buffer: u32::MAX,
    device: u32::MAX,
};

#[test]
fn the_congestion_window_has_room_for_what_is_not_under_way() {
    assert_eq!(SENDER.space(0), 6000);
}

#[test]
fn what_waits_in_the_kernel_already_is_no_space() {
    let unsent = |unsent| Sender { unsent, ..SENDER }.space(0);
    assert_eq!((unsent(2500), unsent(6000), unsent(9000)), (3500, 0, 0));
}

#[test]
fn more_under_way_than_the_window_is_no_space_and_does_not_wrap() {
    let shrunk = Sender { cwnd: 2, ..SENDER };
    assert_eq!(shrunk.space(0), 0);
}

#[test]
fn the_peers_window_is_a_limit_from_what_it_acknowledged_on() {
    let peer = |peer| Sender { peer, ..SENDER }.space(0);
    assert_eq!((peer(4700), peer(4000), peer(0)), (700, 0, 0));
}

#[test]
fn with_nothing_under_way_there_is_a_segment_to_ask_a_closed_window_with() {
    let idle = Sender {
        unacked: 0,
        flight: 0,
        peer: 0,
        ..SENDER
    };
    assert_eq!((idle.space(0), idle.allowed()), (1000, u32::MAX));
    let asking = Sender {
        unsent: 1000,
        ..idle
    };
    assert_eq!((asking.space(0), asking.allowed()), (0, 0));
}

#[test]
fn segments_that_arrived_or_were_lost_are_not_under_way_and_those_sent_again_are() {
    let sender = Sender {
        sacked: 1,
        lost: 2,
        ..SENDER
    };
    assert_eq!(sender.space(0), 9000);
    let again = Sender {
        retrans: 2,
        ..sender
    };
    assert_eq!(again.space(0), 7000);
}

#[test]
fn a_device_that_is_full_takes_nothing_whatever_the_window_allows() {
    let held_up = Sender {
        device: 0,
        ..SENDER
    };
    assert_eq!((held_up.space(0), held_up.space(700)), (0, 700));
    assert_eq!(held_up.allowed(), 6000);
}

#[test]
fn the_send_buffer_is_a_limit() {
    let full = Sender {
        buffer: 100,
        ..SENDER
    };
    assert_eq!(full.space(0), 100);
}

#[test]
fn slack_may_wait_in_the_kernel() {
    let full = Sender { cwnd: 4, ..SENDER };
    assert_eq!((full.space(0), full.space(500)), (0, 500));
}

#[test]
fn a_device_takes_a_millisecond_at_the_paced_rate_or_two_packets() {
    assert_eq!(device_room(102_400_000, 1000, 0), 100_000);
    assert_eq!(device_room(102_400_000, 1000, 60_000), 40_000);
    assert_eq!(device_room(0, 1000, 0), 3000);
    assert_eq!(device_room(0, 1000, 2500), 1000);
    assert_eq!(device_room(0, 1000, 3001), 0);
}

#[test]
fn patience_is_half_a_round_trip_but_two_milliseconds_at_least() {
    assert_eq!(patience(100_000_000), 50_000_000);
    assert_eq!(patience(100_000), 2_000_000);
}

fn senders() -> impl Strategy<Value = Sender> {
    let small = || prop_oneof![0..100_u32, any::<u32>()];
    let segments = (small(), small(), small(), small(), small(), small());
    let bytes = (small(), small(), small(), small(), small());
    (segments, bytes).prop_map(|(s, b)| Sender {
        cwnd: s.0,
        mss: s.1,
        unacked: s.2,
        sacked: s.3,
        lost: s.4,
        retrans: s.5,
        flight: b.0,
        peer: b.1,
        unsent: b.2,
        buffer: b.3,
        device: b.4,
    })
}

proptest! {
    #[test]
    fn more_room_is_never_less_space(s in senders(), slack: u32, more: u32) {
        let grown = |by: fn(&mut Sender) -> &mut u32| {
            let mut grown = s;
            let field = by(&mut grown);
            *field = field.saturating_add(more);
            grown.space(slack)
        };
        let space = s.space(slack);
        prop_assert!(grown(|s| &mut s.cwnd) >= space);
        prop_assert!(grown(|s| &mut s.peer) >= space);
        prop_assert!(grown(|s| &mut s.buffer) >= space);
        prop_assert!(grown(|s| &mut s.device) >= space);
        prop_assert!(grown(|s| &mut s.unsent) <= space);
        prop_assert!(grown(|s| &mut s.unacked) <= space);
        prop_assert!(space <= s.buffer);
    }

    #[test]
    fn what_is_handed_over_is_taken_off(s in senders(), slack: u32, part in 0.0..=1.0) {
        let space = s.space(slack);
        let written = (f64::from(space) * part) as u32;
        prop_assume!(s.unsent.checked_add(written).is_some());
        prop_assume!(s.unacked > 0 || s.unsent > 0);
        let after = Sender {
            unsent: s.unsent + written,
            buffer: s.buffer.saturating_sub(written),
            ..s
        };
        prop_assert!(after.space(slack) <= space - written);
    }
}
