//! Which end of a captured packet is the client. A vantage point on the path sees one direction; a
//! capture often has both, and must not be measured twice.

use std::collections::HashMap;
use std::net::SocketAddr;

use batchwise_core::passive::Transport;

use super::frame::Segment;

/// Linux takes clients' ports from here on (`net.ipv4.ip_local_port_range`).
const EPHEMERAL: u16 = 32_768;

/// Decides, once for each pair of ends, and remembers.
#[derive(Debug, Default)]
pub struct Directions {
    /// Destination ports that are measured; none: all.
    ports: Vec<u16>,
    /// By the pair in order of their addresses: whether the first is the server.
    servers: HashMap<Pair, PairDirection>,
}

type Pair = (SocketAddr, SocketAddr, Transport);

#[derive(Clone, Copy, Debug)]
struct PairDirection {
    first_is_server: bool,
    seen_ns: u64,
}

impl Directions {
    /// With `ports`, only what goes to one of them is measured.
    pub fn new(ports: Vec<u16>) -> Self {
        Self {
            ports,
            servers: HashMap::new(),
        }
    }

    /// Whether a packet goes from a client to a server that is to be measured. In this order: the
    /// ports that the user gave; who opened the connection (SYN); the end whose port is below the
    /// ephemeral ones, if it is one end only; the receiver of the first packet.
    pub fn goes_to_server(&mut self, segment: &Segment, now_ns: u64) -> bool {
        let measured = |at: SocketAddr| self.ports.contains(&at.port());
        if !self.ports.is_empty() && measured(segment.to) != measured(segment.from) {
            return measured(segment.to);
        }
        if !self.ports.is_empty() && !measured(segment.to) {
            return false;
        }
        let (from, to) = (segment.from, segment.to);
        let pair = (from.min(to), from.max(to), segment.transport());
        let opened = segment.tcp.and_then(|tcp| tcp.syn.then_some(!tcp.ack));
        let known = self.servers.entry(pair).or_insert_with(|| PairDirection {
            first_is_server: (to == pair.0) == opened.unwrap_or_else(|| guess(from, to)),
            seen_ns: now_ns,
        });
        known.seen_ns = now_ns;
        if let Some(opened) = opened {
            known.first_is_server = (to == pair.0) == opened;
        }
        (to == pair.0) == known.first_is_server
    }

    /// Forgets pairs of which nothing was seen since.
    pub fn forget_before(&mut self, ns: u64) {
        self.servers.retain(|_, known| known.seen_ns >= ns);
    }
}

/// Whether a packet of a pair of which no opening was seen goes to the server. Requests come first.
fn guess(from: SocketAddr, to: SocketAddr) -> bool {
    from.port() >= EPHEMERAL || to.port() < EPHEMERAL
}

#[cfg(test)]
mod tests {
    use super::super::frame::Tcp;
    use super::*;

    fn at(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], port))
    }

    fn segment(from: SocketAddr, to: SocketAddr, syn: bool, ack: bool) -> Segment {
        Segment {
            from,
            to,
            ip_length: 50,
            payload: 10,
            tcp: Some(Tcp {
                sequence: 0,
                acknowledged: 0,
                syn,
                ack,
                fin: false,
                rst: false,
            }),
        }
    }

    #[test]
    fn who_opens_a_connection_is_the_client_whatever_the_ports() {
        let (client, server) = (at(2, 80), at(1, 50_000));
        for syn in [
            segment(client, server, true, false),
            segment(server, client, true, true),
        ] {
            let mut directions = Directions::default();
            directions.goes_to_server(&syn, 0);
            assert!(directions.goes_to_server(&segment(client, server, false, true), 1));
            assert!(!directions.goes_to_server(&segment(server, client, false, true), 2));
        }
    }

    #[test]
    fn without_an_opening_the_port_that_is_not_ephemeral_is_the_servers() {
        let (client, server) = (at(2, 50_000), at(1, 8_080));
        let mut directions = Directions::default();
        assert!(!directions.goes_to_server(&segment(server, client, false, true), 0));
        assert!(directions.goes_to_server(&segment(client, server, false, true), 1));
    }

    #[test]
    fn between_ports_of_one_kind_the_first_packet_is_a_request() {
        for (client, server) in [(40_000, 50_051), (4_000, 5_000)] {
            let (client, server) = (at(2, client), at(1, server));
            let mut directions = Directions::default();
            assert!(directions.goes_to_server(&segment(client, server, false, true), 0));
            assert!(!directions.goes_to_server(&segment(server, client, false, true), 1));
        }
    }

    #[test]
    fn ports_that_were_given_decide_over_everything() {
        let mut directions = Directions::new(vec![40_000]);
        let (client, server) = (at(2, 80), at(1, 40_000));
        assert!(directions.goes_to_server(&segment(client, server, false, true), 0));
        assert!(!directions.goes_to_server(&segment(server, client, true, false), 1));
        assert!(!directions.goes_to_server(&segment(at(3, 1), at(4, 2), true, false), 2));
    }

    #[test]
    fn what_is_long_silent_is_forgotten() {
        let mut directions = Directions::default();
        directions.goes_to_server(&segment(at(2, 40_000), at(1, 50_000), false, true), 5);
        directions.forget_before(6);
        assert!(directions.servers.is_empty());
    }
}
