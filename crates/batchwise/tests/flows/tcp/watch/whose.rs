//! Who is the server, and whose service it is.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use batchwise_core::sense::report::{Line, Side};
use batchwise_testbed::host::Host;
use batchwise_testbed::stage::watch::Watch;
use batchwise_testbed::stage::{Stage, eventually, listen};
use socket2::{Domain, Socket, Type};

const PORT: u16 = 17_022;
const OTHER: u16 = 17_023;

/// A client and the server's end of its connection.
pub type Pair = [TcpStream; 2];

/// A client that has this port as its own.
pub fn from_port(host: &Host, port: u16, to: &TcpListener) -> Pair {
    let server = to.local_addr().expect("its address");
    let client = host.inside(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from(([0, 0, 0, 0], port)).into())?;
        socket.connect(&server.into())?;
        Ok(TcpStream::from(socket))
    });
    let (accepted, _) = to.accept().expect("its connection");
    [client.expect("a client"), accepted]
}

/// One request and its answer.
pub fn ask([client, server]: &mut Pair) {
    client.write_all(b"ask").expect("sent");
    server.read_exact(&mut [0; 3]).expect("received");
    server.write_all(b"tell").expect("sent");
    client.read_exact(&mut [0; 4]).expect("received");
}

/// Asks on all of them until there are enough lines with requests.
fn ask_until(watch: &Watch, pairs: &mut [Pair], enough: impl Fn(&[Line]) -> bool) -> Vec<Line> {
    let told = || {
        pairs.iter_mut().for_each(ask);
        let mut lines = watch.lines();
        lines.retain(|line| line.throughput_per_s > 0.0);
        enough(&lines).then_some(lines)
    };
    let lines = || format!("its lines: {:#?}", watch.lines());
    eventually("lines with requests", told, lines)
}

#[test]
fn who_was_connected_to_is_the_server_and_a_client_whose_own_port_is_the_watched_one_is_not() {
    let stage = Stage::build("whose");
    let (server, client) = (&stage.hosts.server, &stage.hosts.client);
    let watched = listen(server, stage.hosts.server_address(PORT));
    let other = listen(server, stage.hosts.server_address(OTHER));
    let before = [
        from_port(client, PORT, &other),
        from_port(client, 0, &watched),
    ];
    let watch = Watch::start(server, PORT, None, &["--per-connection"]);
    let since = [
        from_port(client, PORT, &watched),
        from_port(client, 0, &other),
    ];
    let mut pairs = Vec::from(before);
    pairs.extend(since);
    ask_until(&watch, &mut pairs, |lines| {
        [Side::Client, Side::Server].iter().all(|&side| {
            let of = lines.iter().filter(|line| line.side == side);
            of.filter_map(|l| l.connection.as_ref())
                .collect::<BTreeSet<_>>()
                .len()
                >= 2
        })
    });
    for line in watch.finish() {
        assert_eq!(line.service, format!("10.77.0.1:{PORT}"), "{line:?}");
    }
}

#[test]
fn the_same_address_in_two_network_namespaces_is_two_services() {
    let stage = Stage::build("twice");
    let address = SocketAddr::from(([127, 0, 0, 1], PORT));
    let hosts = [&stage.hosts.server, &stage.hosts.client];
    let watch = Watch::start(hosts[0], PORT, None, &[]);
    let mut pairs = hosts.map(|host| from_port(host, 0, &listen(host, address)));
    let of = |line: &Line| (line.netns, line.side);
    let lines = ask_until(&watch, &mut pairs, |lines| {
        lines.iter().map(of).collect::<BTreeSet<_>>().len() >= 4
    });
    watch.finish();

    let services: BTreeSet<_> = lines.iter().map(|line| &line.service).collect();
    assert_eq!(services.len(), 1, "{services:?}");
    let namespaces: BTreeSet<_> = lines.iter().map(|line| line.netns).collect();
    assert_eq!(namespaces.len(), 2, "{namespaces:?}");
    assert!(lines.iter().all(|line| line.connections == 1), "{lines:#?}");
}
