//! Marks: on the wire as core has them, beside what others have in the same byte, and taken off at the border.

use std::io::{Read, Write};
use std::net::IpAddr;

use batchwise_core::burst::mark::CodePoints;
use batchwise_testbed::stage::refusal::{assert_refused, run, run_as_nobody};
use batchwise_testbed::stage::{batchwise, eventually, programs_of, turn, until_freed};
use batchwise_testbed::triangle::{
    CLIENT_LINK, SERVER_IP, SERVER_IP6, SERVER_LINK, VANTAGE_LINK, VANTAGE_SERVER_LINK,
};
use nix::sys::signal::Signal;

use crate::burst::site::{Agent, Capture, Seen, Site};

/// Segments of the initial window (RFC 6928).
pub const WINDOW: usize = 10;
/// Less than any segment of a link with MTU 1500 carries.
const SEGMENT: usize = 1_400;
const ECT0: u8 = 0b10;
const POINTS: CodePoints = CodePoints::Pool2;

/// What is on the wire of a new connection that sends as much as its initial window lets out.
pub fn send_window(
    site: &Site,
    address: IpAddr,
    tos: u8,
    host_and_link: (&str, &str),
) -> Vec<Seen> {
    let host = match host_and_link.0 {
        "router" => site.router(),
        _ => site.receiver(),
    };
    let capture = Capture::start(host, host_and_link.1);
    let (mut sent, mut received) = site.connection(site.sender(), address, tos);
    let data = vec![7; (WINDOW - 1) * SEGMENT];
    sent.write_all(&data).expect("sent");
    let mut got = vec![0; data.len()];
    received.read_exact(&mut got).expect("all arrives");
    assert_eq!(got, data);
    // an acknowledged octet of its own: no burst
    sent.write_all(b"x").expect("sent");
    received.read_exact(&mut got[..1]).expect("it arrives");
    capture.finish(data.len() + 1)
}

#[test]
fn a_burst_is_marked_with_what_is_left_of_it_and_its_ecn_stays() {
    let site = Site::build("mark");
    for host in [site.sender(), site.receiver()] {
        let set = host.namespace().set_sysctl("net/ipv4/tcp_ecn", "1");
        set.expect("ECN for all");
    }
    let agent = Agent::start(site.sender(), &format!("mark --interface {CLIENT_LINK}"));
    for offloads in [false, true] {
        let namespace = site.sender().namespace();
        let set = namespace.set_offloads(CLIENT_LINK, &["tx", "tso", "gso"], offloads);
        set.expect("offloads");
        for address in [IpAddr::from(SERVER_IP), SERVER_IP6.into()] {
            let seen = send_window(&site, address, 0, ("router", VANTAGE_LINK));
            let (alone, burst) = seen.split_last().expect("packets");
            let left: Vec<u32> = burst
                .iter()
                .map(|packet| POINTS.segments(packet.tos).expect("a mark"))
                .collect();
            assert_eq!(left[0], WINDOW as u32, "{left:?}");
            assert!(left.is_sorted_by(|a, b| a >= b), "{left:?}");
            assert_eq!(burst.len() > 2, !offloads, "{left:?}");
            assert!(burst.iter().all(|packet| packet.tos & 0b11 == ECT0));
            assert_eq!((alone.payload, alone.tos), (1, ECT0));
        }
    }
    let line = agent.line("mark", "the last bursts", |line| line["bursts"] == 4);
    assert!(line["marked"].as_u64() >= Some(4), "{line}");
    assert!(line["too_short"].as_u64() >= Some(4), "{line}");
    agent.end(Signal::SIGTERM);
    let seen = send_window(&site, SERVER_IP.into(), 0, ("router", VANTAGE_LINK));
    assert!(
        seen.iter().all(|packet| packet.tos == ECT0),
        "nobody marks any more"
    );
}

#[test]
fn a_dscp_of_others_stays_and_ports_that_were_not_asked_for_are_left_alone() {
    const AF11: u8 = 10 << 2;
    let site = Site::build("dscp");
    let all = Agent::start(site.sender(), &format!("mark --interface {CLIENT_LINK}"));
    let seen = send_window(&site, SERVER_IP.into(), AF11, ("router", VANTAGE_LINK));
    assert!(seen.iter().all(|packet| packet.tos == AF11));
    let others = |line: &serde_json::Value| line["dscp_used"].as_u64() > Some(0);
    assert_eq!(all.line("mark", "the DSCP of others", others)["marked"], 0);
    let marks = POINTS.mark(0, WINDOW as u32).expect("a mark");
    let seen = send_window(&site, SERVER_IP.into(), marks, ("router", VANTAGE_LINK));
    assert!(seen.iter().all(|packet| packet.tos == marks));
    all.line("mark", "marks of others", |line| {
        line["taken"].as_u64() > Some(0)
    });
    let warned = || all.0.quote().contains("DSCP xxxx11").then_some(());
    eventually("a warning", warned, || all.0.quote());
    all.end(Signal::SIGTERM);

    let args = format!("mark --interface {CLIENT_LINK} --port 1");
    let one = Agent::start(site.sender(), &args);
    let seen = send_window(&site, SERVER_IP.into(), 0, ("router", VANTAGE_LINK));
    assert!(seen.iter().all(|packet| packet.tos == 0));
    one.line("mark", "other ports", |line| {
        line["other_port"].as_u64() > Some(0)
    });
    one.end(Signal::SIGTERM);
}

#[test]
fn marks_die_at_the_border() {
    let site = Site::build("border");
    let marking = Agent::start(site.sender(), &format!("mark --interface {CLIENT_LINK}"));
    let args = format!("mark --interface {VANTAGE_SERVER_LINK} --border");
    let border = Agent::start(site.router(), &args);
    for address in [IpAddr::from(SERVER_IP), SERVER_IP6.into()] {
        let seen = send_window(&site, address, 0, ("receiver", SERVER_LINK));
        assert!(seen.iter().all(|packet| packet.tos == 0));
    }
    border.line("mark", "marks", |line| line["cleared"].as_u64() > Some(0));
    border.end(Signal::SIGTERM);
    let seen = send_window(&site, SERVER_IP.into(), 0, ("receiver", SERVER_LINK));
    assert_eq!(POINTS.segments(seen[0].tos), Some(WINDOW as u32));
    marking.end(Signal::SIGTERM);
}

#[test]
fn nothing_stays_attached_however_the_agent_ends() {
    let site = Site::build("killed");
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let agent = Agent::start(site.sender(), &format!("mark --interface {CLIENT_LINK}"));
        let programs = programs_of(agent.0.pid());
        assert_eq!(programs.len(), 1);
        agent.end(signal);
        until_freed(&programs);
    }
}

#[test]
fn what_is_wrong_is_named_with_its_remedy() {
    let mark = |args: &[&str]| run(batchwise().args(["burst", "mark"]).args(args));
    assert_refused(&mark(&[]), 2, &["--interface"]);
    let least = mark(&["--interface", "lo", "--least", "1"]);
    assert_refused(&least, 2, &["--least"]);
    let both = mark(&["--interface", "lo", "--border", "--port", "80"]);
    assert_refused(&both, 2, &["--border", "--port"]);
    let _turn = turn();
    assert_refused(&mark(&["--interface", "nosuch0"]), 1, &["nosuch0", "lo"]);
    let nobody = run_as_nobody(&["burst", "mark", "--interface", "lo"]);
    assert_refused(&nobody, 1, &["run as root"]);
}
