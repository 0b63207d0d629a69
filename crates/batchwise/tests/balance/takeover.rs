//! An agent that dies, and the next.

use std::ops::Range;

use nix::sys::signal::Signal;

use crate::balancer::{Balancer, backend};
use crate::site::Site;

/// Of clients: each has a slot of its own.
const PORTS: Range<u16> = 20_000..20_032;

#[test]
fn a_killed_agent_leaves_forwarding_and_the_next_takes_over_drains_and_slots() {
    let site = Site::build("kil");
    let mut balancer = Balancer::new(&site.segment.balancer, "kil");
    balancer.write(
        &balancer
            .text(&[1, 2, 3])
            .replace("flows", "policy = \"static\"\nflows"),
    );
    balancer.start(3);
    balancer.must(&["drain", "s3"]);
    let mut kept: Vec<_> = (0..8).map(|_| site.connect()).collect();
    let before: Vec<String> = kept.iter_mut().map(|c| c.ask()).collect();
    let slots = site.answers_from(PORTS);
    balancer.end(Signal::SIGKILL);
    let during: Vec<String> = kept.iter_mut().map(|c| c.ask()).collect();
    assert_eq!(during, before);
    assert_eq!(site.answers_from(PORTS), slots);
    assert!(slots.iter().all(|a| a != "s3"));
    balancer.start(3);
    assert_eq!(balancer.status()[0]["taken_over"], true);
    assert_eq!(balancer.backend("s3")["state"], "draining");
    assert_eq!(site.answers_from(PORTS), slots);
    let after: Vec<String> = kept.iter_mut().map(|c| c.ask()).collect();
    assert_eq!(after, before);
}

#[test]
fn a_second_agent_of_the_name_is_refused() {
    let site = Site::build("two");
    let mut balancer = Balancer::new(&site.segment.balancer, "two");
    balancer.write(&balancer.text(&[1]));
    balancer.start(1);
    let second = balancer.refused();
    crate::refusal::assert_refused(&second, 1, &["another agent", "stop it first"]);
}

#[test]
fn a_takeover_with_a_backend_that_has_no_route_any_more_goes_on_without_it() {
    let site = Site::build("rou");
    let mut balancer = Balancer::new(&site.segment.balancer, "rou");
    balancer.write(&balancer.text(&[1]));
    balancer.start(1);
    balancer.end(Signal::SIGKILL);
    let far = "203.0.113.9".parse().expect("an address");
    balancer.write(&(balancer.text(&[1]) + &backend("far", far)));
    balancer.start(1);
    let line = balancer.backend("far");
    assert_eq!(
        (&line["state"], &line["share"]),
        (&"down".into(), &0.0.into())
    );
    assert_eq!(site.answers(4), ["s1"; 4]);
    // nothing was there before: the file is wrong
    balancer.must(&["remove"]);
    let refused = balancer.refused();
    crate::refusal::assert_refused(&refused, 1, &["no route to 203.0.113.9", "ip route add"]);
}

#[test]
fn a_weight_that_was_configured_while_no_agent_ran_is_no_sign_of_slowness() {
    let site = Site::build("wei");
    let mut balancer = Balancer::new(&site.segment.balancer, "wei");
    let text = format!("policy = \"latency\"\n{}", balancer.text(&[1, 2]));
    balancer.write(&text);
    balancer.start(2);
    balancer.until("weights to be in force", |status| {
        status.iter().any(|line| line["weight"] == 100_000)
    });
    balancer.end(Signal::SIGKILL);
    balancer.write(&(text + "weight = 300\n"));
    balancer.start(2);
    let line = balancer.backend("s2");
    assert_eq!(line["weight"], 300_000, "{line}");
}
