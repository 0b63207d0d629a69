//! UDP, IPv6, and tunnels.

use std::net::UdpSocket;

use batchwise_testbed::host::Role;
use batchwise_testbed::segment::{LINK, SegmentSpec, VIP, VIP6, balancer};
use batchwise_testbed::stage::{PATIENCE, batchwise};

use crate::balance::balancer::Balancer;
use crate::balance::site::{PORT, Site};

fn udp(socket: &UdpSocket) -> String {
    socket.send(b"who?").expect("sent");
    let mut answer = [0; 16];
    let n = socket.recv(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer[..n]).into_owned()
}

#[test]
fn udp_flows_reach_backends_and_keep_to_them() {
    let site = Site::build("udp");
    let mut balancer = Balancer::new(&site.segment.balancer, "udp");
    let text = balancer.text(&[1, 2]);
    balancer.write(&text.replace(
        "[service.health]",
        &format!("protocol = \"udp\"\n[service.health]\nport = {PORT}"),
    ));
    balancer.start(2);
    let socket = || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect((VIP, PORT))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(socket)
    };
    let client = &site.segment.clients[0];
    let sockets: Vec<_> = (0..24)
        .map(|_| client.inside(socket).expect("a socket"))
        .collect();
    let first: Vec<String> = sockets.iter().map(udp).collect();
    assert!(first.iter().any(|a| a == "s1") && first.iter().any(|a| a == "s2"));
    let second: Vec<String> = sockets.iter().map(udp).collect();
    assert_eq!(first, second);
}

#[test]
fn an_ipv6_service_is_checked_and_served() {
    let site = Site::build("ip6");
    let mut balancer = Balancer::new(&site.segment.balancer, "ip6");
    balancer.write(&balancer.text6(&[3, 4]));
    balancer.start(2);
    let answers: Vec<String> = (0..24)
        .map(|_| site.connect_to(VIP6.into()).ask())
        .collect();
    assert!(
        answers.iter().all(|a| a == "s3" || a == "s4"),
        "{answers:?}"
    );
    assert!(answers.iter().any(|a| a == "s3") && answers.iter().any(|a| a == "s4"));
}

#[test]
fn a_backend_that_decapsulates_is_checked_and_served_through_its_tunnel_from_either_source() {
    let site = Site::build_as("tun", SegmentSpec { mtu: 1_600 });
    let (own, _) = balancer();
    let mut command = batchwise();
    command.args(["decap", "--iface", LINK, "--from"]);
    command.arg(format!("{own},10.80.0.0/16"));
    let decap = site.segment.servers[0].spawn("batchwise decap", command, Role::Observer);
    let _decap = decap.expect("it starts");
    let mut balancer = Balancer::new(&site.segment.balancer, "tun");
    let text = balancer
        .text(&[1])
        .replace("[service.health]", "method = \"ipip\"\n[service.health]");
    balancer.write(&text);
    balancer.start(1);
    let mut kept = site.connect();
    assert_eq!(kept.ask(), "s1");
    balancer.reload(&text.replace("method", "tunnel_source = \"10.80.0.0/16\"\nmethod"));
    assert_eq!(kept.ask(), "s1");
    assert_eq!(site.answers(8), ["s1"; 8]);
    balancer.must(&["remove"]);
}
