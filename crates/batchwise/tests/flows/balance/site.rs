//! Servers at the virtual addresses that say who they are, and clients that ask them.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::Range;
use std::sync::MutexGuard;
use std::time::Duration;

use batchwise_testbed::host::{Host, ip};
use batchwise_testbed::segment::{Segment, SegmentSpec, VIP, VIP6};
use batchwise_testbed::stage::{PATIENCE, connect, turn};
use socket2::{Domain, Socket, Type};

/// Of the service.
pub const PORT: u16 = 8_080;

/// A segment whose servers answer every line with their names, and the turn.
pub struct Site {
    pub segment: Segment,
    _turn: MutexGuard<'static, ()>,
}

impl Site {
    /// Builds the hosts `bw-<name>-*` and starts the servers.
    pub fn build(name: &str) -> Self {
        Self::build_as(name, SegmentSpec::default())
    }

    /// The same with settings.
    pub fn build_as(name: &str, spec: SegmentSpec) -> Self {
        let turn = turn();
        let segment = Segment::build(&format!("c{name}"), spec).expect("hosts");
        for (n, server) in segment.servers.iter().enumerate() {
            for vip in [IpAddr::from(VIP), VIP6.into()] {
                listen(server, (vip, PORT).into(), move |stream| {
                    let _ = serve(stream, n + 1);
                });
            }
            let socket = server.inside(|| Ok(UdpSocket::bind((VIP, PORT))?));
            let socket = socket.expect("a socket");
            std::thread::spawn(move || {
                let mut question = [0; 16];
                while let Ok((_, from)) = socket.recv_from(&mut question) {
                    let _ = socket.send_to(format!("s{}", n + 1).as_bytes(), from);
                }
            });
        }
        Self {
            segment,
            _turn: turn,
        }
    }

    /// A connection of the first client to the service.
    pub fn connect(&self) -> Connection {
        self.connect_to(VIP.into())
    }

    /// The same to this address.
    pub fn connect_to(&self, vip: IpAddr) -> Connection {
        let stream = connect(&self.segment.clients[0], (vip, PORT).into());
        Connection(BufReader::new(stream))
    }

    /// One that this server answers.
    pub fn connect_to_server(&self, name: &str) -> Connection {
        let answered = |mut c: Connection| (c.ask() == name).then_some(c);
        let mut connections = std::iter::repeat_with(|| self.connect());
        connections.find_map(answered).expect("one without end")
    }

    /// A link from the balancer to the second client, with 10.78.0.1 and 10.78.0.2.
    pub fn link(&self, link: &str, peer: &str) {
        let (lb, user) = (&self.segment.balancer, &self.segment.clients[1]);
        let ends = [(lb, link, "10.78.0.1/24"), (user, peer, "10.78.0.2/24")];
        let [of, to] = [lb, user].map(|host| host.namespace().name());
        let veth = ["type", "veth", "peer", "name", peer, "netns", to];
        ip(&[&["-n", of, "link", "add", link][..], &veth].concat()).expect("a link");
        for (host, link, address) in ends {
            let ns = host.namespace();
            ip(&["-n", ns.name(), "addr", "add", address, "dev", link]).expect("an address");
            ip(&["-n", ns.name(), "link", "set", link, "up"]).expect("it is up");
            let off = ns.set_offloads(link, &["tx", "tso", "gso"], false);
            off.expect("off");
        }
    }

    /// Who answers new connections from each of these ports, which are reset then.
    pub fn answers_from(&self, ports: Range<u16>) -> Vec<String> {
        let ask = |port| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            let from = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            socket.bind(&from.into())?;
            // no TIME_WAIT: the next connection from the port has the same addresses
            socket.set_linger(Some(Duration::ZERO))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.connect_timeout(&SocketAddr::from((VIP, PORT)).into(), PATIENCE)?;
            Ok(Connection(BufReader::new(socket.into())).ask())
        };
        let client = &self.segment.clients[0];
        let answers = client.inside(|| ports.map(ask).collect());
        answers.expect("connections")
    }

    /// Who answers so many new connections.
    pub fn answers(&self, connections: usize) -> Vec<String> {
        (0..connections).map(|_| self.connect().ask()).collect()
    }
}

/// Listens at a host, and handles each connection in a thread of its own.
pub fn listen(host: &Host, at: SocketAddr, handle: impl Fn(TcpStream) + Clone + Send + 'static) {
    let listener = host.inside(|| Ok(TcpListener::bind(at)?));
    let listener = listener.expect("a listener");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let handle = handle.clone();
            std::thread::spawn(move || handle(stream));
        }
    });
}

fn serve(mut stream: TcpStream, n: usize) -> std::io::Result<()> {
    for line in BufReader::new(stream.try_clone()?).lines() {
        line?;
        stream.write_all(format!("s{n}\n").as_bytes())?;
    }
    Ok(())
}

/// A connection to the service.
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Says that nothing more will be asked.
    pub fn shut_down(&self) {
        self.0.get_ref().shutdown(Shutdown::Write).expect("open");
    }

    /// Who answers on it.
    pub fn ask(&mut self) -> String {
        self.0.get_mut().write_all(b"who?\n").expect("sent");
        let mut line = String::new();
        self.0.read_line(&mut line).expect("an answer");
        line.trim().to_owned()
    }
}
