//! Algorithm 2 as the paper publishes it, for comparison: modes of an absolute width, the largest of
//! them taken for the pause between batches. The kernel does not run it.

use alloc::vec::Vec;

use super::{Estimate, Params};

/// The paper's number of modes.
const MODES: usize = 10;

/// The paper's (min, max, count, sum), and how many followed a packet that was not full-sized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaperMode {
    /// Shortest gap, ns.
    pub min: u64,
    /// Longest gap, ns.
    pub max: u64,
    /// Gaps.
    pub count: u32,
    /// Of these, candidates for the inter-batch gap.
    pub marked: u32,
    /// Of the gaps, ns.
    pub sum: u64,
}

/// One flow's open epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paper {
    epsilon: u64,
    start: u64,
    last: u64,
    modes: Vec<PaperMode>,
    discarded: u32,
    resent: u32,
}

impl Paper {
    /// For a flow without a packet: modes at least `epsilon` ns apart.
    pub fn new(epsilon: u64) -> Self {
        Self {
            epsilon,
            ..Self::default()
        }
    }

    /// The modes, ascending.
    pub fn modes(&self) -> &[PaperMode] {
        &self.modes
    }

    /// Begins an epoch.
    pub fn open(&mut self, now: u64) {
        self.start = now;
        self.modes.clear();
        self.discarded = 0;
        self.resent = 0;
    }

    /// Whether the epoch is to be closed before a packet that counts is added to the next one.
    pub fn due(&self, p: &Params, now: u64) -> bool {
        let age = now.saturating_sub(self.start);
        let gaps = self.modes.iter().map(|m| m.marked).sum::<u32>() + self.discarded;
        age >= p.max_ns.max(1) || age >= p.epoch_ns.max(1) && gaps >= p.min_gaps
    }

    /// A packet that counts; `marked`: it does not follow a full-sized one.
    pub fn packet(&mut self, now: u64, marked: bool, resent: bool) {
        let last = self.last;
        self.last = last.max(now);
        match (last, resent) {
            (0, _) => {}
            (_, true) => self.resent = self.resent.saturating_add(1),
            (_, false) => self.update(now.saturating_sub(last), marked),
        }
    }

    /// UPDATEMODES.
    fn update(&mut self, gap: u64, marked: bool) {
        let e = self.epsilon;
        let near = |m: &PaperMode| m.min.saturating_sub(e) <= gap && gap <= m.max.saturating_add(e);
        if let Some(i) = self.modes.iter().position(near) {
            let m = &mut self.modes[i];
            m.count += 1;
            m.marked += u32::from(marked);
            m.sum += gap;
            if gap < m.min {
                m.min = gap;
                if i > 0 {
                    self.consider_merge(i - 1);
                }
            } else if gap > m.max {
                m.max = gap;
                self.consider_merge(i);
            }
        } else if self.modes.len() < MODES {
            let at = self.modes.partition_point(|m| m.max < gap);
            let mode = PaperMode {
                min: gap,
                max: gap,
                count: 1,
                marked: u32::from(marked),
                sum: gap,
            };
            self.modes.insert(at, mode);
        } else {
            self.discarded += 1;
        }
    }

    /// CONSIDERMERGE of a mode and its upper neighbour.
    fn consider_merge(&mut self, i: usize) {
        if i + 1 >= self.modes.len() || self.modes[i + 1].min - self.modes[i].max > self.epsilon {
            return;
        }
        let upper = self.modes.remove(i + 1);
        let m = &mut self.modes[i];
        m.max = upper.max;
        m.count += upper.count;
        m.marked += upper.marked;
        m.sum += upper.sum;
    }

    /// The proportional mode sum (§3.3): the largest mode that is neither a timeout nor idle time,
    /// and that marks allow, is the inter-batch gap.
    pub fn estimate(&self, p: &Params) -> Estimate {
        let denoised = || {
            self.modes
                .iter()
                .filter(|m| m.sum < p.idle_ns * u64::from(m.count))
        };
        let all: u32 = self.modes.iter().map(|m| m.count).sum();
        let idle = all - denoised().map(|m| m.count).sum::<u32>();
        let mut out = Estimate {
            gaps: all + self.discarded + self.resent,
            idle,
            ..Estimate::default()
        };
        let Some(ibg) = denoised().rfind(|m| m.marked > 0) else {
            out.stalled = self.resent + idle > 0;
            return out;
        };
        let sum: u64 = denoised().filter(|m| m.max <= ibg.max).map(|m| m.sum).sum();
        out.latency = Some(sum / u64::from(ibg.count));
        out.ibg = Some(ibg.sum / u64::from(ibg.count));
        out.batches = ibg.count;
        out.confidence = (u64::from(all) * 1000 / u64::from(all + self.discarded)) as u32;
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    fn estimate(gaps_us: impl Iterator<Item = u64>) -> Estimate {
        let mut paper = Paper::new(10 * US);
        let mut now = 1;
        paper.packet(now, true, false);
        for gap in gaps_us {
            now += gap * US;
            paper.packet(now, true, false);
        }
        paper.estimate(&Params::default())
    }

    #[test]
    fn the_papers_own_example_gives_its_result() {
        // 4 x 100 us + 2 x 150 us + 250 us, §3.3
        let burst = [100, 100, 100, 100, 150, 150, 250];
        let e = estimate(burst.into_iter().cycle().take(35));
        assert_eq!((e.latency, e.ibg), (Some(950 * US), Some(250 * US)));
    }

    #[test]
    fn one_outlier_that_becomes_the_largest_mode_ruins_it() {
        let e = estimate(core::iter::repeat_n(1_000, 200).chain([150_000]));
        assert_eq!(e.latency, Some(350_000 * US));
    }
}
