//! Follows routes and neighbours in a thread of its own, and makes the kernel ask for stations.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};

use super::NetworkState;
use super::kernel::{Kernel, Wanted};

/// How often routes and neighbours are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// And so many times after a change, while stations that were asked may answer.
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
/// Looks again and again, in a thread of its own.
pub struct Follower {
    wanted: Sender<(u64, Wanted)>,
    news: Receiver<(u64, NetworkState)>,
    /// How often something else was wanted.
    turn: u64,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Begins in the calling thread's network namespace.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start() -> anyhow::Result<Self> {
        let (tell_wanted, wanted) = channel::<(u64, Wanted)>();
        let (tell, news) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let kernel = Kernel::open()?;
        let run = move || {
            let (mut turn, mut looked_for) = (0, Wanted::default());
            let mut soon = 0;
            while !stopped.load(Ordering::Relaxed) {
                let wait = if soon > 0 { SOON } else { EVERY };
                soon = u32::saturating_sub(soon, 1);
                match wanted.recv_timeout(wait) {
                    Ok((next, new)) => (turn, looked_for, soon) = (next, new, TIMES_SOON),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                match kernel.know(&looked_for) {
                    Ok(known) => {
                        if tell.send((turn, known)).is_err() {
                            return;
                        }
                    }
                    Err(error) => tracing::warn!("routes and neighbours: {error:#}"),
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("neighbours".to_owned())
            .spawn(run)
            .context("starting the thread that follows neighbours")?;
        Ok(Self {
            wanted: tell_wanted,
            news,
            turn: 0,
            stop,
            thread: Some(thread),
        })
    }

    /// This is looked for from now on: at once, soon again, then every second.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn follow(&mut self, wanted: Wanted) -> anyhow::Result<()> {
        self.turn += 1;
        let sent = self.wanted.send((self.turn, wanted));
        sent.map_err(|_| anyhow!("the thread that follows neighbours has ended"))
    }

    /// The newest, if there is any since the last call. What was looked at for an earlier
    /// configuration says nothing: it knows of no route to whom that did not have.
    pub fn news(&self) -> Option<NetworkState> {
        let of_now = self.news.try_iter().filter(|(turn, _)| *turn == self.turn);
        of_now.last().map(|(_, known)| known)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let (closed, _) = channel();
        // dropping the sender wakes the thread
        drop(std::mem::replace(&mut self.wanted, closed));
        if let Some(thread) = self.thread.take() {
            // a panic there has been printed
            let _ = thread.join();
        }
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
                if let Some(known) = follower.news() {
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
