//! What cannot be forwarded is refused with its remedy, at the start or as soon as it shows.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use batchwise_testbed::host::Host;
use batchwise_testbed::stage::refusal::{assert_refused, run, run_as_nobody};
use batchwise_testbed::stage::{PATIENCE, batchwise, eventually, turn};
use batchwise_testbed::topology::{Around, LINK, SERVER_IP};

use crate::Place;

const LIMITS: [&str; 4] = ["--rate", "1gbit", "--limit", "100p"];

fn forward(from: &str, to: &str) -> Command {
    let mut command = batchwise();
    command.args(["burst", "forward", "--from", from, "--to", to]);
    command.args(LIMITS).args(["--duration", "1s"]);
    command
}

#[test]
fn arguments_that_are_wrong_are_named_with_an_example() {
    let with = |args: &[&str]| {
        let mut command = batchwise();
        command.args(["burst", "forward", "--from", "lo", "--to", "lo"]);
        run(command.args(args))
    };
    assert_refused(&with(&["--limit", "100p"]), 2, &["--rate"]);
    let rate = with(&["--rate", "100", "--limit", "100p"]);
    assert_refused(&rate, 2, &["--rate", "100mbit"]);
    let limit = with(&["--rate", "1gbit", "--limit", "0p"]);
    assert_refused(&limit, 2, &["--limit", "150kb"]);
    let many = with(&["--rate", "1gbit", "--limit", "100000p"]);
    assert_refused(&many, 1, &["--limit", "65536"]);
}

/// What it says in the middle.
fn in_the_middle(middle: &Host, mut command: Command, words: &[&str]) {
    let output = middle.inside(|| Ok(run(&mut command))).expect("it runs");
    assert_refused(&output, 1, words);
}

#[test]
fn interfaces_that_do_not_do_are_named_with_the_remedy() {
    let _turn = turn();
    let nobody = [
        &["burst", "forward", "--from", "lo", "--to", "lo"][..],
        &LIMITS,
    ]
    .concat();
    assert_refused(&run_as_nobody(&nobody), 1, &["lo"]);
    let around = Around::build("w-bf-refused").expect("three hosts");
    let (middle, [from, to]) = (&around.middle, Around::LINKS);
    in_the_middle(
        middle,
        forward(from, "nosuch0"),
        &["nosuch0", "no interface"],
    );
    in_the_middle(middle, forward(from, from), &[from, "--to"]);
    let mut short = batchwise();
    short.args(["burst", "forward", "--from", from, "--to", to]);
    short.args(["--rate", "1gbit", "--limit", "10kb"]);
    in_the_middle(middle, short, &["--limit", "no room for bursts", "20p"]);
    in_the_middle(middle, forward(from, "lo"), &["lo", "ip link set", "mtu"]);
    let namespace = middle.namespace();
    let without = "link add bw-ifb type ifb";
    namespace.ip(without).expect("a device without native XDP");
    in_the_middle(middle, forward(from, "bw-ifb"), &["bw-ifb", "native XDP"]);

    namespace
        .ip(&format!("link set {to} mtu 9000"))
        .expect("an MTU");
    in_the_middle(middle, forward(from, to), &[to, "ip link set", "mtu"]);
    namespace
        .ip(&format!("link set {to} mtu 1500"))
        .expect("an MTU");

    let queues = "numrxqueues 2 numtxqueues 2";
    let many = format!("link add name bw-many {queues} type veth peer name bw-peer {queues}");
    namespace.ip(&many).expect("a link");
    let two = ["-L", "bw-many", "rx", "2", "tx", "2"];
    let set = middle.inside(|| Ok(Command::new("ethtool").args(two).output()?));
    drop(set.expect("ethtool runs")); // those that have two already say so
    in_the_middle(middle, forward(from, "bw-many"), &["bw-many", "ethtool -L"]);
}

#[test]
fn of_frames_without_checksums_it_says_the_command_that_makes_them_and_goes_on() {
    let mut place = Place::build("bf-checksums", "100mbit", "100p", "off");
    let hosts = &place.around.hosts;
    let namespace = hosts.client.namespace();
    namespace
        .set_offloads(LINK, &["tx"], true)
        .expect("ethtool");
    // its SYNs are thrown away, and sent again
    let connecting = hosts.client.inside(|| {
        let connected = TcpStream::connect_timeout(&(SERVER_IP, 9).into(), PATIENCE / 3);
        Ok(connected.map(|mut stream| stream.write_all(b"x")).is_ok())
    });
    assert!(!connecting.expect("a thread in the namespace"));
    let said = || place.forwarder.quote().contains("ethtool -K IF tx off");
    eventually(
        "a word about it",
        || said().then_some(()),
        || place.forwarder.quote(),
    );
    // whoever sends can forge such frames
    place.end();
}
