//! Which backend a flow keeps, and when it gets another.

use std::collections::HashSet;

use batchwise_bpf::balance::{Counted, Options, Protocol, SLOTS, Service, State};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::setup::{Lb, Pinned, VIP, XDP_DROP, backend, key, options, service, tcp};
use crate::frames::{ACK, FIN, RST, SYN, Segment, TCP, UDP, ethernet, udp, v4, v4_from};

/// A datagram of the one UDP flow.
fn datagram() -> Vec<u8> {
    ethernet(&[], &v4(UDP, 0, 0, &udp(30)))
}

/// A connection that has settled on backend 5 of 5 and 6, the ring's slots being 6's now.
fn settled_on_5() -> Lb {
    let lb = Lb::among(&[5, 6]);
    lb.all_to(5);
    lb.segment(tcp(1, SYN, 0));
    lb.segment(tcp(1, ACK, 0));
    lb.all_to(6);
    lb
}

#[test]
fn a_connection_keeps_its_backend_from_its_first_packet_on_whatever_the_ring_says() {
    let lb = Lb::among(&[5, 6]);
    lb.all_to(5);
    assert_eq!(lb.segment(tcp(1, SYN, 0)), 5);
    lb.all_to(6);
    assert_eq!(lb.segment(tcp(1, SYN, 0)), 5, "the SYN is sent again");
    for payload in [0, 100, 0, 1000] {
        assert_eq!(lb.segment(tcp(1, ACK, payload)), 5);
    }
    assert_eq!(lb.segment(tcp(1, ACK | FIN, 0)), 5);
    assert_eq!(
        lb.segment(tcp(1, ACK, 0)),
        5,
        "it acknowledges what still comes"
    );
    assert_eq!(lb.segment(tcp(2, SYN, 0)), 6);
    assert_eq!(lb.outcomes().unknown_flow, 0);
    let tallies = lb.0.backend_tallies().unwrap();
    let [(5, five), (6, six)] = tallies[..] else {
        panic!("{tallies:?}");
    };
    assert_eq!((five.packets, five.opened, five.closed), (8, 1, 1));
    assert_eq!((six.packets, six.opened, six.closed), (1, 0, 0));
}

#[test]
fn strangers_cannot_move_a_living_connection_by_syn_or_rst() {
    let lb = settled_on_5();
    assert_eq!(lb.segment(tcp(1, SYN, 0)), 5);
    assert_eq!(lb.segment(tcp(1, ACK, 100)), 5);
    assert_eq!(lb.segment(tcp(1, RST, 0)), 5);
    assert_eq!(lb.segment(tcp(1, ACK, 100)), 5, "it goes on");
    assert_eq!(lb.segment(tcp(1, SYN, 0)), 5, "and lives");
    let (_, tally) = lb.0.backend_tallies().unwrap()[0];
    assert_eq!(tally.opened - tally.closed, 1);
}

#[test]
fn an_end_and_a_syn_by_strangers_cannot_move_a_connection_that_goes_on() {
    for end in [ACK | FIN, RST] {
        let lb = settled_on_5();
        for _ in 0..3 {
            assert_eq!(lb.segment(tcp(1, end, 0)), 5);
            assert_eq!(lb.segment(tcp(1, SYN, 0)), 5);
            assert_eq!(lb.segment(tcp(1, ACK, 0)), 5, "it acknowledges");
            assert_eq!(lb.segment(tcp(1, ACK, 100)), 5, "it goes on");
        }
        let (_, tally) = lb.0.backend_tallies().unwrap()[0];
        assert_eq!(tally.opened - tally.closed, 1);
    }
}

#[test]
fn packets_amid_an_unknown_connection_go_by_the_ring_and_stay_there() {
    let lb = Lb::among(&[5, 6]);
    lb.all_to(5);
    assert_eq!(lb.segment(tcp(1, ACK, 100)), 5);
    lb.all_to(6);
    assert_eq!(lb.segment(tcp(1, ACK, 100)), 5);
    assert_eq!(lb.segment(tcp(1, ACK, 100)), 5);
    assert_eq!(lb.outcomes().unknown_flow, 1);
    assert_eq!(lb.segment(tcp(2, RST, 0)), 6);
    lb.all_to(5);
    assert_eq!(lb.segment(tcp(2, RST, 0)), 5, "of a RST nothing is kept");
}

#[test]
fn what_a_vacated_backend_had_goes_elsewhere_and_its_successor_does_not_inherit_it() {
    for reused in [false, true] {
        let lb = settled_on_5();
        lb.sent_to(&datagram());
        lb.0.vacate(5).unwrap();
        if reused {
            lb.have(&[5]);
        }
        assert_eq!(lb.segment(tcp(1, ACK, 100)), 6, "reused: {reused}");
        assert_eq!(lb.segment(tcp(1, ACK, 100)), 6);
        assert_eq!(lb.outcomes().unknown_flow, 1);
        assert_eq!(lb.0.backends().unwrap().len(), if reused { 2 } else { 1 });
    }
}

#[test]
fn a_draining_backend_keeps_its_flows_and_the_ring_decides_on_new_ones() {
    let lb = settled_on_5();
    lb.all_to(5);
    lb.segment(tcp(2, SYN, 0));
    lb.sent_to(&datagram());
    lb.all_to(6);
    lb.set_state(5, State::Draining);
    assert_eq!(lb.segment(tcp(1, ACK, 100)), 5);
    assert_eq!(lb.segment(tcp(2, SYN, 0)), 5, "a SYN sent again");
    assert_eq!(lb.segment(tcp(2, ACK, 0)), 5);
    assert_eq!(lb.sent_to(&datagram()), 5);
    assert_eq!(lb.segment(tcp(3, SYN, 0)), 6);
}

#[test]
fn when_a_backend_is_down_tcp_stays_udp_leaves_and_syns_go_by_the_ring() {
    let lb = settled_on_5();
    lb.all_to(5);
    lb.segment(tcp(2, SYN, 0));
    for _ in 0..3 {
        assert_eq!(lb.sent_to(&datagram()), 5);
    }
    lb.all_to(6);
    lb.set_state(5, State::Down);
    assert_eq!(lb.segment(tcp(1, ACK, 100)), 5);
    assert_eq!(lb.segment(tcp(2, SYN, 0)), 6);
    assert_eq!(lb.segment(tcp(2, ACK, 0)), 6);
    assert_eq!(lb.sent_to(&datagram()), 6);
    lb.set_state(5, State::Serving);
    lb.all_to(5);
    assert_eq!(lb.sent_to(&datagram()), 6, "it does not come back");
    assert_eq!(lb.segment(tcp(1, ACK, 100)), 5);
}

#[test]
fn a_syn_flood_pushes_out_no_connection_that_has_settled() {
    let lb = settled_on_5();
    let flood = |flags, a: u8| {
        for n in 0..20_000u32 {
            let [_, b, c, d] = n.to_be_bytes();
            let segment = tcp(u16::from_be_bytes([c, d]), flags, 0);
            let frame = ethernet(&[], &v4_from([a, b, c, d], TCP, 0, 0, &segment.bytes()));
            assert_eq!(lb.sent_to(&frame), 6);
        }
    };
    flood(SYN, 50);
    assert_eq!(lb.segment(tcp(1, ACK, 100)), 5);
    flood(ACK, 51);
    assert_eq!(lb.segment(tcp(1, ACK, 100)), 5);
    assert_eq!(lb.outcomes().insert_failed, 0);
}

#[test]
fn slots_decide_on_connections_evenly_and_always_alike() {
    let lb = Lb::among(&[1, 2, 3, 4]);
    lb.spread(1, &[1, 2, 3, 4]);
    assert_eq!(lb.0.ring(1).unwrap()[..5], [1, 2, 3, 4, 1]);
    let mut counts = [0; 5];
    let mut first = Vec::new();
    for sport in 1..=4000 {
        let to = lb.segment(tcp(sport, SYN, 0));
        counts[usize::from(to)] += 1;
        first.push(to);
    }
    for count in &counts[1..] {
        assert!((850..1150).contains(count), "{counts:?}");
    }
    let again = Lb::among(&[1, 2, 3, 4]);
    again.spread(1, &[1, 2, 3, 4]);
    for (sport, to) in (1..).zip(first) {
        assert_eq!(again.segment(tcp(sport, SYN, 0)), to);
    }
    lb.0.write_ring(1, &[(0, 2), (65_536, 4)]).unwrap();
    let slots = lb.0.ring(1).unwrap();
    assert_eq!((slots[0], slots[1], slots[65_536]), (2, 2, 4));
}

#[test]
fn by_client_all_connections_of_an_address_go_to_one_backend() {
    let lb = Lb::among(&[1, 2, 3, 4]);
    let service = Service {
        by_client: true,
        ..service(1)
    };
    let key = key(VIP, 80, Protocol::Tcp);
    lb.0.set_service(key, service).unwrap();
    lb.spread(1, &[1, 2, 3, 4]);
    let mut all = HashSet::new();
    for client in 0..50 {
        let of_one: HashSet<_> = (1..20)
            .map(|sport| {
                let segment = tcp(sport, SYN, 0).bytes();
                lb.sent_to(&ethernet(
                    &[],
                    &v4_from([10, 3, 0, client], TCP, 0, 0, &segment),
                ))
            })
            .collect();
        assert_eq!(of_one.len(), 1);
        all.extend(of_one);
    }
    assert_eq!(all.len(), 4);
}

/// A load balancer whose tables can be reached by name, and the name.
fn pinned(name: &str) -> (Pinned, Lb) {
    let name = Pinned::new(name);
    let lb = Lb::with(Options {
        pin: true,
        ..options(&name.0)
    });
    lb.have(&[5, 6]);
    lb.all_to(5);
    (name, lb)
}

impl Pinned {
    /// Makes all flows of a table older.
    fn age(&self, table: &str, seconds: u64) {
        self.change_seen(table, |seen| {
            let units = (seconds * 1_000_000_000) >> 26;
            seen.wrapping_sub(units as u32)
        });
    }

    /// Changes when all flows of a table were seen.
    fn change_seen(&self, table: &str, to: impl Fn(u32) -> u32) {
        let map = MapHandle::from_pinned_path(self.folder().join(table)).unwrap();
        let keys: Vec<_> = map.keys().collect();
        for key in keys {
            let mut entry = map.lookup(&key, MapFlags::ANY).unwrap().unwrap();
            let seen = u32::from_ne_bytes(entry[4..].try_into().unwrap());
            entry[4..].copy_from_slice(&to(seen).to_ne_bytes());
            map.update(&key, &entry, MapFlags::EXIST).unwrap();
        }
    }
}

#[test]
fn a_new_connection_of_the_same_ports_goes_by_the_ring_once_the_old_one_ended() {
    for (name, end) in [("b-test-fin", ACK | FIN), ("b-test-rst", RST)] {
        let (name, lb) = pinned(name);
        lb.segment(tcp(1, SYN, 0));
        lb.segment(tcp(1, ACK, 0));
        lb.all_to(6);
        assert_eq!(lb.segment(tcp(1, end, 0)), 5);
        name.age("flows_settled", 2);
        assert_eq!(lb.segment(tcp(1, SYN, 0)), 6);
        lb.all_to(5);
        assert_eq!(lb.segment(tcp(1, SYN, 0)), 6, "the SYN is sent again");
        assert_eq!(lb.segment(tcp(1, ACK, 10)), 6);
        assert_eq!(lb.segment(tcp(1, ACK, 10)), 6);
        let tallies = lb.0.backend_tallies().unwrap();
        assert_eq!((tallies[0].1.opened, tallies[0].1.closed), (1, 1));
        assert_eq!((tallies[1].1.opened, tallies[1].1.closed), (1, 0));
    }
}

#[test]
fn idle_udp_flows_go_by_the_ring_again() {
    let (name, lb) = pinned("b-test-udp");
    for _ in 0..3 {
        assert_eq!(lb.sent_to(&datagram()), 5);
    }
    lb.all_to(6);
    name.age("flows_settled", 25);
    assert_eq!(lb.sent_to(&datagram()), 5);
    name.age("flows_settled", 40);
    assert_eq!(lb.sent_to(&datagram()), 6);
    lb.all_to(5);
    assert_eq!(lb.sent_to(&datagram()), 6);
}

#[test]
fn a_flow_that_another_cpu_saw_a_moment_later_is_not_idle() {
    let (name, lb) = pinned("b-test-later");
    lb.segment(tcp(1, SYN, 0));
    lb.segment(tcp(1, ACK, 0));
    lb.segment(tcp(2, SYN, 0));
    for _ in 0..3 {
        assert_eq!(lb.sent_to(&datagram()), 5);
    }
    lb.all_to(6);
    let later = |table| name.change_seen(table, |seen| seen.wrapping_add(1000));
    later("flows_settled");
    later("flows_young");
    assert_eq!(lb.sent_to(&datagram()), 5);
    assert_eq!(lb.segment(tcp(1, SYN, 0)), 5);
    assert_eq!(lb.segment(tcp(2, SYN, 0)), 5);
}

#[test]
fn an_idle_tcp_connection_is_kept_and_one_that_never_began_is_not() {
    let (name, lb) = pinned("b-test-tcp");
    lb.segment(tcp(1, SYN, 0));
    lb.segment(tcp(1, ACK, 0));
    lb.segment(tcp(2, SYN, 0));
    lb.all_to(6);
    name.age("flows_settled", 7000);
    name.age("flows_young", 140);
    assert_eq!(lb.segment(tcp(1, ACK, 1)), 5);
    assert_eq!(lb.segment(tcp(2, SYN, 0)), 6);
}

#[test]
fn the_census_counts_active_flows_and_takes_out_those_that_are_over() {
    let (name, mut lb) = pinned("b-test-census");
    for sport in 1..=10 {
        lb.segment(tcp(sport, SYN, 0));
        lb.segment(tcp(sport, ACK, 0));
    }
    lb.segment(tcp(11, SYN, 0));
    lb.segment(tcp(1, ACK | FIN, 0));
    lb.all_to(6);
    for sport in 21..=23 {
        lb.segment(tcp(sport, SYN, 0));
        lb.segment(tcp(sport, ACK, 0));
    }
    let counted = lb.0.census().unwrap();
    let of = |index: usize, counted: &[Counted]| (counted[index].active, counted[index].kept);
    let all: u64 = counted.iter().map(|c| c.kept).sum();
    // the closing one and the one that begins are kept, too
    assert_eq!(
        (of(5, &counted), of(6, &counted), all),
        ((9, 11), (3, 3), 14)
    );
    let kept = lb.0.flow_counts();
    assert_eq!((kept.settled, kept.young, kept.removed), (13, 1, 0));

    lb.0.vacate(6).unwrap();
    name.age("flows_settled", 70);
    name.age("flows_young", 140);
    for sport in 2..=4 {
        lb.segment(tcp(sport, ACK, 0));
    }
    let counted = lb.0.census().unwrap();
    assert_eq!(
        (of(5, &counted), of(6, &counted)),
        ((3, 9), (0, 0)),
        "idle ones are kept"
    );
    let kept = lb.0.flow_counts();
    // the vacated one's, and the SYN that nothing followed; the one that closed may be half-closed
    assert_eq!((kept.settled, kept.young, kept.removed), (10, 0, 4));
    name.age("flows_settled", 8000);
    lb.0.census().unwrap();
    assert_eq!(lb.0.flow_counts().settled, 0);
}

#[test]
fn a_half_closed_connection_that_waits_for_its_answer_keeps_its_backend_while_there_is_room() {
    let (name, mut lb) = pinned("b-test-half");
    let open = |sport| {
        lb.segment(tcp(sport, SYN, 0));
        lb.segment(tcp(sport, ACK, 100));
    };
    open(1);
    open(2);
    lb.segment(tcp(1, ACK | FIN, 0));
    lb.all_to(6);
    name.age("flows_settled", 800);
    let counted = lb.0.census().unwrap();
    assert_eq!(counted[5].kept, 1, "no removal waits for it");
    assert_eq!(lb.segment(tcp(1, ACK, 0)), 5);

    name.age("flows_settled", 70);
    lb.0.census().unwrap();
    assert_eq!(lb.0.flow_counts().settled, 2);
    for sport in 3..5000 {
        lb.segment(tcp(sport, SYN, 0));
        lb.segment(tcp(sport, ACK, 100));
    }
    lb.0.census().unwrap();
    assert_eq!(lb.0.flow_counts().settled, 4999);
    lb.0.census().unwrap();
    assert_eq!(
        lb.0.flow_counts().settled,
        4998,
        "the table is more than half full"
    );
    assert_eq!(lb.segment(tcp(1, ACK, 0)), 6);
}

#[test]
fn an_index_that_cannot_be_is_refused() {
    let lb = Lb::new();
    for index in [0, 4096] {
        let error = lb.0.set_backend(index, &backend(1)).unwrap_err();
        assert!(error.to_string().contains("4095 backends"), "{error}");
    }
    assert!(lb.0.write_ring(512, &[(0, 1)]).is_err());
    assert!(lb.0.write_ring(1, &[(SLOTS as u32, 1)]).is_err());
    let frame = crate::frames::tcp_frame(Segment::default());
    assert_eq!(lb.run(&frame).0, XDP_DROP);
}
