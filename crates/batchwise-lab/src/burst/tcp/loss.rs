//! Which of the segments under way are lost: by three behind them (RFC 6675), or by time (RACK, RFC 8985).

use std::collections::VecDeque;

use super::Recovery;

/// A segment that was sent and not acknowledged in order.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub sent_at: u64,
    /// Number of the transmission, of all of the connection's.
    pub order: u64,
    pub sacked: bool,
    pub lost: bool,
    pub resent: bool,
}

impl Segment {
    pub fn is_under_way(&self) -> bool {
        !self.sacked && !self.lost
    }
}

/// As many behind a segment tell that it is lost.
const BEHIND: usize = 3;

/// The latest transmission that is known to have arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrived {
    pub order: u64,
    /// Its round-trip time, ns.
    pub rtt: u64,
}

/// Marks what is lost; gives whether something newly is, and when it should be asked again.
pub fn mark(
    segments: &mut VecDeque<Segment>,
    recovery: Recovery,
    arrived: Arrived,
    recovering: bool,
    least_rtt: u64,
    now: u64,
) -> (bool, Option<u64>) {
    let mut behind = segments.iter().filter(|s| s.sacked).count();
    // RFC 8985, section 6.2: no time for reordering where none was seen and losses are plain
    let patience = match recovering || behind >= BEHIND {
        true => 0,
        false => least_rtt / 4,
    };
    let (mut found, mut again) = (false, None::<u64>);
    for segment in segments.iter_mut() {
        if segment.sacked {
            behind -= 1;
            continue;
        }
        if segment.lost {
            continue;
        }
        let lost = match recovery {
            Recovery::Cliff => !segment.resent && behind >= BEHIND,
            Recovery::Rack => {
                let due = segment.sent_at + arrived.rtt + patience;
                let earlier = segment.order < arrived.order;
                if earlier && due > now {
                    again = Some(again.map_or(due, |at| at.min(due)));
                }
                earlier && due <= now
            }
        };
        segment.lost |= lost;
        found |= lost;
    }
    (found, again)
}
