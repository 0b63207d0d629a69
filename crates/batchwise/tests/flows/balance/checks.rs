//! Health checks: the routes that they leave by, and what this machine needs for them.

use std::fs;
use std::net::{IpAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use batchwise_testbed::host::ip;
use batchwise_testbed::segment::{LINK, VIP, balancer as own, server};
use batchwise_testbed::stage::eventually;
use serde_json::Value;

use crate::balance::balancer::{Balancer, backend};
use crate::balance::site::{Site, listen};

/// Of what is checked: only the second server listens.
const CHECKED: u16 = 8_090;
/// A link of the balancer to the second client, which routes back into the LAN.
const OTHER: &str = "bw-r";
const VIPS: &str = "10.79.9.0/24";

/// A site whose second server counts the checks that reach it.
fn site(name: &str) -> (Site, Arc<AtomicU32>) {
    let site = Site::build(name);
    let seen = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&seen);
    listen(&site.segment.servers[1], (VIP, CHECKED).into(), move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    (site, seen)
}

/// Until the server that lives has seen 20 checks more.
fn many_checks(seen: &AtomicU32) {
    let enough = seen.load(Ordering::Relaxed) + 20;
    let done = || (seen.load(Ordering::Relaxed) >= enough).then_some(());
    eventually("checks to go on", done, String::new);
}

/// A second way out, by which what is sent to the service comes back to the balancer as a client's.
fn another_way(site: &Site) {
    site.link(OTHER, "bw-rp");
    let router = &site.segment.clients[1];
    let forward = router.namespace().set_sysctl("net/ipv4/ip_forward", "1");
    forward.expect("it routes");
}

fn route(site: &Site, by: &[&str]) {
    let ns = site.segment.balancer.namespace().name();
    ip(&[&["-n", ns, "route", "replace"][..], by].concat()).expect("a route");
}

fn checked(balancer: &Balancer<'_>) {
    let check = format!("check = \"tcp\"\nport = {CHECKED}");
    let text = balancer.text(&[1, 2]).replace("check = \"tcp\"", &check);
    // what goes astray and comes back is forwarded to one that lives
    let other = format!(
        "[[service]]\nname = \"other\"\naddress = \"{VIP}\"\nport = {CHECKED}\n\
         [service.health]\ncheck = \"none\"\n"
    );
    balancer.write(&(text + &other + &backend("living", server(1).0.into())));
}

/// Health as the log tells it: `status` has only the last events.
fn told(log: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(log).expect("a log");
    // the last line may not be whole yet
    let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
    let lines = whole.lines().map(serde_json::from_str::<Value>);
    let events = lines.map(|line| line.expect("JSON lines"));
    let health = events.filter(|l| l["kind"] == "event" && l["what"] == "health");
    let word = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let of = |l: Value| (word(&l["backend"]), word(&l["detail"]));
    health.map(of).collect()
}

#[test]
fn checks_follow_the_route_to_the_service_and_a_dead_server_stays_down_and_a_living_one_up() {
    let (site, seen) = site("exi");
    another_way(&site);
    let mut balancer = Balancer::new(&site.segment.balancer, "exi");
    checked(&balancer);
    let log = balancer.file().with_file_name("log.jsonl");
    balancer.start_with(&["--log", &log.to_string_lossy()], 1);
    balancer.until_health("s1", "down");
    // the log's thread may be behind
    let both = || Some(told(&log)).filter(|told| told.len() == 2);
    let before = eventually("both in the log", both, || format!("{:?}", told(&log)));
    let address = IpAddr::from(own().0).to_string();
    let by = [VIPS, "via", "10.78.0.2", "dev", OTHER, "src", &address];
    for by in [&by[..], &[VIPS, "via", "10.79.0.1", "dev", LINK]] {
        let here = by[by.len().min(5) - 1];
        route(&site, by);
        balancer.until("the probe to follow", |status| {
            let detail = format!("health checks leave by {here}");
            let last = status.iter().rfind(|l| l["what"] == "probe");
            last.is_some_and(|l| l["detail"] == detail)
        });
        many_checks(&seen);
        assert_eq!(balancer.backend("s1")["health"], "down");
        assert_eq!(balancer.backend("s2")["health"], "up");
        // at no time did anybody look otherwise
        assert_eq!(told(&log), before);
    }
    assert_eq!(site.answers(4), ["s2"; 4]);
}

#[test]
fn without_a_way_out_checks_say_nothing_and_whoever_served_goes_on() {
    let (site, _) = site("exn");
    let mut balancer = Balancer::new(&site.segment.balancer, "exn");
    checked(&balancer);
    balancer.start(1);
    balancer.until_health("s1", "down");
    route(&site, &["unreachable", VIPS]);
    balancer.until_health("s2", "unknown");
    let said = balancer.events("probe").swap_remove(0);
    assert_eq!(said["service"], "web");
    let detail = said["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("no route to 10.79.9.1"), "{detail}");
    assert_eq!(balancer.backend("s1")["health"], "down");
    assert_eq!(site.answers(4), ["s2"; 4]);
    route(&site, &[VIPS, "via", "10.79.0.1", "dev", LINK]);
    balancer.until_health("s2", "up");
}

mod long {
    use super::*;

    #[test]
    fn a_next_hop_that_is_silent_makes_nobody_look_dead() {
        let (site, seen) = site("exa");
        let mut balancer = Balancer::new(&site.segment.balancer, "exa");
        checked(&balancer);
        balancer.start(1);
        balancer.until_health("s1", "down");
        route(&site, &[VIPS, "via", "10.79.0.99", "dev", LINK]);
        balancer.until_health("s2", "unknown");
        let why = &balancer.backend("s2")["health_why"];
        assert!(
            why.as_str().is_some_and(|w| w.contains("answers ARP")),
            "{why}"
        );
        assert_eq!(balancer.backend("s1")["health"], "down");
        assert_eq!(site.answers(4), ["s2"; 4]);
        route(&site, &[VIPS, "via", "10.79.0.1", "dev", LINK]);
        balancer.until_health("s2", "up");
        many_checks(&seen);
    }

    #[test]
    fn checks_leave_no_port_taken_and_without_a_free_one_they_fail_nobody_and_say_the_remedy_once()
    {
        let (site, seen) = site("prt");
        let lb = &site.segment.balancer;
        let mut balancer = Balancer::new(lb, "prt");
        checked(&balancer);
        let ports = |range: &str| {
            let set = lb
                .namespace()
                .set_sysctl("net/ipv4/ip_local_port_range", range);
            set.expect("a range");
        };
        ports("40000 40003");
        balancer.start(1);
        many_checks(&seen);
        assert_eq!(balancer.events("checks"), Vec::<Value>::new());
        assert_eq!(balancer.backend("s2")["health"], "up");

        // somebody has all that there are
        ports("40000 40000");
        let bind = || lb.inside(|| Ok(TcpListener::bind(("0.0.0.0", 40_000))?));
        // a check may have it at this moment
        let taken = eventually("the port", || bind().ok(), String::new);
        balancer.until_health("s2", "unknown");
        let said = balancer.events("checks");
        assert_eq!(said.len(), 1, "{said:?}");
        let detail = said[0]["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("ip_local_port_range"), "{detail}");
        assert_eq!(balancer.backend("s1")["health"], "down");
        assert_eq!(site.answers(4), ["s2"; 4]);
        drop(taken);
        balancer.until_health("s2", "up");
    }
}
