//! Hints from applications: where they come in ([`listener`]), what they add up to ([`windows`]), and
//! telling peers of them ([`advertise`]).

mod advertise;
mod listener;
mod windows;

use std::path::PathBuf;

use batchwise_bpf::{Advertiser, Connection};
use clap::Args;

use advertise::Advertisements;
use listener::HintListener;
use windows::HintHistory;
pub use windows::HintWindows;

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
    pub fn are_wanted(&self) -> bool {
        self.socket.is_some()
    }

    /// Listens, if hints are wanted; an `advertiser` tells those of clients to their peers.
    pub fn listen(&self, advertiser: Option<Advertiser>) -> anyhow::Result<Option<Hints>> {
        let Some(path) = &self.socket else {
            return Ok(None);
        };
        Ok(Some(Hints {
            listener: HintListener::bind(path, &self.uids)?,
            history: HintHistory::default(),
            advertisements: advertiser.map(Advertisements::new),
            heard: HintWindows::default(),
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
}

impl Hints {
    /// The connections that are open, as just read.
    pub fn see(&mut self, connections: &[Connection]) {
        if let Some(advertisements) = &mut self.advertisements {
            advertisements.see(connections);
        }
    }

    /// Takes in what is new and tells it.
    pub fn poll(&mut self) -> anyhow::Result<()> {
        let windows = self.history.windows(&self.listener.poll());
        if let Some(advertisements) = &mut self.advertisements {
            advertisements.advertise(&windows)?;
        }
        self.heard.add(&windows);
        Ok(())
    }

    /// Whether peers are advertised.
    pub fn are_advertised(&self) -> bool {
        self.advertisements.is_some()
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
