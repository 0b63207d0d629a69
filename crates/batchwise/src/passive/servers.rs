//! From epochs of flows to servers: what closed in an interval, added up by server.

use std::collections::BTreeMap;

use batchwise_core::passive::report::ServerLine;
use batchwise_core::passive::{Epoch, server};

use super::interval::{Key, MOST_SERVERS};

/// For so many intervals without an epoch a server still has a line: one that answers nobody any
/// more must not vanish at that very moment.
const SILENT_INTERVALS: u32 = 10;

#[derive(Debug, Default)]
pub struct Servers {
    servers: BTreeMap<Key, Tracked>,
    left_out: u64,
}

#[derive(Debug, Default)]
struct Tracked {
    sum: server::Server,
    silent: u32,
}

impl Servers {
    /// An epoch of a flow to this server closed.
    pub fn add(&mut self, key: Key, epoch: &Epoch) {
        if !self.servers.contains_key(&key) && self.servers.len() >= MOST_SERVERS {
            self.left_out += 1;
            return;
        }
        self.servers.entry(key).or_default().sum.add(epoch);
    }

    /// Epochs so far that found no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The lines of the interval that ends at `ts_ns`; the next one begins.
    pub fn lines(
        &mut self,
        ts_ns: u64,
        interval_ns: u64,
        lost_events: u64,
    ) -> Vec<(Key, ServerLine)> {
        self.servers.retain(|_, known| {
            let silent = known.sum.epochs() == 0;
            known.silent = if silent { known.silent + 1 } else { 0 };
            known.silent <= SILENT_INTERVALS
        });
        let lines = self.servers.iter_mut().map(|(key, known)| {
            let sum = std::mem::take(&mut known.sum);
            let (server, transport) = (key.0.to_string(), key.1);
            let line = ServerLine::new(ts_ns, interval_ns, server, transport, &sum, lost_events);
            (*key, line)
        });
        lines.collect()
    }

    /// Whether there is any server to speak of.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use batchwise_core::passive::Transport;

    use super::super::samples;
    use super::*;

    #[test]
    fn a_server_that_falls_silent_is_shown_for_a_while_and_then_no_more() {
        let mut servers = Servers::default();
        servers.add(samples::KEY, &samples::epoch());
        assert_eq!(servers.lines(1, 1, 0)[0].1.epochs, 1);
        for ts in 0..SILENT_INTERVALS {
            let lines = servers.lines(ts.into(), 1, 0);
            assert_eq!((lines[0].1.epochs, lines[0].1.latency_ns.mean), (0, None));
        }
        assert!(servers.lines(99, 1, 0).is_empty());
        assert!(servers.is_empty());
    }

    #[test]
    fn servers_without_room_are_counted_and_those_that_have_it_keep_it() {
        let mut servers = Servers::default();
        let server = |number: u32| {
            let address = std::net::Ipv4Addr::from_bits(number);
            ((address, 80).into(), Transport::Tcp)
        };
        for number in (0..10_000).chain(0..10) {
            servers.add(server(number), &samples::epoch());
        }
        let lines = servers.lines(1, 1, 0);
        assert_eq!(lines.len(), MOST_SERVERS);
        assert!(lines[..10].iter().all(|(_, line)| line.epochs == 2));
        assert_eq!(servers.left_out(), 10_000 - MOST_SERVERS as u64);
    }

    #[test]
    fn one_address_with_tcp_and_udp_is_two_servers() {
        let mut servers = Servers::default();
        servers.add(samples::KEY, &samples::epoch());
        servers.add((samples::KEY.0, Transport::Udp), &samples::epoch());
        let lines = servers.lines(1, 1, 3);
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|(_, line)| line.lost_events == 3));
    }
}
