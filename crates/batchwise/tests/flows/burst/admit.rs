//! Admission: a burst is let in whole or dropped whole; queues that cannot be had are refused with the command
//! that helps.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Output;
use std::time::Duration;

use batchwise_core::burst::mark::CodePoints;
use batchwise_testbed::host::Host;
use batchwise_testbed::stage::refusal::assert_refused;
use batchwise_testbed::stage::{batchwise, programs_of, until_freed};
use batchwise_testbed::triangle::{SERVER_IP, SERVER_LINK, VANTAGE_LINK, VANTAGE_SERVER_LINK};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::burst::site::{Agent, Capture, Site};

/// Bytes of a datagram.
const DATAGRAM: usize = 1_400;
pub const BURST: u32 = 3;
const SOURCES: u8 = 50;
/// Bytes of the queue: a burst is less than a tenth of it.
const LIMIT: usize = 60 * 1_514;

pub fn queue(site: &Site, what: &str) {
    let set = format!("qdisc replace dev {VANTAGE_SERVER_LINK} root {what}");
    site.router().namespace().tc(&set).expect("a queue");
}

fn slow() -> String {
    format!("tbf rate 1mbit burst 3000 limit {LIMIT}")
}

fn slow_queue(site: &Site) {
    queue(site, &slow());
}

/// Datagrams that have arrived, by their first byte.
pub fn arrived(receiver: &UdpSocket, kind: u8) -> usize {
    let mut buffer = [0; DATAGRAM];
    let mut count = 0;
    while let Ok(length) = receiver.recv(&mut buffer) {
        count += usize::from(length > 0 && buffer[0] == kind);
    }
    count
}

pub fn receiver(site: &Site) -> UdpSocket {
    let receiver = site.receiver().inside(|| {
        let socket = UdpSocket::bind((SERVER_IP, 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        Ok(socket)
    });
    receiver.expect("a socket")
}

pub fn send(host: &Host, to: SocketAddr, kind: u8, tos: u8, count: u32) {
    let socket = Site::datagrams(host, to, tos);
    for _ in 0..count {
        socket.send(&[kind; DATAGRAM]).expect("sent");
    }
}

/// One burst was; gives how many of its packets were dropped. Its last one passes where a slow machine has let the
/// queue empty a bit meanwhile.
pub fn expect_refused(line: &Value, receiver: &UdpSocket) -> u64 {
    let number = |name: &str| line[name].as_u64().expect("a number");
    let (denied, last) = (number("denied"), number("last"));
    assert!(last <= 1 && denied + last == u64::from(BURST - 1), "{line}");
    assert_eq!(arrived(receiver, b'r') as u64, last, "{line}");
    1 + denied
}

#[test]
fn a_burst_is_let_in_whole_or_dropped_whole() {
    let site = Site::build("admit");
    slow_queue(&site);
    let agent = Agent::start(
        site.router(),
        &format!("admit --interface {VANTAGE_SERVER_LINK}"),
    );
    let line = agent.line("admit", "the queue", |_| true);
    assert_eq!(line["limit_bytes"], LIMIT, "{line}");
    assert_eq!(line["rate_bits_per_s"], 1_000_000, "{line}");
    let receiver = receiver(&site);
    let to = receiver.local_addr().expect("an address");
    let marked = CodePoints::default().mark(0, BURST).expect("a mark");

    send(site.sender(), to, b'u', 0, 100);
    send(site.sender(), to, b'r', marked, BURST);
    let line = agent.line("admit", "a refusal", |line| line["bursts_refused"] == 1);
    assert!(line["unmarked_dropped"].as_u64() > Some(0), "{line}");
    assert_eq!(
        line["queue_drops"], 0,
        "nothing is left for the queue itself: {line}"
    );
    assert!(line["queue_highest_bytes"].is_u64(), "{line}");
    send(site.router(), to, b'o', 0, 1);
    agent.line("admit", "the router's own", |line| {
        line["own"].as_u64() > Some(0)
    });
    let line = agent.line("admit", "an empty queue", |line| line["queue_bytes"] == 0);
    let dropped = expect_refused(&line, &receiver);

    send(site.sender(), to, b'a', marked, BURST);
    let line = agent.line("admit", "an admission", |line| line["bursts_admitted"] == 1);
    assert_eq!(arrived(&receiver, b'a'), BURST as usize, "{line}");
    let line = agent.line("admit", "the rest of it", |line| {
        line["promised"] == BURST - 1
    });
    assert_eq!(line["reserved_bytes"], 0, "{line}");
    let source = agent.line("source", "the sender", |line| line["admitted"] == 1);
    assert_eq!(source["address"], "10.78.0.2");
    assert_eq!(
        (&source["refused"], &source["dropped"]),
        (&1.into(), &dropped.into())
    );

    let programs = programs_of(agent.0.pid());
    agent.end(Signal::SIGTERM);
    until_freed(&programs);
}

/// From 6.6 on (tcx).
#[test]
fn nothing_stays_when_the_agent_is_killed() {
    let site = Site::build("killed");
    slow_queue(&site);
    let args = format!("admit --interface {VANTAGE_SERVER_LINK}");
    let agent = Agent::start(site.router(), &args);
    agent.line("admit", "the queue", |_| true);
    let programs = programs_of(agent.0.pid());
    agent.end(Signal::SIGKILL);
    until_freed(&programs);
}

/// From 6.6 on (tcx); before, the second takes the first one's place.
#[test]
fn two_agents_at_one_interface_are_refused() {
    let site = Site::build("twice");
    slow_queue(&site);
    let args = format!("--interface {VANTAGE_SERVER_LINK}");
    let agent = Agent::start(site.router(), &format!("admit {args}"));
    agent.line("admit", "the queue", |_| true);
    let second = admit(&site, &args);
    assert_refused(&second, 1, &["another agent does the same", "end it first"]);
    agent.end(Signal::SIGTERM);
}

#[test]
fn sources_whose_addresses_follow_each_other_are_all_known() {
    let site = Site::build("sources");
    queue(&site, "tbf rate 100mbit burst 3000 limit 1514000");
    let range = "route add local 10.79.0.0/24 dev lo";
    site.sender().namespace().ip(range).expect("addresses");
    let args = format!("admit --interface {VANTAGE_SERVER_LINK}");
    let agent = Agent::start(site.router(), &args);
    let marked = CodePoints::default().mark(0, BURST).expect("a mark");
    // each has used some of its credit when the next one comes
    let send = site.sender().inside(|| {
        for end in 1..=SOURCES {
            let socket = UdpSocket::bind((Ipv4Addr::new(10, 79, 0, end), 0))?;
            socket2::SockRef::from(&socket).set_tos_v4(marked.into())?;
            for _ in 0..BURST {
                socket.send_to(&[b's'; DATAGRAM], (SERVER_IP, 9))?;
            }
        }
        Ok(())
    });
    send.expect("sent");
    let line = agent.line("admit", "all bursts", |line| {
        line["bursts_admitted"] == SOURCES
    });
    assert_eq!(
        (&line["sources"], &line["ignored"]),
        (&SOURCES.into(), &0.into()),
        "{line}"
    );
    agent.end(Signal::SIGTERM);
}

#[test]
fn a_burst_that_does_not_come_is_given_back() {
    let site = Site::build("lost");
    slow_queue(&site);
    let args = format!("admit --interface {VANTAGE_SERVER_LINK} --border");
    let agent = Agent::start(site.router(), &args);
    let to = SocketAddr::from((SERVER_IP, 9));
    let marked = CodePoints::default().mark(0, BURST).expect("a mark");
    send(site.sender(), to, b'l', marked, 1);
    let line = agent.line("admit", "a lost lease", |line| line["leases_lost"] == 1);
    assert_eq!(line["bursts_admitted"], 1, "{line}");
    let lost = line["lost_bytes"].as_u64();
    assert!(lost >= Some(2 * DATAGRAM as u64), "{line}");
    assert_eq!(line["reserved_bytes"], 0, "{line}");
    agent.end(Signal::SIGTERM);
}

#[test]
fn at_the_border_the_routers_own_packets_lose_their_marks_too() {
    let site = Site::build("own");
    slow_queue(&site);
    let args = format!("admit --interface {VANTAGE_SERVER_LINK} --border");
    let agent = Agent::start(site.router(), &args);
    let marked = CodePoints::default().mark(0, BURST).expect("a mark");
    for (number, host) in (1..).zip([site.router(), site.sender()]) {
        let capture = Capture::start(site.receiver(), SERVER_LINK);
        let (mut sent, _received) = site.connection(host, SERVER_IP.into(), marked);
        sent.write_all(b"x").expect("sent");
        assert!(capture.finish(1).iter().all(|packet| packet.tos == 0));
        let marks = |line: &Value| line["cleared"].as_u64() >= Some(number);
        agent.line("admit", "a mark", marks);
    }
    agent.end(Signal::SIGTERM);
}

/// A refusal, or the first lines of one that is none.
pub fn admit(site: &Site, args: &str) -> Output {
    let output = site.router().inside(|| {
        let mut command = batchwise();
        command.args(["burst", "admit", "--duration", "100ms", "--format", "jsonl"]);
        Ok(command.args(args.split(' ')).output()?)
    });
    output.expect("it runs")
}

#[test]
fn a_queue_that_cannot_be_had_is_refused_with_the_command_that_helps() {
    let site = Site::build("refused");
    let here = format!("--interface {VANTAGE_SERVER_LINK}");
    let none = admit(&site, &here);
    assert_refused(
        &none,
        1,
        &["no queue of its own", "tc qdisc replace dev bw-srv root"],
    );
    // what is said helps
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    let command = said
        .split("tc ")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    let command = command.expect("a command").trim();
    site.router().namespace().tc(command).expect("the remedy");
    let output = admit(&site, &here);
    assert!(output.status.success(), "{output:?}");
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    let line: Value = serde_json::from_str(line.lines().next().expect("a line")).expect("JSON");
    assert_eq!(line["limit_bytes"], 151_400, "{line}");

    let big = admit(&site, &format!("{here} --limit 1mb"));
    assert_refused(&big, 1, &["--limit", "151400 bytes"]);
    queue(&site, "pfifo_fast");
    assert_refused(&admit(&site, &here), 1, &["pfifo_fast", "tc qdisc replace"]);
    queue(&site, "pfifo limit 100");
    assert!(admit(&site, &here).status.success());
    let bytes = admit(&site, &format!("{here} --limit 64kb"));
    assert_refused(&bytes, 1, &["--limit", "in packets"]);
    queue(&site, "bfifo limit 9000");
    assert_refused(&admit(&site, &here), 1, &["no room for bursts"]);
    assert_refused(&admit(&site, "--interface nosuch0"), 1, &["nosuch0"]);
    assert_refused(
        &admit(&site, &format!("{here} --rate fast")),
        2,
        &["100mbit"],
    );
    let other = admit(&site, &format!("--interface {VANTAGE_LINK}"));
    assert_refused(&other, 1, &["no queue of its own"]);
}

#[test]
fn an_agent_ends_when_its_queue_is_changed_also_for_an_equal_one() {
    let site = Site::build("changed");
    for change in ["pfifo limit 100", &format!("handle 7: {}", slow())] {
        slow_queue(&site);
        let args = format!("admit --interface {VANTAGE_SERVER_LINK}");
        let mut agent = Agent::start(site.router(), &args);
        queue(&site, change);
        let ended = agent
            .0
            .wait(&Default::default(), batchwise_testbed::stage::PATIENCE);
        assert_eq!(ended.expect("it ends").code(), Some(1));
        let said = agent.0.quote();
        assert!(said.contains("was changed"), "{change}: {said}");
    }
}
