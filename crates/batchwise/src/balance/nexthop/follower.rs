//! Follows routes and neighbours in a thread of its own, and makes the kernel ask for stations.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::super::worker::{ROUND, Worker};
use super::NetworkState;
use super::kernel::{Kernel, Wanted};

/// Besides each round, routes and neighbours are looked at so many times after a change, while stations
/// that were asked may answer.
const SOON: Duration = Duration::from_millis(50);
const TIMES_SOON: u32 = 10;
/// Whoever gets a packet at this port drops it; the kernel has asked for the MAC address before.
const DISCARD: u16 = 9;

/// Makes the kernel ask for the MAC address of `station`; of one that it knows but has not heard of
/// for long, whether it still has it.
pub fn ask(station: IpAddr) {
    let any: SocketAddr = match station {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let asked = UdpSocket::bind(any).and_then(|s| s.send_to(&[], (station, DISCARD)));
    if let Err(error) = asked {
        tracing::debug!(%station, %error, "asking for the neighbour");
    }
}

/// Looks again and again, in a thread of its own. What is wanted, and what is known, each with how
/// often something else was wanted before.
pub struct Follower {
    worker: Worker<(u64, Wanted), (u64, NetworkState)>,
    turn: u64,
}

impl Follower {
    /// Begins in the calling thread's network namespace.
    pub fn start() -> anyhow::Result<Self> {
        let kernel = Kernel::open()?;
        let worker = Worker::start("neighbours", move |mut wanted, tell, pulse| {
            let (mut turn, mut looked_for) = (0, Wanted::default());
            let mut soon = 0;
            loop {
                pulse.beat();
                let wait = if soon > 0 { SOON } else { ROUND };
                soon = u32::saturating_sub(soon, 1);
                match kernel.within(wait, wanted.recv()) {
                    Some(Some((next, new))) => (turn, looked_for, soon) = (next, new, TIMES_SOON),
                    Some(None) => return,
                    None => {}
                }
                match kernel.know(&looked_for) {
                    Ok(known) => {
                        // the agent may be ending
                        let _ = tell.send((turn, known));
                    }
                    Err(error) => tracing::warn!("routes and neighbours: {error:#}"),
                }
            }
        })?;
        Ok(Self { worker, turn: 0 })
    }

    /// This is looked for from now on: at once, soon again, then every second.
    pub fn follow(&mut self, wanted: Wanted) -> anyhow::Result<()> {
        self.turn += 1;
        self.worker.want((self.turn, wanted))
    }

    /// It looks.
    pub fn is_well(&self) -> bool {
        self.worker.is_well()
    }

    /// The newest, if there is any since the last call. What was looked at for an earlier
    /// configuration says nothing: it knows of no route to whom that did not have.
    pub fn news(&self) -> anyhow::Result<Option<NetworkState>> {
        let found = self.worker.found()?.into_iter();
        let mut of_now = found.filter(|(turn, _)| *turn == self.turn);
        Ok(of_now.next_back().map(|(_, known)| known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_at_for_an_earlier_configuration_is_no_news() {
        let [before, after] = [1, 2].map(|n| IpAddr::from([127, 0, 0, n]));
        let of = |address| Wanted {
            addresses: vec![address],
            ..Wanted::default()
        };
        let mut follower = Follower::start().expect("netlink");
        let next = |follower: &Follower| {
            loop {
                if let Some(known) = follower.news().expect("it runs") {
                    return known;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        follower.follow(of(before)).expect("it runs");
        assert!(next(&follower).routes.contains_key(&before));
        // it looks again, and again, and that is not read any more
        std::thread::sleep(3 * SOON);
        follower.follow(of(after)).expect("it runs");
        assert!(next(&follower).routes.contains_key(&after));
    }
}
