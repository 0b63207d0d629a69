//! The queue before the link: first in, first out, served at the link's rate. It decides nothing; what is
//! put into it was admitted.

use std::collections::VecDeque;

/// How far the service may make up for time in which nobody looked, ns. A thread that had no CPU for
/// longer would else send at once what should have left by and by.
const CATCH_UP: u64 = 50_000;
const NS_PER_S: u64 = 1_000_000_000;

/// Frames in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Length {
    pub packets: u32,
    pub bytes: u32,
}

/// A queue of frames, or of what stands for them.
#[derive(Debug)]
pub struct Queue<F> {
    frames: VecDeque<(F, u32)>,
    length: Length,
    /// The most that there were of each.
    highest: Length,
    /// Bits a second.
    rate: u64,
    /// When the link has sent what it was given, ns; and the part of a nanosecond beyond it, in units of
    /// `1 / rate`.
    free_at: (u64, u64),
    /// Time in which the link stood still although there were frames, ns.
    behind: u64,
}

impl<F> Queue<F> {
    /// Before a link of so many bits a second, with room for so many frames.
    pub fn new(rate: u64, room: usize) -> Self {
        Self {
            frames: VecDeque::with_capacity(room),
            length: Length::default(),
            highest: Length::default(),
            rate,
            free_at: (0, 0),
            behind: 0,
        }
    }

    /// A frame of so many bytes goes in.
    pub fn put(&mut self, now: u64, frame: F, bytes: u32) {
        if self.frames.is_empty() && self.free_at.0 < now {
            self.free_at = (now, 0);
        }
        self.frames.push_back((frame, bytes));
        self.length.packets += 1;
        self.length.bytes += bytes;
        self.highest.packets = self.highest.packets.max(self.length.packets);
        self.highest.bytes = self.highest.bytes.max(self.length.bytes);
    }

    /// The frame whose turn it is and its bytes, once the link is free. It leaves the queue when its first bit does, as
    /// in a network card.
    pub fn take(&mut self, now: u64) -> Option<(F, u32)> {
        if self.free_at.0 > now {
            return None;
        }
        let (frame, bytes) = self.frames.pop_front()?;
        self.length.packets -= 1;
        self.length.bytes -= bytes;
        let lost = (now - self.free_at.0).saturating_sub(CATCH_UP);
        self.behind += lost;
        let (at, part) = self.free_at;
        let sent = u64::from(bytes) * 8 * NS_PER_S + part;
        self.free_at = (at + lost + sent / self.rate, sent % self.rate);
        Some((frame, bytes))
    }

    pub fn length(&self) -> Length {
        self.length
    }

    pub fn highest(&self) -> Length {
        self.highest
    }

    /// Time in which the link stood still although there were frames, ns.
    pub fn behind(&self) -> u64 {
        self.behind
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 Gbit/s: 8 ns a byte.
    fn queue() -> Queue<u32> {
        Queue::new(1_000_000_000, 8)
    }

    fn take(queue: &mut Queue<u32>, now: u64) -> Option<u32> {
        queue.take(now).map(|(frame, _)| frame)
    }

    #[test]
    fn frames_leave_in_order_and_no_faster_than_the_rate() {
        let mut queue = queue();
        for frame in 0..3 {
            queue.put(1_000, frame, 1_000);
        }
        assert_eq!(take(&mut queue, 1_000), Some(0));
        assert_eq!(take(&mut queue, 8_999), None);
        assert_eq!(take(&mut queue, 9_000), Some(1));
        assert_eq!(take(&mut queue, 17_000), Some(2));
        // the third is still on the link when another one comes
        queue.put(18_000, 3, 1_000);
        assert_eq!(take(&mut queue, 18_000), None);
        assert_eq!(take(&mut queue, 25_000), Some(3));
    }

    #[test]
    fn a_busy_period_loses_no_time_to_late_looks_or_to_rounding() {
        // 8000 bits at 3 Gbit/s are 2666.67 ns
        let mut queue = Queue::new(3_000_000_000, 3_001);
        for frame in 0..3_001 {
            queue.put(0, frame, 1_000);
        }
        let (mut now, mut left) = (0, 0);
        while left < 3_001 {
            left += u32::from(queue.take(now).is_some());
            if queue.free_at.0 > now {
                now = queue.free_at.0 + 20_000; // a look each 20 µs or later
            }
        }
        assert_eq!(queue.free_at, (3_001 * 8_000 / 3, 2_000_000_000));
        assert_eq!(queue.behind(), 0);
    }

    #[test]
    fn time_in_which_nobody_looked_is_not_made_up_for_but_told() {
        let mut queue = queue();
        for frame in 0..200 {
            queue.put(0, frame, 1_000);
        }
        assert_eq!(take(&mut queue, 0), Some(0));
        // due at 8 µs, looked at 10 ms later
        let now = 10_008_000;
        let at_once = std::iter::from_fn(|| queue.take(now)).count();
        assert_eq!(at_once, 1 + 50 / 8);
        assert_eq!(queue.behind(), 10_000_000 - CATCH_UP);
    }

    #[test]
    fn its_length_and_highest_are_those_of_what_is_in_it() {
        let mut queue = queue();
        queue.put(0, 0, 100);
        queue.put(0, 1, 60);
        let both = Length {
            packets: 2,
            bytes: 160,
        };
        assert_eq!((queue.length(), queue.highest()), (both, both));
        assert_eq!(take(&mut queue, 0), Some(0));
        let one = Length {
            packets: 1,
            bytes: 60,
        };
        assert_eq!((queue.length(), queue.highest()), (one, both));
    }
}
