//! An agent that dies, and the next.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use batchwise_testbed::host::ip;
use batchwise_testbed::segment::LINK;
use batchwise_testbed::stage::refusal::assert_refused;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::balance::balancer::{Balancer, backend};
use crate::balance::site::Site;

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
fn a_second_agent_is_refused_and_only_the_owner_can_lock_one_out_or_talk_to_it() {
    let site = Site::build("lck");
    let mut balancer = Balancer::new(&site.segment.balancer, "lck");
    let folder = balancer.file();
    let folder = folder.parent().expect("a folder");
    // as an agent of before left it
    let lock = folder.join("balance-c-lck.lock");
    fs::write(&lock, "").expect("a file");
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o644)).expect("ours");
    balancer.write(&balancer.text(&[1]));
    balancer.start(1);
    for file in [lock, folder.join("balance-c-lck.sock")] {
        let mode = fs::metadata(&file).expect("it is there").mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    let second = balancer.refused();
    assert_refused(&second, 1, &["another agent", "stop it first"]);
}

#[test]
fn an_agent_that_died_comes_back_although_its_file_was_broken_meanwhile() {
    let site = Site::build("kpt");
    let mut balancer = Balancer::new(&site.segment.balancer, "kpt");
    let state = tempfile::TempDir::new().expect("a folder");
    let state = ["--state", state.path().to_str().expect("a path")];
    let right = balancer.text(&[1, 2]);
    balancer.write(&right);
    balancer.start_with(&state, 2);
    balancer.end(Signal::SIGKILL);
    balancer.write("interfaces = oops");
    balancer.start_with(&state, 2);
    let error = balancer.status()[0]["config_error"].clone();
    let error = error.as_str().unwrap_or_default();
    assert!(
        error.contains("lb.toml:1") && error.contains("in force last"),
        "{error}"
    );
    assert_eq!(site.answers(8).len(), 8);
    // a reload that is right is kept in its turn
    balancer.reload(&balancer.text(&[1]));
    assert!(balancer.status()[0]["config_error"].is_null());
    balancer.end(Signal::SIGKILL);
    balancer.write("");
    balancer.start_with(&state, 1);
    assert_eq!(site.answers(4), ["s1"; 4]);
    balancer.end(Signal::SIGTERM);
    let refused = balancer.refused();
    assert!(
        !refused.status.success(),
        "without a folder nothing is kept"
    );
    balancer.write(&right); // for what ends the test
}

#[test]
fn a_takeover_with_a_backend_that_has_no_route_any_more_goes_on_without_it() {
    let site = Site::build("rou");
    let mut balancer = Balancer::running(&site.segment.balancer, "rou", &[1]);
    balancer.end(Signal::SIGKILL);
    let far = "203.0.113.9".parse().expect("an address");
    balancer.write(&(balancer.text(&[1]) + &backend("far", far)));
    balancer.start(1);
    balancer.expect("far", json!({"state": "down", "share": 0.0}));
    assert_eq!(site.answers(4), ["s1"; 4]);
    // nothing was there before: the file is wrong
    balancer.must(&["remove"]);
    let refused = balancer.refused();
    assert_refused(&refused, 1, &["no route to 203.0.113.9", "ip route add"]);
}

#[test]
fn a_takeover_where_health_checks_have_no_way_any_more_goes_on_with_who_served() {
    let site = Site::build("dea");
    let host = &site.segment.balancer;
    let mut balancer = Balancer::new(host, "dea");
    let text = balancer.text(&[1]);
    let (head, service) = text.split_once("[[service]]").expect("a service");
    let of6 = balancer.text6(&[2]).replace("\"web\"", "\"web6\"");
    let (_, service6) = of6.split_once("[[service]]").expect("a service");
    balancer.write(&format!("{head}[[service]]{service}[[service]]{service6}"));
    balancer.start(2);
    balancer.end(Signal::SIGKILL);
    let namespace = host.namespace().name();
    ip(&["-n", namespace, "route", "del", "10.79.9.0/24"]).expect("a route");
    // the other service is checked
    balancer.start(1);
    let trusted = json!({"health": "unknown", "state": "serving", "share": 1.0});
    balancer.expect("s1", trusted);
    balancer.expect("s2", json!({"health": "up"}));
    let mut said = balancer.events("probe").into_iter();
    let said = said.find(|l| l["service"] == "web").expect("an event");
    let detail = said["detail"].to_string();
    assert!(
        detail.contains("no route to 10.79.9.1") && detail.contains("until this is mended"),
        "{detail}"
    );
    assert_eq!(site.answers(4), ["s1"; 4]);
    // what worked before keeps no change of the file away
    balancer.must(&["reload"]);
    assert_eq!(balancer.backend("s1")["state"], "serving");
    let by = ["via", "10.79.0.1", "dev", LINK];
    ip(&[&["-n", namespace, "route", "add", "10.79.9.0/24"], &by[..]].concat()).expect("a route");
    balancer.until_up(2);
}

#[test]
fn a_weight_that_was_configured_while_no_agent_ran_is_no_sign_of_slowness() {
    let site = Site::build("wei");
    let mut balancer = Balancer::new(&site.segment.balancer, "wei");
    let text = format!("policy = \"latency\"\n{}", balancer.text(&[1, 2]));
    balancer.write(&text);
    balancer.start(2);
    balancer.until_backend("s2", "in force", |s2| s2["weight"] == 100_000);
    balancer.end(Signal::SIGKILL);
    balancer.write(&(text + "weight = 300\n"));
    balancer.start(2);
    balancer.expect("s2", json!({"weight": 300_000}));
}
