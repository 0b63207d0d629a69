//! Of two backends that a new flow could go to, which it goes to, and when it has no choice.

use std::ops::RangeInclusive;
use std::time::Duration;

use batchwise_bpf::balance::{Backend, Protocol, Service};

use super::setup::{Lb, VIP, backend, key, service, tcp};
use crate::frames::{ACK, FIN, SYN, TCP, ethernet, v4_from};

/// Flows of each backend, of `flows` that are opened; every third is closed at once.
fn opened(lb: &Lb, flows: u16) -> [i32; 2] {
    let mut counts = [0; 2];
    for sport in 1..=flows {
        let index = lb.segment(tcp(sport, SYN, 0));
        assert_eq!(lb.segment(tcp(sport, ACK, 0)), index, "it goes on there");
        if sport % 3 == 0 {
            lb.segment(tcp(sport, ACK | FIN, 0));
        } else {
            counts[usize::from(index - 5)] += 1;
        }
    }
    counts
}

fn with_two_choices(lb: &mut Lb) {
    lb.0.let_choose(Some(Duration::from_secs(600))).unwrap();
    in_halves(lb, true);
}

fn in_halves(lb: &Lb, two_choices: bool) {
    let service = Service {
        two_choices,
        ..service(1)
    };
    let key = key(VIP, 80, Protocol::Tcp);
    lb.0.set_service(key, service).unwrap();
    lb.spread(1, &[5, 6]);
}

#[test]
fn of_two_choices_the_backend_with_fewer_busy_flows_gets_a_new_one() {
    let mut lb = Lb::among(&[5, 6]);
    with_two_choices(&mut lb);
    let [five, six] = opened(&lb, 3000);
    assert!((five - six).abs() < 20, "{five} {six}"); // by chance alone: some 45
}

#[test]
fn two_choices_count_busy_flows_for_a_backends_weight() {
    let mut lb = Lb::among(&[5, 6]);
    let half = Backend {
        weight: 50_000,
        ..backend(6)
    };
    lb.0.set_backend(6, &half).unwrap();
    with_two_choices(&mut lb);
    let [five, six] = opened(&lb, 3000);
    // slots offer both to half of the flows, which can bring 5 up to three quarters
    assert!((five - 2 * six).abs() < 40, "{five} {six}");
    let counted = lb.0.census().unwrap();
    assert_eq!(
        (counted[5].active as i32, counted[6].active as i32),
        (five, six)
    );
    assert_eq!(lb.segment(tcp(9000, SYN, 0)), lb.segment(tcp(9000, SYN, 0)));
}

#[test]
fn a_connection_that_has_its_answer_is_not_busy() {
    let mut lb = Lb::among(&[5, 6]);
    with_two_choices(&mut lb);
    for sport in 1..=100 {
        let index = lb.segment(tcp(sport, SYN, 0));
        lb.segment(tcp(sport, ACK, 0));
        lb.segment(tcp(sport, ACK, 100)); // a request
        if index == 5 {
            lb.segment(tcp(sport, ACK, 0)); // the answer is acknowledged
        }
    }
    let counted = lb.0.census().unwrap();
    assert_eq!((counted[5].busy, counted[6].busy), (0, counted[6].active));
    assert!(counted[6].busy > 20 && counted[5].active > 20);
    let to_5 = (101..=120).filter(|&sport| lb.segment(tcp(sport, SYN, 0)) == 5);
    assert!(to_5.count() >= 12); // a quarter has no choice: both slots are 6's
}

#[test]
fn a_second_choice_is_taken_from_the_start_on_and_only_for_as_long_as_was_said() {
    let to = |lb: &Lb| -> Vec<u16> {
        let ports = 1..=300;
        let all = ports.map(|sport| lb.segment(tcp(sport, SYN, 0)));
        all.collect()
    };
    let by_first = Lb::among(&[5, 6]);
    in_halves(&by_first, false);
    let by_first = to(&by_first);
    let fresh = || {
        let lb = Lb::among(&[5, 6]);
        in_halves(&lb, true);
        lb
    };
    assert_ne!(to(&fresh()), by_first);
    let said = |within| {
        let mut lb = fresh();
        lb.0.let_choose(within).unwrap();
        lb
    };
    assert_eq!(to(&said(None)), by_first);
    assert_eq!(to(&said(Some(Duration::ZERO))), by_first);
    let mut lb = said(Some(Duration::from_millis(70)));
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(to(&lb), by_first);
    assert_eq!(to(&lb), by_first, "SYNs that are sent again");
    lb.0.let_choose(Some(Duration::MAX)).unwrap();
    assert_eq!(to(&lb), by_first, "they have their backends");
    assert_ne!(to(&said(Some(Duration::MAX))), by_first);
}

#[test]
fn a_backend_whose_latency_is_not_believed_attracts_no_flow_and_keeps_its_own_slots() {
    let mut lb = Lb::among(&[5, 6]);
    with_two_choices(&mut lb);
    let doubt = |doubted| {
        let six = Backend {
            doubted,
            ..backend(6)
        };
        lb.0.set_backend(6, &six).unwrap();
        assert_eq!(lb.0.backends().unwrap()[1].1.doubted, doubted);
    };
    let failing_fast = |ports: RangeInclusive<u16>| {
        let to_6 = ports.filter(|&sport| {
            let index = lb.segment(tcp(sport, SYN, 0));
            lb.segment(tcp(sport, ACK, 0));
            lb.segment(tcp(sport, ACK, 100));
            if index == 6 {
                lb.segment(tcp(sport, ACK | FIN, 0)); // it is never busy
            }
            index == 6
        });
        to_6.count()
    };
    doubt(true);
    // a quarter has both slots there; of the half that could choose, who has its first slot there may go to 5
    let doubted = failing_fast(1..=2000);
    assert!(doubted < 1100, "{doubted}");
    doubt(false);
    let believed = failing_fast(2001..=4000);
    assert!(believed > 1400, "{believed}");
}

#[test]
fn a_flood_of_syns_shows_in_the_young_table_which_it_fills_by_more_than_half() {
    let mut lb = Lb::among(&[5, 6]);
    with_two_choices(&mut lb);
    let quarter = lb.0.young_room() / 4;
    for n in 0..4 * lb.0.young_room() {
        let [_, b, c, d] = n.to_be_bytes();
        let segment = tcp(u16::from_be_bytes([c, d]), SYN, 0);
        lb.sent_to(&ethernet(
            &[],
            &v4_from([50, b, c, d], TCP, 0, 0, &segment.bytes()),
        ));
        if n == quarter {
            lb.0.census().unwrap();
            assert!(lb.0.flow_counts().young < lb.0.young_room() / 2);
        }
    }
    lb.0.census().unwrap();
    let young = lb.0.flow_counts().young;
    assert!(young > lb.0.young_room() / 2, "{young}");
}
