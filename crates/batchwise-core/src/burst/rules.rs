//! What a queue promises, as numbers that the decision needs no division for.

use super::reserved::EPOCHS;

/// What a queue promises. Times are per 2^20 bytes, so that nothing is divided for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Bytes that the queue holds.
    pub limit: u32,
    /// A source's credit, bytes.
    pub source_bytes: u32,
    /// Until 2^20 bytes have left the queue, ns.
    pub send_time: u64,
    /// Until so many bytes of a source's credit are back, ns.
    pub refill_time: u64,
    /// Of [`super::Reserved::epoch`].
    pub epoch_shift: u32,
}

/// 2^20 bytes.
const UNIT_SHIFT: u32 = 20;

impl Rules {
    /// For a queue of so many bytes before a link of so many bits a second.
    pub fn new(limit: u32, rate: u64) -> Self {
        let unit_bits = 8 << UNIT_SHIFT;
        let send_time = unit_bits * 1_000_000_000 / rate.max(1);
        let source_bytes = limit / 10;
        // the longest lease, and where in its first epoch it began
        let longest = 2 * Self::time(send_time, source_bytes);
        let per_epoch = longest.div_ceil(EPOCHS as u64 - 2).max(1);
        Self {
            limit,
            source_bytes,
            send_time,
            refill_time: send_time * 100,
            epoch_shift: per_epoch.next_power_of_two().ilog2(),
        }
    }

    fn time(per_unit: u64, bytes: u32) -> u64 {
        per_unit.saturating_mul(bytes.into()) >> UNIT_SHIFT
    }

    pub(super) fn refill_time(&self, bytes: u32) -> u64 {
        Self::time(self.refill_time, bytes)
    }

    /// The last epoch of a lease for so many bytes: twice the time in which they leave the queue.
    pub(super) fn last_epoch(&self, epoch: u64, now: u64, bytes: u32) -> u64 {
        let end = now + 2 * Self::time(self.send_time, bytes);
        (end >> self.epoch_shift).clamp(epoch, epoch + EPOCHS as u64 - 1)
    }
}
