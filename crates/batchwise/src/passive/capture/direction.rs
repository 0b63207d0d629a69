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

    const SYN: (bool, bool) = (true, false);
    const SYN_ACK: (bool, bool) = (true, true);
    const ACK: (bool, bool) = (false, true);

    fn segment(from: (u8, u16), to: (u8, u16), (syn, ack): (bool, bool)) -> Segment {
        let at = |(host, port)| SocketAddr::from(([10, 0, 0, host], port));
        Segment {
            from: at(from),
            to: at(to),
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

    /// The client's address is 10.0.0.2, the server's 10.0.0.1; `first` is seen first, of the two.
    fn assert_told_apart(client: u16, server: u16, first_is_clients: bool, first: (bool, bool)) {
        let (client, server) = ((2, client), (1, server));
        let (from, to) = match first_is_clients {
            true => (client, server),
            false => (server, client),
        };
        let mut directions = Directions::default();
        let forth = directions.goes_to_server(&segment(from, to, first), 0);
        assert_eq!(forth, first_is_clients, "{from:?} to {to:?}");
        assert!(directions.goes_to_server(&segment(client, server, ACK), 1));
        assert!(!directions.goes_to_server(&segment(server, client, ACK), 2));
    }

    #[test]
    fn who_opens_a_connection_is_the_client_whatever_the_ports() {
        assert_told_apart(80, 50_000, true, SYN);
        assert_told_apart(80, 50_000, false, SYN_ACK);
    }

    #[test]
    fn without_an_opening_the_port_that_is_not_ephemeral_is_the_servers() {
        assert_told_apart(50_000, 8_080, false, ACK);
    }

    #[test]
    fn between_ports_of_one_kind_the_first_packet_is_a_request() {
        assert_told_apart(40_000, 50_051, true, ACK);
        assert_told_apart(4_000, 5_000, true, ACK);
    }

    #[test]
    fn ports_that_were_given_decide_over_everything() {
        let mut directions = Directions::new(vec![40_000]);
        let (client, server) = ((2, 80), (1, 40_000));
        assert!(directions.goes_to_server(&segment(client, server, ACK), 0));
        assert!(!directions.goes_to_server(&segment(server, client, SYN), 1));
        assert!(!directions.goes_to_server(&segment((3, 1), (4, 2), SYN), 2));
    }

    #[test]
    fn what_is_long_silent_is_forgotten() {
        let mut directions = Directions::default();
        directions.goes_to_server(&segment((2, 40_000), (1, 50_000), ACK), 5);
        directions.forget_before(6);
        assert!(directions.servers.is_empty());
    }
}
