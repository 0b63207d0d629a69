//! What the administrator has told the kernel of neighbours.

use std::process::Command;

use batchwise_testbed::host::{Host, ip};
use batchwise_testbed::segment::{LINK, server};

use crate::balance::balancer::Balancer;
use crate::balance::site::Site;

fn entry(lb: &Host, address: &str) -> String {
    let mut show = Command::new("ip");
    let of = ["-n", lb.namespace().name(), "neigh", "show", address];
    show.args(of).args(["nud", "all"]);
    let output = show.output().expect("ip");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn entries_that_the_administrator_has_set_survive_checks_that_fail() {
    let site = Site::build("nei");
    let lb = &site.segment.balancer;
    for (n, state) in [(0u8, "permanent"), (1, "noarp")] {
        let (address, mac) = (
            server(n).0.to_string(),
            format!("02:00:00:00:79:{:02x}", 21 + n),
        );
        let set = [
            "neigh", "replace", &address, "lladdr", &mac, "dev", LINK, "nud", state,
        ];
        ip(&[&["-n", lb.namespace().name()][..], &set].concat()).expect("an entry");
    }
    let entries = || [0, 1, 2].map(|n| entry(lb, &server(n).0.to_string()));
    let balancer = Balancer::running(lb, "nei", &[1, 2, 3]);
    let before = entries();
    for n in 0..3 {
        site.segment.plug(n, false).expect("unplugged");
    }
    for name in ["s1", "s2", "s3"] {
        balancer.until_health(name, "down");
    }
    // one that nobody has set is asked, and forgotten
    balancer.until("the kernel to have asked", |_| {
        !["REACHABLE", "STALE"]
            .iter()
            .any(|s| entries()[2].contains(s))
    });
    assert_eq!(entries()[..2], before[..2]);
    for (entry, state) in before.iter().zip(["PERMANENT", "NOARP"]) {
        assert!(entry.ends_with(state), "{entry}");
    }
}
