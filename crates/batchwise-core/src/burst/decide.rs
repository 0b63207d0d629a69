//! What a packet meets: the decision, from the state of its flow, its source and the queue.

use super::Rules;
use super::credit::Credit;
use super::reserved::{EPOCHS, Reserved};

/// A packet as the queue sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its length, bytes.
    pub bytes: u32,
    /// What its mark says: segments that are left of its burst, this one included.
    pub segments: Option<u32>,
}

/// What is known of a flow's burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Until the end of this one, see [`Reserved`].
    pub epoch: u64,
    /// Bytes of the burst that have not come.
    pub left: u32,
    /// The burst was not admitted.
    pub refused: bool,
}

impl Lease {
    /// Whether packets of the burst may still come.
    pub fn is_live(&self, epoch: u64) -> bool {
        self.left > 0 && self.epoch >= epoch
    }
}

/// What is done with a packet, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In the queue, as any packet that has room.
    Taken,
    /// Dropped, as any packet that has no room.
    Full,
    /// In the queue: the first of a burst that has room.
    Admitted,
    /// In the queue: another packet of such a burst.
    Promised,
    /// In the queue: the last packet of a burst that was refused.
    Last,
    /// Dropped: the first of a burst that has no room.
    Refused,
    /// Dropped: another packet of such a burst.
    Denied,
}

impl Verdict {
    /// Whether it goes into the queue.
    pub fn is_in(self) -> bool {
        matches!(
            self,
            Self::Taken | Self::Admitted | Self::Promised | Self::Last
        )
    }
}

/// Decides about a packet. `lease` and `source` are what is kept of its flow and its source; `None`
/// where there is no room to keep anything. The flow and the source of a packet without a mark are not
/// looked at.
pub fn decide(
    rules: &Rules,
    reserved: &mut Reserved,
    lease: Option<&mut Lease>,
    source: Option<&mut Credit>,
    now: u64,
    queued: u32,
    packet: Packet,
) -> Verdict {
    reserved.advance(now >> rules.epoch_shift);
    let segments = packet.segments.filter(|&s| s >= 2);
    let (Some(segments), Some(lease)) = (segments, lease) else {
        return plain(rules, reserved, queued, packet.bytes);
    };
    if lease.is_live(reserved.epoch) {
        return follow(rules, reserved, lease, queued, packet.bytes);
    }
    let burst = segments.saturating_mul(packet.bytes);
    let held = reserved.bytes.saturating_add(burst);
    let drawn = source.as_ref().and_then(|c| c.draw(rules, now, burst));
    let (Some(source), Some(drawn)) = (source, drawn) else {
        return plain(rules, reserved, queued, packet.bytes);
    };
    let has_room = queued.saturating_add(held) <= rules.limit;
    *lease = Lease {
        epoch: rules.last_epoch(reserved.epoch, now, burst),
        left: burst - packet.bytes,
        refused: !has_room,
    };
    if !has_room {
        return Verdict::Refused;
    }
    *source = drawn;
    reserved.add(lease.epoch, lease.left);
    Verdict::Admitted
}

/// Drop-tail, behind what is reserved.
fn plain(rules: &Rules, reserved: &Reserved, queued: u32, bytes: u32) -> Verdict {
    match fits(rules, queued, reserved.bytes, bytes) {
        true => Verdict::Taken,
        false => Verdict::Full,
    }
}

/// A packet of a burst that was decided about.
fn follow(
    rules: &Rules,
    reserved: &mut Reserved,
    lease: &mut Lease,
    queued: u32,
    bytes: u32,
) -> Verdict {
    let used = bytes.min(lease.left);
    lease.left -= used;
    if lease.refused {
        // by its last packet the sender hears at once what is lost; its own probe would come later, and alone
        let told = lease.left == 0 && fits(rules, queued, reserved.bytes, bytes);
        return if told { Verdict::Last } else { Verdict::Denied };
    }
    reserved.take(lease.epoch, used);
    // it may be larger than what was promised
    match fits(rules, queued, reserved.bytes, bytes) {
        true => Verdict::Promised,
        false => Verdict::Full,
    }
}

fn fits(rules: &Rules, queued: u32, held: u32, bytes: u32) -> bool {
    queued.saturating_add(held).saturating_add(bytes) <= rules.limit
}

const _: () = assert!(EPOCHS.is_power_of_two());
