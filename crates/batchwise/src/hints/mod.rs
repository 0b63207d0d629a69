//! Hints from applications: where they come in ([`listener`]), what they add up to ([`windows`]), and
//! telling peers of them ([`advertise`]).

mod advertise;
mod listener;
mod windows;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use batchwise_bpf::{Advertiser, Connection};
use clap::Args;

use advertise::Advertisements;
use listener::HintListener;
use windows::HintHistory;

use crate::frame::clock::thread_cpu;

pub use windows::HintWindows;

/// From one poll to the next where peers are told: they look at intervals of their own, and expect news in each.
const TELL: Duration = Duration::from_millis(20);
/// Where nobody is: applications come, and memory of those that have ended goes.
const KEEP_UP: Duration = Duration::from_secs(1);
/// A pause is so many times the CPU time of the poll before it: a thousandth of a CPU, beside the readings of intervals.
/// Not its duration: at the lowest priority that is long while others want the CPU.
const PAUSE: u32 = 1_000;
/// The longest: a stall of the host counts as CPU time, too.
const LONGEST: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Args)]
pub struct HintArgs {
    /// Take hints from applications that link batchwise-hint, at this Unix socket
    #[arg(long = "hints", value_name = "PATH", num_args = 0..=1)]
    #[arg(default_missing_value = batchwise_hint::DEFAULT_SOCKET)]
    pub socket: Option<PathBuf>,
    /// Take hints from processes of this user, too (may be repeated; default: root and our own)
    #[arg(long = "hints-uid", value_name = "UID", requires = "socket")]
    pub uids: Vec<u32>,
}

impl HintArgs {
    /// Listens, if hints are wanted.
    pub fn listen(&self) -> anyhow::Result<Option<Hints>> {
        let Some(path) = &self.socket else {
            return Ok(None);
        };
        Ok(Some(Hints {
            listener: HintListener::bind(path, &self.uids)?,
            history: HintHistory::default(),
            advertisements: None,
            heard: HintWindows::default(),
            next: Instant::now(),
        }))
    }
}

/// All hints of this machine's applications: taken in, advertised to the peers, and kept until asked for.
#[derive(Debug)]
pub struct Hints {
    listener: HintListener,
    history: HintHistory,
    advertisements: Option<Advertisements>,
    heard: HintWindows,
    /// When to poll again.
    next: Instant,
}

impl Hints {
    /// Those of clients are told to their peers, from now on.
    pub fn advertise(&mut self, by: Advertiser) {
        self.advertisements = Some(Advertisements::new(by));
    }

    /// The connections that are open, as just read.
    pub fn see(&mut self, connections: &[Connection]) {
        if let Some(advertisements) = &mut self.advertisements {
            advertisements.see(connections);
        }
    }

    /// Until it is time to [`poll`](Self::poll).
    pub fn due(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Takes in what is new and tells it.
    pub fn poll(&mut self) -> anyhow::Result<()> {
        let begin = thread_cpu()?;
        let windows = self.history.windows(&self.listener.poll());
        if let Some(advertisements) = &mut self.advertisements {
            advertisements.advertise(&windows)?;
        }
        self.heard.add(&windows);
        let least = match self.advertisements {
            Some(_) => TELL,
            None => KEEP_UP,
        };
        let took = thread_cpu()?.saturating_sub(begin);
        self.next = Instant::now() + (PAUSE * took).clamp(least, LONGEST);
        Ok(())
    }

    /// All that was heard since the last call; these connections are open.
    pub fn read(&mut self, connections: &[Connection]) -> anyhow::Result<HintWindows> {
        self.see(connections);
        self.poll()?;
        Ok(std::mem::take(&mut self.heard))
    }
}

#[cfg(test)]
mod tests;
