//! The bytes that were promised and have not come yet, by when their promise ends. What is not used is
//! given back without a timer and without looking at the leases.

/// Ends of promises that are told apart.
pub const EPOCHS: usize = 8;

/// Reserved bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// The epoch of the last packet: time in units of `1 << epoch_shift` ns.
    pub epoch: u64,
    /// All of them.
    pub bytes: u32,
    /// Those of leases that live until the end of the epoch, at its number modulo [`EPOCHS`].
    pub until: [u32; EPOCHS],
}

impl Reserved {
    /// Gives back what was not used in time. Time that steps back, as between CPUs, is no time.
    pub fn advance(&mut self, epoch: u64) {
        let passed = epoch.saturating_sub(self.epoch).min(EPOCHS as u64);
        for step in 0..passed {
            let over = &mut self.until[slot(self.epoch + step)];
            self.bytes -= *over;
            *over = 0;
        }
        self.epoch = self.epoch.max(epoch);
    }

    /// The bytes of a lease until the end of `epoch`.
    pub(super) fn add(&mut self, epoch: u64, bytes: u32) {
        self.until[slot(epoch)] += bytes;
        self.bytes += bytes;
    }

    /// Bytes of such a lease that have come.
    pub(super) fn take(&mut self, epoch: u64, bytes: u32) {
        self.until[slot(epoch)] -= bytes;
        self.bytes -= bytes;
    }
}

fn slot(epoch: u64) -> usize {
    epoch as usize % EPOCHS
}
