//! An agent that dies, and the next.

use nix::sys::signal::Signal;

use crate::balancer::Balancer;
use crate::site::Site;

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
    balancer.end(Signal::SIGKILL);
    let during: Vec<String> = kept.iter_mut().map(|c| c.ask()).collect();
    assert_eq!(during, before);
    assert!(site.answers(10).iter().all(|a| a != "s3"));
    balancer.start(3);
    let status = balancer.status();
    assert_eq!(status[0]["taken_over"], true);
    let s3 = status
        .iter()
        .find(|l| l["backend"] == "s3" && l["kind"] == "backend");
    assert_eq!(s3.expect("its line")["state"], "draining");
    let moved = status.iter().filter(|l| l["kind"] == "decision");
    assert_eq!(moved.count(), 0);
    let after: Vec<String> = kept.iter_mut().map(|c| c.ask()).collect();
    assert_eq!(after, before);
}

#[test]
fn a_second_agent_of_the_name_is_refused() {
    let site = Site::build("two");
    let mut balancer = Balancer::new(&site.segment.balancer, "two");
    balancer.write(&balancer.text(&[1]));
    balancer.start(1);
    let second = balancer.second();
    crate::refusal::assert_refused(&second, 1, &["another agent", "stop it first"]);
}
