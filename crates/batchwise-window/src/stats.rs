//! What a set did so far: what it asked the kernel, and how late its wake-ups were.

/// Buckets of a factor of 2.
const PARTS: u32 = 8;
/// Up to 2^32 ns.
const BUCKETS: usize = (32 * PARTS) as usize;

/// Counts of a [`crate::Set`] since it was made.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Questions to the kernel: TCP_INFO and SO_MEMINFO, two system calls each.
    pub asked: u64,
    /// Wake-ups by the agent's programs.
    pub rung: u64,
    /// Those by their lag, in buckets that are an eighth wide.
    lags: Box<[u64]>,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            asked: 0,
            rung: 0,
            lags: vec![0; BUCKETS].into(),
        }
    }
}

impl Stats {
    /// A wake-up that was heard of after so many ns.
    pub(crate) fn heard(&mut self, lag: u64) {
        self.rung += 1;
        let lag = lag.clamp(u64::from(PARTS), u64::from(u32::MAX)) as u32;
        let power = lag.ilog2();
        let part = (lag >> (power - PARTS.ilog2())) & (PARTS - 1);
        self.lags[(power * PARTS + part) as usize] += 1;
    }

    /// From the moment that a program woke the set to the moment that it heard of that, ns: the upper end of
    /// the bucket in which this share of the wake-ups is reached. `None`: there was none.
    pub fn lag(&self, share: f64) -> Option<u64> {
        let wanted = (share * self.rung as f64).ceil().max(1.0) as u64;
        let mut sum = 0;
        let bucket = self.lags.iter().position(|count| {
            sum += count;
            sum >= wanted
        })? as u32;
        let (power, part) = (bucket / PARTS, bucket % PARTS);
        Some(u64::from(PARTS + part + 1) << (power - PARTS.ilog2()))
    }
}

#[cfg(test)]
mod tests {
    use super::Stats;

    #[test]
    fn a_share_of_the_wake_ups_was_heard_in_its_lag_and_an_eighth() {
        let mut stats = Stats::default();
        assert_eq!(stats.lag(0.99), None);
        for lag in 1..=1_000 {
            stats.heard(lag * 1_000);
        }
        for share in [0.01, 0.5, 0.99, 1.0] {
            let (exact, said) = (share * 1e6, stats.lag(share).unwrap() as f64);
            assert!(said >= exact && said <= exact * 1.13, "{share}: {said}");
        }
        stats.heard(0);
        stats.heard(u64::MAX);
        assert_eq!(stats.lag(1.0), Some(1 << 32));
    }
}
