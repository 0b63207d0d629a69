//! Interfaces that come and go while the agent runs.

use std::net::SocketAddr;

use batchwise_testbed::host::ip;
use batchwise_testbed::segment::{LINK, VIP, client, server};
use batchwise_testbed::stage::connect;
use batchwise_testbed::stage::refusal::assert_refused;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::balance::balancer::{Balancer, backend};
use crate::balance::site::{PORT, Site};

/// A link from the second client to the balancer; bpffs has no names with dots.
const OTHER: &str = "bw-x.7";
const PEER: &str = "bw-xp";

/// Makes it, and the client's way to the service by it.
fn make(site: &Site) {
    site.link(OTHER, PEER);
    let user_ns = site.segment.clients[1].namespace().name();
    let (vip, from) = (format!("{VIP}/32"), client(1).0.to_string());
    let by = ["via", "10.78.0.1", "dev", PEER, "src", &from];
    ip(&[&["-n", user_ns, "route", "replace", &vip][..], &by].concat()).expect("a route");
}

fn detached(status: &[Value]) -> usize {
    status[0]["detached"].as_array().map_or(0, Vec::len)
}

/// A configuration with it.
fn at_both(balancer: &Balancer<'_>) -> String {
    let two = format!("[\"{LINK}\", \"{OTHER}\"]");
    balancer.text(&[1]).replace(&format!("[\"{LINK}\"]"), &two)
}

#[test]
fn an_interface_that_is_deleted_is_said_and_one_that_is_made_anew_is_forwarded_at() {
    let site = Site::build("ifa");
    make(&site);
    let mut balancer = Balancer::new(&site.segment.balancer, "ifa");
    balancer.write(&at_both(&balancer));
    balancer.start(1);
    let user = &site.segment.clients[1];
    let vip = SocketAddr::from((VIP, PORT));
    drop(connect(user, vip));
    let ns = site.segment.balancer.namespace().name();
    // twice: what was attached again is followed, too
    for _ in 0..2 {
        ip(&["-n", ns, "link", "del", OTHER]).expect("it goes");
        balancer.until("it to be missed", |status| detached(status) == 1);
        assert_eq!(balancer.status()[0]["detached"][0], OTHER);
        let said = balancer.events("interface").pop().expect("an event");
        assert!(said["detail"].to_string().contains("is gone"), "{said}");
        make(&site);
        balancer.until("it to be taken up again", |status| detached(status) == 0);
        drop(connect(user, vip));
    }
    assert_eq!(site.answers(4), ["s1"; 4]);
}

#[test]
fn an_interface_that_is_gone_keeps_neither_a_reload_nor_the_next_agent_from_the_others() {
    let site = Site::build("ifg");
    make(&site);
    let mut balancer = Balancer::new(&site.segment.balancer, "ifg");
    balancer.write(&at_both(&balancer));
    balancer.start(1);
    let ns = site.segment.balancer.namespace().name();
    ip(&["-n", ns, "link", "del", OTHER]).expect("it goes");
    balancer.until("it to be missed", |status| detached(status) == 1);
    // another policy is another program
    let text = at_both(&balancer) + &backend("s2", server(1).0.into());
    balancer.reload(&format!("policy = \"static\"\n{text}"));
    assert_eq!(detached(&balancer.status()), 1);
    balancer.end(Signal::SIGKILL);
    balancer.start(2);
    balancer.until("it to be missed again", |status| {
        let mut said = status.iter().filter(|l| l["what"] == "interface");
        let gone = format!("{OTHER} is gone");
        said.any(|l| l["detail"].as_str().is_some_and(|d| d.starts_with(&gone)))
    });
    assert_eq!(detached(&balancer.status()), 1);
    balancer.must(&["drain", "s2"]);
    assert_eq!(site.answers(4), ["s1"; 4]);
    make(&site);
    balancer.until("it to be taken up again", |status| detached(status) == 0);
    drop(connect(
        &site.segment.clients[1],
        SocketAddr::from((VIP, PORT)),
    ));
    // where nothing forwards yet, the file is wrong
    balancer.end(Signal::SIGTERM);
    balancer.must(&["remove"]);
    ip(&["-n", ns, "link", "del", OTHER]).expect("it goes");
    let remedy = [&*format!("no interface \"{OTHER}\""), "give one of"];
    assert_refused(&balancer.refused(), 1, &remedy);
}

#[test]
fn a_changed_mac_address_is_followed_long_before_the_interval_ends() {
    let site = Site::build("ifm");
    make(&site);
    let mut balancer = Balancer::new(&site.segment.balancer, "ifm");
    let text = at_both(&balancer).replacen("\"100ms\"", "\"60s\"", 1);
    balancer.write(&text);
    balancer.start(1);
    let (lb, user) = (&site.segment.balancer, &site.segment.clients[1]);
    let (lb, user_ns) = (lb.namespace().name(), user.namespace().name());
    let new = ["address", "02:00:00:00:77:07"];
    ip(&[&["-n", lb, "link", "set", OTHER][..], &new].concat()).expect("it is set");
    ip(&["-n", user_ns, "neigh", "flush", "dev", PEER]).expect("it asks anew");
    drop(connect(user, SocketAddr::from((VIP, PORT))));
}
