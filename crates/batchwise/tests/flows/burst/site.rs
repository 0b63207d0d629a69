//! A sender, a router and a receiver; agents of `batchwise burst` on them, and what is on the wire.

use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::MutexGuard;

use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::lines::Printing;
use batchwise_testbed::process::Process;
use batchwise_testbed::stage::{PATIENCE, batchwise, connect, eventually, turn};
use batchwise_testbed::stop::Stop;
use batchwise_testbed::triangle::{Triangle, TriangleSpec};
use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use nix::sys::signal::{Signal, kill};
use pcap_file::pcap::PcapReader;
use serde_json::Value;
use tempfile::TempDir;

/// The sender is the triangle's client, the router its vantage, the receiver its server. Answers do not come
/// by the router.
pub struct Site {
    pub triangle: Triangle,
    _turn: MutexGuard<'static, ()>,
}

impl Site {
    pub fn build(name: &str) -> Self {
        let turn = turn();
        let triangle = Triangle::build(&format!("b-{name}"), &TriangleSpec::default());
        Self {
            triangle: triangle.expect("three hosts"),
            _turn: turn,
        }
    }

    pub fn sender(&self) -> &Host {
        &self.triangle.client
    }

    pub fn router(&self) -> &Host {
        &self.triangle.vantage
    }

    pub fn receiver(&self) -> &Host {
        &self.triangle.server
    }

    /// A listener at the receiver, and a connection from this host with this TOS.
    pub fn connection(&self, from: &Host, address: IpAddr, tos: u8) -> (TcpStream, TcpStream) {
        let listener = self
            .receiver()
            .inside(|| Ok(TcpListener::bind((address, 0))?))
            .expect("a listener");
        let stream = connect(from, listener.local_addr().expect("an address"));
        let (received, _) = listener.accept().expect("the other end");
        received
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout");
        let socket = socket2::SockRef::from(&stream);
        match address {
            IpAddr::V4(_) => socket.set_tos_v4(tos.into()),
            IpAddr::V6(_) => socket.set_tclass_v6(tos.into()),
        }
        .expect("a TOS");
        (stream, received)
    }

    /// A socket at the sender whose packets have this TOS.
    pub fn datagrams(host: &Host, to: SocketAddr, tos: u8) -> UdpSocket {
        let socket = host.inside(|| {
            let socket = UdpSocket::bind(("0.0.0.0", 0))?;
            socket.connect(to)?;
            Ok(socket)
        });
        let socket = socket.expect("a socket");
        let set = socket2::SockRef::from(&socket).set_tos_v4(tos.into());
        set.expect("a TOS");
        socket
    }
}

/// A running agent that prints lines of JSON.
pub struct Agent(pub Printing<Value>);

impl Agent {
    pub fn start(host: &Host, args: &str) -> Self {
        let mut command = batchwise();
        command.arg("burst").args(args.split(' '));
        command.args(["--interval", "50ms", "--format", "jsonl"]);
        let started = Printing::start(host, "burst", command, Role::Observer);
        let agent = Self(started.expect("it starts"));
        let first = || agent.0.with_lines(|lines| lines.last().cloned());
        eventually("a first line", first, || agent.0.quote());
        agent
    }

    /// Waits for a line of this kind that fits.
    pub fn line(&self, kind: &str, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let found = || {
            self.0.with_lines(|lines| {
                let mut last = lines.iter().rev();
                last.find(|line| line["kind"] == kind)
                    .filter(|line| fits(line))
                    .cloned()
            })
        };
        eventually(what, found, || {
            let last = self.0.with_lines(|lines| lines.last().cloned());
            format!("{last:?}{}", self.0.quote())
        })
    }

    pub fn end(mut self, signal: Signal) {
        let status = self.0.end(signal, PATIENCE).expect("it ends");
        assert!(signal == Signal::SIGKILL || status.success(), "{status}");
    }
}

/// A packet with TCP payload, as it was on the wire.
pub struct Seen {
    /// TOS or traffic class.
    pub tos: u8,
    pub payload: usize,
}

/// A running tcpdump.
pub struct Capture {
    tcpdump: Process,
    folder: TempDir,
}

impl Capture {
    pub fn start(host: &Host, link: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("pcap");
        let mut command = Command::new("tcpdump");
        command.args(["-i", link, "-n", "-U", "--immediate-mode", "-Q", "in"]);
        command.args(["-Z", "root", "-w"]);
        command.arg(&file).arg("tcp");
        let tcpdump = host.spawn("tcpdump", command, Role::Observer);
        let tcpdump = tcpdump.expect("tcpdump is needed (Debian: apt install tcpdump)");
        eventually(
            "tcpdump to listen",
            || file.metadata().is_ok_and(|m| m.len() > 0).then_some(()),
            || tcpdump.quote(),
        );
        Self { tcpdump, folder }
    }

    /// Ends it once so many bytes of payload were seen; gives the packets with payload, in order.
    pub fn finish(mut self, bytes: usize) -> Vec<Seen> {
        let all = || {
            let seen = self.seen();
            let sum: usize = seen.iter().map(|packet| packet.payload).sum();
            (sum >= bytes).then_some(seen)
        };
        let seen = eventually("all packets", all, || self.tcpdump.quote());
        kill(self.tcpdump.pid(), Signal::SIGINT).expect("tcpdump is there");
        let status = self.tcpdump.wait(&Stop::default(), PATIENCE);
        assert!(status.expect("tcpdump ends").success());
        seen
    }

    fn seen(&self) -> Vec<Seen> {
        let file = File::open(self.folder.path().join("pcap")).expect("the capture");
        let mut reader = PcapReader::new(file).expect("a capture");
        let mut seen = Vec::new();
        // the last may not be written whole
        while let Some(Ok(packet)) = reader.next_packet() {
            seen.extend(parse(&packet.data));
        }
        seen
    }
}

fn parse(frame: &[u8]) -> Option<Seen> {
    let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let Some(TransportSlice::Tcp(tcp)) = &packet.transport else {
        return None;
    };
    let tos = match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => ip.header().slice()[1],
        Some(LaxNetSlice::Ipv6(ip)) => ip.header().traffic_class(),
        _ => return None,
    };
    let payload = tcp.payload().len();
    (payload > 0).then_some(Seen { tos, payload })
}
