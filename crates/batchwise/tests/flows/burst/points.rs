//! Code points that were chosen are marks, and those that are marks otherwise are others'.

use std::net::UdpSocket;

use batchwise_core::burst::mark::CodePoints;
use batchwise_testbed::stage::batchwise;
use batchwise_testbed::stage::refusal::{assert_refused, run};
use batchwise_testbed::triangle::{
    CLIENT_LINK, SERVER_IP, SERVER_LINK, VANTAGE_LINK, VANTAGE_SERVER_LINK,
};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::burst::admit::{queue, send};
use crate::burst::mark::{WINDOW, send_window};
use crate::burst::site::{Agent, Site};

#[test]
fn chosen_code_points_are_marked_and_heard_and_the_usual_ones_are_left_alone() {
    let site = Site::build("points");
    queue(&site, "tbf rate 100mbit burst 20000 limit 300000");
    let [usual, chosen] = CodePoints::ALL;
    let start = |host, args: String| {
        let args = format!("{args} --code-points {}", chosen.name());
        Agent::start(host, &args)
    };
    let marking = start(site.sender(), format!("mark --interface {CLIENT_LINK}"));
    let args = format!("admit --interface {VANTAGE_SERVER_LINK} --border");
    let admitting = start(site.router(), args);

    let others = usual.mark(0, WINDOW as u32).expect("a mark");
    let receiver = site
        .receiver()
        .inside(|| Ok(UdpSocket::bind((SERVER_IP, 0))?));
    let receiver = receiver.expect("a socket");
    let to = receiver.local_addr().expect("an address");
    send(site.sender(), to, b'o', others, 5);
    let plain = |line: &Value| line["unmarked"].as_u64() >= Some(5);
    let line = admitting.line("admit", "what others marked", plain);
    for count in ["bursts_admitted", "bursts_refused", "ignored", "sources"] {
        assert_eq!(line[count], 0, "{count} in {line}");
    }
    let at_receiver = ("receiver", SERVER_LINK);
    let seen = send_window(&site, SERVER_IP.into(), others, at_receiver);
    assert!(seen.iter().all(|packet| packet.tos == others));
    let used = |line: &Value| line["dscp_used"].as_u64() > Some(0);
    let line = marking.line("mark", "the DSCP of others", used);
    assert_eq!((&line["marked"], &line["taken"]), (&0.into(), &0.into()));

    let seen = send_window(&site, SERVER_IP.into(), 0, ("router", VANTAGE_LINK));
    assert_eq!(chosen.segments(seen[0].tos), Some(WINDOW as u32));
    admitting.line("admit", "the burst", |line| line["bursts_admitted"] == 1);
    let seen = send_window(&site, SERVER_IP.into(), 0, at_receiver);
    assert!(seen.iter().all(|packet| packet.tos == 0), "the border");
    marking.end(Signal::SIGTERM);
    admitting.end(Signal::SIGTERM);
}

#[test]
fn others_are_refused_with_those_that_there_are() {
    for action in ["mark --interface lo", "admit --interface lo"] {
        let args = format!("burst {action} --code-points xxxx10");
        let refused = run(batchwise().args(args.split(' ')));
        assert_refused(&refused, 2, &["--code-points", "xxxx11", "xxxx01"]);
    }
}
