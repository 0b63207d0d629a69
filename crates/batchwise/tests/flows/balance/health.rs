//! Which backends get connections, by what checks say of them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use batchwise_testbed::segment::{VIP, client};
use serde_json::json;

use crate::balance::balancer::{Balancer, backend};
use crate::balance::site::{Site, listen};

/// Of what is checked.
const CHECKED: u16 = 8_090;

fn answer(mut stream: TcpStream, sick: bool) -> std::io::Result<()> {
    let mut head = BufReader::new(stream.try_clone()?).lines();
    while head
        .next()
        .transpose()?
        .is_some_and(|line| !line.is_empty())
    {}
    let status = if sick { "500 Sick" } else { "200 OK" };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(head.as_bytes())
}

/// All servers answer HTTP checks: the first so many are sick when what is given says it, and the
/// others well.
fn checked_servers(site: &Site, can_be_sick: usize) -> Arc<AtomicBool> {
    let sick = Arc::new(AtomicBool::new(false));
    for (n, server) in site.segment.servers.iter().enumerate() {
        let sick = Arc::clone(&sick);
        listen(server, (VIP, CHECKED).into(), move |stream| {
            let _ = answer(stream, n < can_be_sick && sick.load(Ordering::Relaxed));
        });
    }
    sick
}

/// A configuration with checks by HTTP.
fn checked(balancer: &Balancer<'_>, servers: &[u8]) -> String {
    let http = format!("check = \"http\"\nport = {CHECKED}\npath = \"/health\"");
    balancer.text(servers).replace("check = \"tcp\"", &http)
}

#[test]
fn a_backend_that_answers_with_errors_gets_no_connections_until_its_answers_are_good() {
    let site = Site::build("htt");
    let sick = checked_servers(&site, 1);
    let mut balancer = Balancer::new(&site.segment.balancer, "htt");
    balancer.write(&checked(&balancer, &[1, 2]));
    balancer.start(2);
    sick.store(true, Ordering::Relaxed);
    balancer.until_backend("s1", "taken out", |s1| {
        s1["state"] == "down" && s1["share"] == 0.0
    });
    assert_eq!(balancer.backend("s1")["health_why"], "HTTP status 500");
    assert_eq!(site.answers(8), ["s2"; 8]);
    sick.store(false, Ordering::Relaxed);
    balancer.until_backend("s1", "back", |s1| {
        s1["health"] == "up" && s1["share"].as_f64() > Some(0.0)
    });
}

#[test]
fn a_backend_that_is_taken_back_while_it_drains_serves_as_before_without_waiting_for_a_check() {
    let site = Site::build("bck");
    let sick = checked_servers(&site, 2);
    let mut balancer = Balancer::new(&site.segment.balancer, "bck");
    let text = |servers: &[u8]| {
        let text = checked(&balancer, servers);
        // so many, and so seldom, that none is down when its checks begin to fail
        text.replace("interval = \"100ms\"\nrise", "interval = \"300ms\"\nrise")
            .replace("fall = 2", "fall = 100")
    };
    let (both, one) = (text(&[1, 2]), text(&[2]));
    balancer.write(&both);
    balancer.start(2);
    let mut kept = site.connect_to_server("s1");
    balancer.reload(&one);
    assert_eq!(site.answers(8), ["s2"; 8]);
    // no check can say any more that it is up
    sick.store(true, Ordering::Relaxed);
    balancer.reload(&both);
    let line = balancer.expect("s1", json!({"health": "up", "state": "serving"}));
    let answers = site.answers(40);
    let after = || (balancer.backend("s1"), balancer.backend("s2"));
    assert!(answers.iter().any(|a| a == "s1"), "{line} {:?}", after());
    assert_eq!(kept.ask(), "s1");
}

#[test]
fn a_new_backend_that_never_answers_gets_no_slots() {
    let site = Site::build("new");
    let balancer = Balancer::running(&site.segment.balancer, "new", &[1, 2]);
    // a host that takes packets to the virtual address and drops them
    let silent = client(1).0.into();
    let text = balancer.text(&[1, 2]) + &backend("silent", silent);
    // so many that none of its checks is judged while it is looked at
    balancer.reload(&text.replace("fall = 2", "fall = 100"));
    balancer.expect("silent", json!({"health": "unknown", "state": "down"}));
    assert_eq!(site.answers(20).len(), 20);
    balancer.reload(&text);
    balancer.until_health("silent", "down");
    assert_eq!(balancer.backend("silent")["share"], 0.0);
}

#[test]
fn backends_that_come_back_get_connections_before_the_interval_ends() {
    let site = Site::build("rea");
    let sick = checked_servers(&site, 2);
    let mut balancer = Balancer::new(&site.segment.balancer, "rea");
    let text = checked(&balancer, &[1, 2]);
    // longer than anything here waits
    let text = text.replace("interval = \"100ms\"\nflows", "interval = \"1m\"\nflows");
    balancer.write(&format!("policy = \"latency\"\n{text}"));
    balancer.start(2);
    let share = |status: &[serde_json::Value]| -> f64 {
        let shares = status.iter().filter_map(|l| l["share"].as_f64());
        shares.sum()
    };
    sick.store(true, Ordering::Relaxed);
    balancer.until("all to be down", |status| share(status) == 0.0);
    sick.store(false, Ordering::Relaxed);
    balancer.until("slots to be somebody's", |status| share(status) > 0.9);
    assert_eq!(site.answers(4).len(), 4);
    balancer.until_up(2);
    balancer.must(&["drain", "s1"]);
    assert_eq!(balancer.backend("s1")["share"], 0.0);
    balancer.must(&["drain", "s1", "--undo"]);
    assert!(balancer.backend("s1")["share"].as_f64() > Some(0.0));
}
