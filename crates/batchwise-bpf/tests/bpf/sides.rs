//! Which end a socket is, of both families, opened before the agent and since: needs root.

use std::net::{SocketAddr, TcpListener, TcpStream};

use batchwise_bpf::{Config, Exchange, Hints, Sensor, Units};
use batchwise_core::sense::report::{Side, Unit};

use crate::kernel::need_root;

/// A client and the server's end of its connection.
fn connected(listener: &TcpListener, to: &str) -> [TcpStream; 2] {
    let port = listener.local_addr().expect("its address").port();
    let to: SocketAddr = format!("{to}:{port}").parse().expect("an address");
    let client = TcpStream::connect(to).expect("a client");
    [client, listener.accept().expect("accepted").0]
}

#[test]
fn a_socket_that_was_accepted_is_a_servers_and_one_that_connected_is_a_clients() {
    need_root();
    // both families at once: IPv4 is mapped
    let listener = TcpListener::bind("[::]:0").expect("a listener");
    let port = listener.local_addr().expect("its address").port();
    let addresses = ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"];
    let before = addresses.map(|to| connected(&listener, to));
    let config = Config {
        ports: vec![port..=port],
        cgroup: None,
        units: Units::of(&[Unit::Sends]),
        tails: false,
        brief: false,
    };
    let (mut sensor, _) =
        Sensor::open(&config, &(None::<Exchange>, None::<Hints>)).expect("a sensor");
    sensor.begin().expect("it counts");
    let since = addresses.map(|to| connected(&listener, to));
    // nobody listens any more: that does not matter
    drop(listener);

    let open = sensor.read().expect("a reading").open;
    let side_of = |socket: &TcpStream| {
        let ends = |s: SocketAddr| (s.ip().to_canonical(), s.port());
        let own = ends(socket.local_addr().expect("it is connected"));
        let other = ends(socket.peer_addr().expect("it is connected"));
        let is_it =
            |c: &&batchwise_bpf::Connection| (ends(c.local), ends(c.remote)) == (own, other);
        open.iter().find(is_it).map(|c| c.side)
    };
    for [client, server] in before.iter().chain(&since) {
        assert_eq!(side_of(client), Some(Side::Client), "{client:?}");
        assert_eq!(side_of(server), Some(Side::Server), "{server:?}");
    }
}
