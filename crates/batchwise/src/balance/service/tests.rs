//! What a service does between two decisions.

use batchwise_bpf::balance as bpf;
use batchwise_core::balance::report::{self, Health, Policy};
use batchwise_core::balance::{Member, SLOTS, UNIT, Why, maglev};

use super::super::backend::{Backend, unknown};
use super::super::config::Check;
use super::super::health::Checks;
use super::super::nexthop::NextHop;
use super::super::samples::config;
use super::{Service, Table};

const POLICY: Policy = Policy::Latency;

/// Backends 1 to 3, of which nothing is known; `was`: what they were before an agent's restart.
fn service(was: bpf::State) -> Service {
    let mut config = config(&[("10.9.0.1", &["10.0.0.1", "10.0.0.2", "10.0.0.3"])]);
    let spec = config.services.swap_remove(0);
    let backends = (1..).zip(&spec.backends).map(|(index, backend)| {
        let written = bpf::Backend {
            state: was,
            ..unknown(backend, spec.method, 0)
        };
        let way = NextHop {
            ifindex: 2,
            interface: "eth0".to_owned(),
            own_mac: [2; 6],
            mac: Some([2; 6]),
            station: backend.address,
            source: backend.address,
            mtu: 1500,
        };
        let health = Checks::new(Health::Unknown);
        Backend::new(backend.clone(), index, written, health, Ok(way))
    });
    let backends = backends.collect();
    Service::new(spec, 0, vec![0; SLOTS], backends)
}

fn write(service: &mut Service, table: Option<Table>) {
    if let Some(table) = table {
        service.written(table);
    }
}

/// What cannot wait is in force.
fn react(service: &mut Service) {
    let table = service.react(POLICY, 0);
    write(service, table);
}

/// A backend's checks say this, and what follows is in force.
fn check(service: &mut Service, at: usize, well: bool) {
    let check = Check {
        rise: 1,
        fall: 1,
        ..service.spec.check.clone()
    };
    let result = if well {
        Ok(())
    } else {
        Err("refused".to_owned())
    };
    service.backends[at].health.checked(&check, result);
    react(service);
}

/// Weights, in times of [`UNIT`].
fn weights(service: &Service) -> Vec<u32> {
    service.backends.iter().map(|b| b.weight / UNIT).collect()
}

/// Of the slots, in percent.
fn shares(service: &Service) -> [usize; 4] {
    [0, 1, 2, 3].map(|n| 100 * service.ring.iter().filter(|b| **b == n).count() / SLOTS)
}

#[test]
fn a_backend_that_comes_back_has_slots_at_once_and_few() {
    let mut service = service(bpf::State::Serving);
    (0..3).for_each(|at| check(&mut service, at, true));
    assert_eq!(weights(&service), [100; 3]);
    check(&mut service, 0, false);
    assert_eq!((weights(&service)[0], shares(&service)[1]), (0, 0));
    check(&mut service, 0, true);
    assert_eq!(weights(&service), [10, 100, 100]);
    assert_eq!(shares(&service)[1], 4);
    assert_eq!(service.backends[0].why, Why::Returning);
    // the decision goes on from there
    let line = service.decide(POLICY, 0).line;
    assert_eq!(line.backends[0].before, 10 * UNIT);
    assert!(line.backends[0].after < 15 * UNIT);
}

#[test]
fn when_all_were_down_the_first_that_comes_back_gets_everything_at_once_and_the_next_its_part() {
    let mut service = service(bpf::State::Serving);
    (0..3).for_each(|at| check(&mut service, at, true));
    (0..3).for_each(|at| check(&mut service, at, false));
    assert_eq!(shares(&service), [100, 0, 0, 0]);
    check(&mut service, 1, true);
    assert_eq!(shares(&service), [0, 0, 100, 0]);
    check(&mut service, 2, true);
    assert_eq!(weights(&service), [0, 10, 10]);
}

#[test]
fn a_backend_that_is_taken_out_and_back_again_has_the_weight_that_it_had() {
    for policy in [Policy::Latency, Policy::Static] {
        let mut whole = service(bpf::State::Serving);
        (0..3).for_each(|at| check(&mut whole, at, true));
        whole.decide(POLICY, 0);
        let mut without = service(bpf::State::Serving);
        without.backends.truncate(2);
        without.inherit(whole, policy);
        without.decide(POLICY, 0);
        let mut back = service(bpf::State::Serving);
        (back.backends[2].written.state, back.backends[2].weight) =
            (bpf::State::Draining, 40 * UNIT);
        back.backends[2].health = Checks::new(Health::Up);
        back.inherit(without, policy);
        react(&mut back);
        assert_eq!(weights(&back), [100, 100, 40], "{policy:?}");
        assert_eq!(shares(&back)[3], 16, "{policy:?}");
        assert_ne!(back.backends[2].why, Why::Returning);
    }
}

#[test]
fn a_backend_that_was_down_when_it_was_taken_out_comes_back_as_others_do() {
    let mut without = service(bpf::State::Serving);
    without.backends.truncate(2);
    (0..2).for_each(|at| check(&mut without, at, true));
    without.decide(POLICY, 0);
    let mut back = service(bpf::State::Serving);
    back.backends[2].written.state = bpf::State::Draining;
    back.backends[2].health = Checks::new(Health::Down);
    back.inherit(without, POLICY);
    react(&mut back);
    assert_eq!(weights(&back), [100, 100, 0]);
    check(&mut back, 2, true);
    assert_eq!(weights(&back), [100, 100, 10]);
}

#[test]
fn a_backend_that_is_drained_no_more_has_slots_at_once() {
    let mut service = service(bpf::State::Serving);
    (0..3).for_each(|at| check(&mut service, at, true));
    for (drained, weight) in [(true, 0), (false, 10)] {
        service.backends[2].drained = drained;
        react(&mut service);
        assert_eq!(weights(&service), [100, 100, weight]);
    }
}

#[test]
fn at_a_cold_start_all_have_their_configured_weights_whenever_their_first_checks_end() {
    let mut service = service(bpf::State::Down);
    react(&mut service);
    assert_eq!(weights(&service), [100; 3], "nothing is known of any");
    check(&mut service, 0, true);
    assert_eq!(weights(&service), [100, 0, 0], "one is known to be well");
    check(&mut service, 1, true);
    assert_eq!(weights(&service), [100, 100, 0]);
    let table = service.decide(POLICY, 0).table;
    write(&mut service, table);
    check(&mut service, 2, true);
    assert_eq!(weights(&service), [100; 3]);
    let line = service.decide(POLICY, 0).line;
    assert!(
        line.backends.iter().all(|b| b.after == 100 * UNIT),
        "{line:?}"
    );
}

#[test]
fn what_would_move_is_counted_against_the_table_in_force_at_that_time() {
    let spec = config(&[("10.9.0.1", &[])]).services.swap_remove(0);
    let mut service = Service::new(spec, 0, vec![0; SLOTS], Vec::new());
    let members = |weight| {
        let of = |(id, weight)| Member {
            id,
            identity: id.into(),
            weight,
        };
        [(1, 100), (2, weight)].map(of).to_vec()
    };
    let put = |service: &mut Service, members: Vec<Member>| {
        let ring = maglev::fill(&members, SLOTS);
        let delta = maglev::delta(&service.ring, &ring);
        let moved = delta.len() as u64;
        service.written(Table {
            delta,
            ring,
            members,
        });
        moved
    };
    put(&mut service, members(100));
    assert_eq!(service.would_move(members(100)), 0);
    let moved = service.would_move(members(50));
    assert!(moved > 0);
    assert_eq!(service.would_move(members(50)), moved);
    // the ring changes: the same weights move other slots
    put(&mut service, members(25));
    let now = service.would_move(members(50));
    assert!(now > 0 && now != moved, "{now} and {moved}");
    assert_eq!(put(&mut service, members(50)), now);
    assert_eq!(service.would_move(members(50)), 0);
}

#[test]
fn who_is_suspected_to_fail_fast_is_doubted_in_the_maps_until_it_is_not() {
    let mut service = service(bpf::State::Serving);
    let backend = &mut service.backends[0];
    for (why, doubted) in [
        (Why::Steady, false),
        (Why::Suspicious, true),
        (Why::Static, false),
    ] {
        backend.why = why;
        backend.written = backend.wanted(&service.spec, report::State::Serving);
        assert_eq!(backend.written.doubted, doubted, "{why:?}");
    }
}
