//! `batchwise decap` as its users meet it. Needs root.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Output;

use batchwise_testbed::host::Role;
use batchwise_testbed::lines::Printing;
use batchwise_testbed::stage::refusal::{assert_refused, run, run_as_nobody};
use batchwise_testbed::stage::{PATIENCE, Stage, batchwise, eventually, turn};
use batchwise_testbed::stop::Stop;
use batchwise_testbed::topology::{CLIENT_IP, LINK, SERVER_IP};
use etherparse::{IpNumber, PacketBuilder};
use nix::sys::signal::Signal;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 79, 9, 1);

fn decap(args: &[&str]) -> Output {
    run(batchwise().arg("decap").args(args))
}

#[test]
fn what_is_wrong_is_named_with_its_remedy() {
    assert_refused(&decap(&[]), 2, &["--iface"]);
    let prefix = decap(&["--iface", "lo", "--from", "10.0.0.0/33"]);
    assert_refused(&prefix, 2, &["--from", "0 to 32"]);
    let name = decap(&["--iface", "lo", "--from", "lb"]);
    assert_refused(&name, 2, &["--from", "10.79.0.10"]);
    let _turn = turn();
    let interface = decap(&["--iface", "nosuch0", "--from", "10.0.0.1"]);
    assert_refused(&interface, 1, &["nosuch0", "no interface"]);
    let nobody = run_as_nobody(&["decap", "--iface", "lo", "--from", "10.0.0.1"]);
    assert_refused(&nobody, 1, &["run as root"]);
}

/// Sends a datagram for the service through a tunnel, as the kernel's raw sockets do.
fn send(source: Ipv4Addr, port: u16, payload: &[u8]) -> std::io::Result<()> {
    let mut inside = Vec::new();
    let built = PacketBuilder::ipv4(source.octets(), SERVICE.octets(), 64).udp(40_000, port);
    built
        .write(&mut inside, payload)
        .expect("a Vec takes everything");
    let protocol = Protocol::from(i32::from(IpNumber::IPV4.0));
    let raw = Socket::new(Domain::IPV4, Type::RAW, Some(protocol))?;
    raw.send_to(&inside, &std::net::SocketAddr::from((SERVER_IP, 0)).into())?;
    Ok(())
}

#[test]
fn an_address_that_the_host_gets_later_is_served_through_the_tunnel() {
    let stage = Stage::build("decap");
    let (server, client) = (&stage.hosts.server, &stage.hosts.client);
    let mut command = batchwise();
    command.args(["decap", "--iface", LINK, "--format", "jsonl", "--from"]);
    command.arg(CLIENT_IP.to_string());
    let mut decap =
        Printing::<Value>::start(server, "decap", command, Role::Observer).expect("it starts");
    let last = |field: &str| decap.with_lines(|lines| lines.last()?[field].as_u64());
    eventually("a first line", || last("decapsulated"), || decap.quote());

    let sent = |what: &[u8], port| client.inside(|| Ok(send(CLIENT_IP, port, what)?));
    sent(b"early", 9).expect("sent");
    let count = || last("foreign_inner").filter(|n| *n > 0);
    eventually("a refusal", count, || decap.quote());

    let name = server.namespace().name();
    let service = format!("{SERVICE}/32");
    let add = ["-n", name, "addr", "add", &service, "dev", "lo"];
    batchwise_testbed::host::ip(&add).expect("an address");
    let socket = server.inside(|| Ok(UdpSocket::bind((SERVICE, 0))?));
    let socket = socket.expect("a socket");
    let port = socket.local_addr().expect("an address").port();
    let short = Some(std::time::Duration::from_millis(100));
    socket.set_read_timeout(short).expect("a timeout");
    let mut buffer = [0; 16];
    let (n, peer) = eventually(
        "a datagram",
        || {
            sent(b"later", port).expect("sent");
            socket.recv_from(&mut buffer).ok()
        },
        || decap.quote(),
    );
    assert_eq!(&buffer[..n], b"later");
    assert_eq!(peer.ip(), CLIENT_IP);

    let status = decap.end(Signal::SIGINT, PATIENCE);
    assert!(status.expect("it ends").success());
    let last = decap.take_lines().pop().expect("a line");
    assert!(last["decapsulated"].as_u64() > Some(0), "{last}");
    assert_eq!(last["malformed"], 0);
    assert_eq!(last["native"], true);
}

#[test]
fn when_its_interface_goes_it_says_so_and_ends() {
    let stage = Stage::build("decapgone");
    let server = &stage.hosts.server;
    let ip = |what: &str| server.namespace().ip(what).expect("ip takes it");
    ip("link add bw-goes type veth peer name bw-goes-too");
    ip("link set bw-goes up");
    let mut command = batchwise();
    command.args(["decap", "--iface", "bw-goes", "--format", "jsonl"]);
    command.args(["--from", "10.0.0.1"]);
    let decap = Printing::<Value>::start(server, "decap", command, Role::Observer);
    let mut decap = decap.expect("it starts");
    let told = || decap.with_lines(|lines| (!lines.is_empty()).then_some(()));
    eventually("a first line", told, || decap.quote());
    ip("link del bw-goes");
    let status = decap.wait(&Stop::default(), PATIENCE).expect("it ends");
    assert_eq!(status.code(), Some(1));
    assert!(
        decap.quote().contains("bw-goes is gone"),
        "{}",
        decap.quote()
    );
}
