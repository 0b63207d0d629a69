//! How far the mean of what was counted may be from that of all requests of an interval: windows differ
//! from each other, and so does what is between them.

use crate::sense::report::Side;
use crate::sense::sample::Flow;
use crate::sense::wire::{Item, Queue};

/// What a mean is off by even when everything was counted: a message ends at a PSH, an acknowledgment
/// that left is noticed later, the bytes of coalesced messages say where they hide. Relative, root mean
/// square; from `lab run accuracy`.
pub const SYSTEMATIC: f64 = 0.05;

/// Of so many windows the last one's weight is, as it moves.
const MEMORY: f64 = 8.0;

/// How a service's windows differ, relative to their mean.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread {
    last: Option<f64>,
    /// Variance of the logarithm: half the mean square of successive differences, which a load that
    /// changes slowly does not widen.
    variance: Option<f64>,
    differences: f64,
}

/// What one end alone sees of a window: the delays in its queues, added. The mean of a service's latency
/// moves as this does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delays([[u64; 2]; 3]);

impl Delays {
    /// Adds a connection's part. A client's turnaround is its own time to think: no part of the latency.
    pub fn add(&mut self, flow: &Flow, side: Side) {
        let queues = [Queue::Unacked, Queue::Unread, Queue::Turnaround];
        let of_side = if side == Side::Client { 2 } else { 3 };
        for (sum, queue) in self.0.iter_mut().zip(queues).take(of_side) {
            let window = flow.here(Item::Calls, queue);
            sum[0] += window.integral;
            sum[1] += window.total;
        }
    }

    /// ns; `None` when nothing left a queue.
    pub fn sum(&self) -> Option<f64> {
        let left = self.0.iter().filter(|[_, total]| *total > 0);
        let sum: f64 = left
            .map(|[integral, total]| *integral as f64 / *total as f64)
            .sum();
        (sum > 0.0).then_some(sum)
    }
}

impl Spread {
    /// A window more.
    pub fn add(&mut self, window: &Delays) {
        let Some(ln) = window.sum().map(libm::log) else {
            return;
        };
        if let Some(last) = self.last.replace(ln) {
            let square = (ln - last) * (ln - last) / 2.0;
            self.differences = (self.differences + 1.0).min(MEMORY);
            let before = self.variance.unwrap_or(square);
            self.variance = Some(before + (square - before) / self.differences);
        }
    }

    /// Relative variance of the mean of so many windows that hold this share of the requests. `None`: not
    /// known yet.
    pub fn of_mean(&self, windows: u32, coverage: f64) -> Option<f64> {
        let unseen = 1.0 - coverage.clamp(0.0, 1.0);
        if unseen == 0.0 {
            return Some(0.0);
        }
        // successive differences tell as much as two thirds of so many windows; a variance that is known
        // from few is Student's
        let freedom = (self.differences * 2.0 / 3.0).max(2.5);
        let variance = self.variance? * freedom / (freedom - 2.0);
        Some(unseen * variance / f64::from(windows.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(ns: f64) -> Delays {
        Delays([[(ns * 1000.0) as u64, 1000], [0, 0], [0, 0]])
    }

    #[test]
    fn windows_that_differ_by_a_tenth_tell_a_mean_to_that_over_the_root_of_their_number() {
        let mut spread = Spread::default();
        for i in 0..40 {
            spread.add(&window(100_000.0 * if i % 2 == 0 { 1.1 } else { 0.9 }));
        }
        // differences of 0.2, of which half the square is the variance of independent values, and 1.6 for
        // its being known from eight
        let one = spread.of_mean(1, 0.0).unwrap();
        assert!((one - 1.6 * 0.0201).abs() < 3e-4, "{one}");
        assert!((spread.of_mean(4, 0.0).unwrap() - one / 4.0).abs() < 1e-9);
        assert!((spread.of_mean(1, 0.75).unwrap() - one / 4.0).abs() < 1e-9);
    }

    #[test]
    fn a_load_that_grows_slowly_is_no_spread() {
        let mut spread = Spread::default();
        (0..40).for_each(|i| spread.add(&window(100_000.0 * f64::from(100 + i))));
        assert!(spread.of_mean(1, 0.0).unwrap() < 1e-4);
    }

    #[test]
    fn where_everything_was_counted_nothing_is_left_to_chance_and_one_window_tells_nothing() {
        let mut spread = Spread::default();
        assert_eq!(spread.of_mean(1, 1.0), Some(0.0));
        spread.add(&window(1e5));
        assert_eq!(spread.of_mean(1, 0.5), None);
    }
}
