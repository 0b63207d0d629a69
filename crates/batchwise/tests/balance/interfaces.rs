//! Interfaces that come and go while the agent runs.

use std::net::SocketAddr;

use batchwise_lab::host::ip;
use batchwise_lab::segment::{LINK, VIP, client};
use serde_json::Value;

use crate::balancer::Balancer;
use crate::site::{PORT, Site};
use crate::stage::connect;

/// A link from the second client to the balancer; bpffs has no names with dots.
const OTHER: &str = "bw-x.7";
const PEER: &str = "bw-xp";

/// Makes it, and the client's way to the service by it.
fn make(site: &Site) {
    let (lb, user) = (&site.segment.balancer, &site.segment.clients[1]);
    let (lb_ns, user_ns) = (lb.namespace().name(), user.namespace().name());
    let peer = ["type", "veth", "peer", "name", PEER, "netns", user_ns];
    ip(&[&["-n", lb_ns, "link", "add", OTHER][..], &peer].concat()).expect("a link");
    for (host, link, address) in [(lb, OTHER, "10.78.0.1/24"), (user, PEER, "10.78.0.2/24")] {
        let ns = host.namespace().name();
        ip(&["-n", ns, "addr", "add", address, "dev", link]).expect("an address");
        ip(&["-n", ns, "link", "set", link, "up"]).expect("it is up");
    }
    let off = ["tx", "tso", "gso"];
    user.namespace()
        .set_offloads(PEER, &off, false)
        .expect("off");
    let (vip, from) = (format!("{VIP}/32"), client(1).0.to_string());
    let by = ["via", "10.78.0.1", "dev", PEER, "src", &from];
    ip(&[&["-n", user_ns, "route", "replace", &vip][..], &by].concat()).expect("a route");
}

fn detached(status: &[Value]) -> usize {
    status[0]["detached"].as_array().map_or(0, Vec::len)
}

#[test]
fn an_interface_that_is_deleted_is_said_and_one_that_is_made_anew_is_forwarded_at() {
    let site = Site::build("ifa");
    make(&site);
    let mut balancer = Balancer::new(&site.segment.balancer, "ifa");
    let two = format!("[\"{LINK}\", \"{OTHER}\"]");
    let text = balancer.text(&[1]).replace(&format!("[\"{LINK}\"]"), &two);
    balancer.write(&text);
    balancer.start(1);
    let user = &site.segment.clients[1];
    let vip = SocketAddr::from((VIP, PORT));
    drop(connect(user, vip));
    let ns = site.segment.balancer.namespace().name();
    // twice: what was attached again is followed, too
    for _ in 0..2 {
        ip(&["-n", ns, "link", "del", OTHER]).expect("it goes");
        balancer.until("it to be missed", |status| detached(status) == 1);
        let status = balancer.status();
        assert_eq!(status[0]["detached"][0], OTHER);
        let said = status.iter().rfind(|l| l["what"] == "interface");
        let detail = said.map_or(Value::Null, |l| l["detail"].clone());
        assert!(
            detail.as_str().is_some_and(|d| d.contains("is gone")),
            "{detail}"
        );
        make(&site);
        balancer.until("it to be taken up again", |status| detached(status) == 0);
        drop(connect(user, vip));
    }
    assert_eq!(site.answers(4), ["s1"; 4]);
}
