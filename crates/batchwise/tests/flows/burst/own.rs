//! A queue of our own: the interface has it while the agent runs, and it decides about all that leaves. Where the
//! kernel has no queues in BPF it is refused.

use std::net::{Ipv6Addr, UdpSocket};
use std::process::Command;

use batchwise_core::burst::mark::CodePoints;
use batchwise_testbed::left_out;
use batchwise_testbed::stage::refusal::assert_refused;
use batchwise_testbed::stage::{batchwise, programs_of, until_freed};
use batchwise_testbed::triangle::{CLIENT_IP6, SERVER_IP6, VANTAGE_SERVER_LINK};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::burst::admit::{BURST, admit, arrived, expect_refused, queue, receiver, send};
use crate::burst::site::{Agent, Site};

const LIMIT: &str = "--own-queue --limit 60p";

fn kind(site: &Site) -> String {
    let show = || {
        let mut tc = Command::new("tc");
        tc.args(["-j", "qdisc", "show", "dev", VANTAGE_SERVER_LINK]);
        Ok(tc.output()?.stdout)
    };
    let shown = site.router().inside(show).expect("what tc says");
    let shown: Value = serde_json::from_slice(&shown).expect("JSON");
    shown[0]["kind"].as_str().expect("a kind").to_owned()
}

/// Whether this kernel has them, as the doctor says. Where it has none, the refusal was seen, and the rest is left out.
fn can(site: &Site) -> bool {
    let mut doctor = batchwise();
    doctor.args(["doctor", "--for", "burst", "--format", "json"]);
    let report = doctor.output().expect("it runs").stdout;
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let checks = report["checks"].as_array().expect("checks");
    let ours = checks.iter().find(|c| c["name"] == "queues in BPF");
    let can = ours.expect("it is looked for")["status"] == "ok";
    if !can {
        let refused = admit(site, &format!("--interface {VANTAGE_SERVER_LINK} {LIMIT}"));
        assert_refused(&refused, 1, &["CONFIG_NET_SCH_BPF=y", "--own-queue"]);
        left_out("the kernel has no queues in BPF (CONFIG_NET_SCH_BPF)");
    }
    can
}

#[test]
fn a_queue_of_our_own_takes_bursts_whole_and_goes_with_its_agent() {
    let site = Site::build("own-queue");
    if !can(&site) {
        return;
    }
    let before = kind(&site);
    let args = format!("admit --interface {VANTAGE_SERVER_LINK} {LIMIT} --rate 1mbit");
    let agent = Agent::start(site.router(), &args);
    assert!(kind(&site).starts_with("bwb_"), "{}", kind(&site));
    let receiver = receiver(&site);
    let to = receiver.local_addr().expect("an address");
    let marked = CodePoints::default().mark(0, BURST).expect("a mark");

    send(site.sender(), to, b'u', 0, 100);
    send(site.sender(), to, b'r', marked, BURST);
    let line = agent.line("admit", "a refusal", |line| line["bursts_refused"] == 1);
    assert!(line["unmarked_dropped"].as_u64() > Some(0), "{line}");
    let line = agent.line("admit", "an empty queue", |line| line["queue_bytes"] == 0);
    assert!(line["unmarked"].as_u64() >= Some(60), "{line}");
    expect_refused(&line, &receiver);

    send(site.sender(), to, b'a', marked, BURST);
    let line = agent.line("admit", "an admission", |line| line["bursts_admitted"] == 1);
    assert_eq!(arrived(&receiver, b'a'), BURST as usize, "{line}");
    // what the router sends itself waits in the same queue, and has a say of its own in it
    send(site.router(), to, b'o', marked, BURST);
    let line = agent.line("admit", "the router's own", |line| {
        line["bursts_admitted"] == 2
    });
    assert_eq!(
        (&line["own"], &line["queue_drops"]),
        (&0.into(), &0.into()),
        "{line}"
    );
    assert_eq!(arrived(&receiver, b'o'), BURST as usize);
    assert_eq!(line["sources"], 2, "{line}");

    let sent = site.sender().inside(|| {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?;
        socket2::SockRef::from(&socket).set_tclass_v6(marked.into())?;
        for _ in 0..BURST {
            socket.send_to(&[b'6'; 1_400], (SERVER_IP6, 9))?;
        }
        Ok(())
    });
    sent.expect("sent");
    let six = |line: &Value| line["address"] == CLIENT_IP6.to_string() && line["admitted"] == 1;
    agent.line("source", "a burst in IPv6", six);

    let programs = programs_of(agent.0.pid());
    agent.end(Signal::SIGTERM);
    assert_eq!(kind(&site), before);
    until_freed(&programs);
}

#[test]
fn a_queue_of_our_own_works_on_without_its_agent_until_the_next_one() {
    let site = Site::build("own-killed");
    if !can(&site) {
        return;
    }
    let before = kind(&site);
    let args = format!("admit --interface {VANTAGE_SERVER_LINK} {LIMIT}");
    let agent = Agent::start(site.router(), &args);
    agent.end(Signal::SIGKILL);
    let left = kind(&site);
    assert!(left.starts_with("bwb_"), "{left}");
    let receiver = receiver(&site);
    let to = receiver.local_addr().expect("an address");
    send(site.sender(), to, b'k', 0, BURST);
    assert_eq!(arrived(&receiver, b'k'), BURST as usize);

    let agent = Agent::start(site.router(), &args);
    assert_ne!(kind(&site), left);
    send(site.sender(), to, b'n', 0, BURST);
    assert_eq!(arrived(&receiver, b'n'), BURST as usize);
    agent.end(Signal::SIGTERM);
    assert_eq!(kind(&site), before);

    queue(&site, "pfifo limit 100");
    let chosen = admit(&site, &format!("--interface {VANTAGE_SERVER_LINK} {LIMIT}"));
    assert_refused(&chosen, 1, &["pfifo", "tc qdisc del dev bw-srv root"]);
}
