//! The passive vantage's loader: loads and attaches the program that measures the gaps of the flows
//! that pass an interface, and hands over the epochs that it closes.
//!
//! What it attaches belongs to file descriptors of this process: when the process ends, however it
//! ends, the kernel detaches it.

mod record;

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use batchwise_core::passive::{Epoch, Params};

use crate::Error;
pub use record::Counters;

/// Where packets are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// Native XDP, or tc where the driver has none.
    #[default]
    Auto,
    /// Native XDP.
    Native,
    /// tc ingress (tcx): after XDP, and after GRO has merged packets, which hides gaps.
    Tc,
    /// Nowhere: another XDP program calls [`PassiveSensor::program`].
    Called,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the interface, in our network namespace; not used with [`Attach::Called`].
    pub interface: String,
    /// Where packets are seen.
    pub attach: Attach,
    /// Destination ports; none: all.
    pub ports: Vec<u16>,
    /// Flows that are to find room at a time.
    pub flows: u32,
    /// The estimator.
    pub params: Params,
    /// UDP payloads of at most so many bytes are taken for acknowledgments (QUIC); 0: none are.
    pub udp_acks: u16,
    /// A flow without a packet for so long is forgotten.
    pub forget: Duration,
    /// A pinned XDP program that decides what becomes of every packet.
    pub then: Option<PathBuf>,
}

/// The program, loaded and attached; detached when dropped.
pub struct PassiveSensor {
    _later: (),
}

impl PassiveSensor {
    /// Loads and attaches the program.
    ///
    /// # Errors
    /// When the interface, the driver or the kernel does not allow it; each says the remedy.
    pub fn attach(config: Config) -> Result<Self, Error> {
        let _ = config;
        Ok(Self { _later: () })
    }

    /// Where packets are seen: [`Attach::Auto`] never.
    pub fn attached(&self) -> Attach {
        Attach::Called
    }

    /// The program, for another XDP program that is to call it (`bpf_tail_call`).
    pub fn program(&self) -> BorrowedFd<'_> {
        unimplemented!()
    }

    /// The epochs that closed since the last call, oldest first; times are ns, CLOCK_MONOTONIC. Call it at least ten times a
    /// second: events wait in a buffer of limited size.
    ///
    /// # Errors
    /// When the kernel does not let us read.
    pub fn poll(&mut self) -> Result<Vec<Epoch>, Error> {
        Ok(Vec::new())
    }

    /// Closes the epochs of idle flows, forgets the long idle, and gives what closed (as
    /// [`Self::poll`] does). Call it once per interval.
    ///
    /// # Errors
    /// When the kernel does not let us.
    pub fn sweep(&mut self) -> Result<Vec<Epoch>, Error> {
        Ok(Vec::new())
    }

    /// What became of the packets so far.
    ///
    /// # Errors
    /// When the kernel does not let us read.
    pub fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters::default())
    }

    /// Flows in the table as of the last [`Self::sweep`].
    pub fn flows_live(&self) -> u64 {
        0
    }

    /// Places in the table.
    pub fn flows_capacity(&self) -> u64 {
        0
    }
}
