//! What is measured of flows says which backend they were sent to.

use std::time::Duration;

use batchwise_bpf::balance::{Measure, Options};

use super::setup::{Lb, options, tcp};
use crate::frames::{self, ACK, AT_ONCE, FIN, SYN, UDP, ethernet, udp, undisturbed, v4};
use crate::kernel::patient;

fn measuring() -> Lb {
    let lb = Lb::with(Options {
        measure: Some(Measure {
            params: patient(),
            flows: 1024,
            forget: Duration::from_secs(60),
            udp_acks: 0,
        }),
        ..options("test")
    });
    lb.have(&[5, 6]);
    lb
}

/// A connection of bursts; as [`frames::bursts`].
fn bursts(lb: &Lb, sport: u16) -> Option<Duration> {
    lb.segment(tcp(sport, SYN, 0));
    frames::bursts(20, sport, |segment| {
        lb.segment(segment);
    })
}

#[test]
fn epochs_say_whose_they_are() {
    let (mut lb, aparts) = undisturbed(|| {
        let lb = measuring();
        let two = [(1, 5), (2, 6)].map(|(sport, index)| {
            lb.all_to(index);
            bursts(&lb, sport)
        });
        lb.all_to(0);
        Some((lb, [two[0]?, two[1]?]))
    });
    for ((sport, index), apart) in [(1, 5), (2, 6)].into_iter().zip(aparts) {
        lb.segment(tcp(sport, ACK | FIN, 0));
        let epochs = lb.0.poll().unwrap();
        let [epoch] = &epochs[..] else {
            panic!("{epochs:?}");
        };
        let tuple = epoch.tuple.unwrap();
        assert_eq!((tuple.backend, tuple.client.port()), (index, sport));
        assert_eq!(tuple.server.to_string(), "10.0.0.1:80");
        let latency = Duration::from_nanos(epoch.estimate.latency.unwrap());
        assert!(latency.abs_diff(apart) < AT_ONCE, "{latency:?} {apart:?}");
    }
    let measured = lb.0.measured().unwrap();
    assert_eq!((measured.measured, measured.acks), (120, 4));
}

#[test]
fn the_sweep_and_the_end_close_epochs() {
    let mut lb = measuring();
    lb.all_to(5);
    bursts(&lb, 1);
    assert!(lb.0.sweep().unwrap().is_empty());
    let epochs = lb.0.close_all().unwrap();
    assert_eq!(epochs.len(), 1);
    assert_eq!(epochs[0].tuple.unwrap().backend, 5);
}

#[test]
fn without_measuring_nothing_is_measured() {
    let mut plain = Lb::among(&[5]);
    plain.all_to(5);
    bursts(&plain, 1);
    assert!(plain.0.close_all().unwrap().is_empty());
    assert_eq!(plain.0.measured().unwrap().packets, 0);
}

#[test]
fn who_waits_for_an_answer_is_known_also_without_a_second_choice() {
    let mut lb = measuring();
    lb.all_to(5);
    for sport in 1..=10 {
        lb.segment(tcp(sport, SYN, 0));
        lb.segment(tcp(sport, ACK, 0));
        lb.segment(tcp(sport, ACK, 100)); // a request
    }
    for sport in 1..=7 {
        lb.segment(tcp(sport, ACK, 0)); // its answer is acknowledged
    }
    assert_eq!(lb.0.census().unwrap()[5].busy, 3);
}

#[test]
fn a_udp_flow_is_busy_until_its_second_datagram() {
    let mut lb = measuring();
    lb.all_to(5);
    let datagram = ethernet(&[], &v4(UDP, 0, 0, &udp(30)));
    lb.sent_to(&datagram);
    assert_eq!(lb.0.census().unwrap()[5].busy, 1);
    for _ in 0..3 {
        lb.sent_to(&datagram);
    }
    let counted = lb.0.census().unwrap()[5];
    assert_eq!((counted.active, counted.busy), (1, 0));
}
