//! Telling peers: where clients' applications say when their requests begin and end, the exchange
//! tells that queue, and no other (§3.3).

use std::collections::HashMap;
use std::net::SocketAddr;

use batchwise_bpf::{Advertiser, Connection};
use batchwise_core::sense::queue::{QueueState, Window};
use batchwise_core::sense::report::Side;

use super::windows::HintWindows;

/// What peers have been told of clients' connections.
#[derive(Debug)]
pub struct Advertisements {
    advertiser: Advertiser,
    clients: HashMap<u64, Client>,
    /// Advertised, and no longer there.
    gone: Vec<u64>,
}

/// A client's connection.
#[derive(Debug)]
struct Client {
    service: SocketAddr,
    /// Bytes that it has moved, and since the look before: its part of the service's requests.
    bytes: u64,
    moved: u64,
    /// What is advertised to its peer.
    queue: QueueState,
    is_advertised: bool,
}

impl Advertisements {
    /// Nothing has been advertised yet.
    pub fn new(advertiser: Advertiser) -> Self {
        Self {
            advertiser,
            clients: HashMap::new(),
            gone: Vec::new(),
        }
    }

    /// The connections that are open.
    pub fn see(&mut self, connections: &[Connection]) {
        let mut before = std::mem::take(&mut self.clients);
        for c in connections.iter().filter(|c| c.side == Side::Client) {
            let known = before.remove(&c.cookie);
            let mut client = known.unwrap_or(Client {
                service: c.remote,
                bytes: c.vitals.bytes,
                moved: 0,
                queue: QueueState::default(),
                is_advertised: false,
            });
            client.moved = c.vitals.bytes.saturating_sub(client.bytes);
            client.bytes = c.vitals.bytes;
            self.clients.insert(c.cookie, client);
        }
        let advertised = before.into_iter().filter(|(_, c)| c.is_advertised);
        self.gone.extend(advertised.map(|(cookie, _)| cookie));
    }

    /// Hands the kernel what is to be advertised: each connection's own hint, or its part of those of the
    /// whole service.
    pub fn advertise(&mut self, heard: &HintWindows) -> anyhow::Result<()> {
        for cookie in self.gone.drain(..) {
            self.advertiser.advertise(cookie, None)?;
        }
        let mut deals = deals(&self.clients, heard);
        let mut advertised = self.clients.values().filter(|c| c.is_advertised).count();
        for (cookie, client) in &mut self.clients {
            let window = match heard.of_connection(*cookie) {
                Some(own) => Some(*own),
                None => deals.get_mut(&client.service).map(|d| d.next(client)),
            };
            match window {
                Some(window) if client.is_advertised || advertised < Advertiser::MOST => {
                    client.queue.time = heard.at;
                    client.queue.integral = client.queue.integral.wrapping_add(window.integral);
                    client.queue.total = client.queue.total.wrapping_add(window.total);
                    self.advertiser.advertise(*cookie, Some(&client.queue))?;
                    advertised += usize::from(!client.is_advertised);
                    client.is_advertised = true;
                }
                None if client.is_advertised => {
                    self.advertiser.advertise(*cookie, None)?;
                    client.is_advertised = false;
                    advertised -= 1;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A service's requests, dealt out to its connections by the bytes that they moved, so that the peer
/// can add them up again.
#[derive(Debug)]
struct Deal {
    all: Window,
    weights: u128,
    /// Of `weights`, what has been dealt with.
    dealt: u128,
}

fn deals(clients: &HashMap<u64, Client>, heard: &HintWindows) -> HashMap<SocketAddr, Deal> {
    let mut deals: HashMap<SocketAddr, Deal> = HashMap::new();
    for (cookie, client) in clients {
        let Some(all) = heard.of_whole_service(&client.service) else {
            continue;
        };
        if heard.of_connection(*cookie).is_none() {
            let deal = deals.entry(client.service).or_insert(Deal {
                all: *all,
                weights: 0,
                dealt: 0,
            });
            deal.weights += client.weight();
        }
    }
    deals
}

impl Client {
    /// Where nothing moved all are alike.
    fn weight(&self) -> u128 {
        u128::from(self.moved) + 1
    }
}

impl Deal {
    /// The part of the next connection; the parts of all add up to the whole exactly.
    fn next(&mut self, client: &Client) -> Window {
        let before = self.dealt;
        self.dealt += client.weight();
        let part = |whole: u64| {
            let up_to = |dealt| u128::from(whole) * dealt / self.weights.max(1);
            (up_to(self.dealt) - up_to(before)) as u64
        };
        Window {
            time: self.all.time,
            integral: part(self.all.integral),
            total: part(self.all.total),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(moved: u64) -> Client {
        Client {
            service: ([10, 0, 0, 1], 6379).into(),
            bytes: 0,
            moved,
            queue: QueueState::default(),
            is_advertised: false,
        }
    }

    #[test]
    fn the_parts_of_a_services_hint_add_up_and_busy_connections_have_most() {
        let moved = [0, 7_000, 90_000, 3_001, 0];
        let all = Window {
            time: 1_000_000,
            integral: u64::MAX / 3,
            total: 1_237,
        };
        let mut deal = Deal {
            all,
            weights: moved.iter().map(|m| client(*m).weight()).sum(),
            dealt: 0,
        };
        let parts = moved.map(|m| deal.next(&client(m)));
        assert_eq!(parts.iter().map(|p| p.total).sum::<u64>(), all.total);
        assert_eq!(parts.iter().map(|p| p.integral).sum::<u64>(), all.integral);
        assert!(parts[2].total > 1_000 && parts[0].total <= 1, "{parts:?}");
        let delay = |w: &Window| w.delay().expect("requests");
        let off = delay(&parts[2]) / delay(&all) - 1.0;
        assert!(off.abs() < 0.01, "every part has the same latency: {off}");
    }
}
