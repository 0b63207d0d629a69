//! Latencies in exponential buckets, as native histograms of Prometheus have them.

use alloc::collections::BTreeMap;

use super::tails::Histogram;

/// As Prometheus counts resolutions: 2 to the power of this buckets to the octave, each 4.4 % wide.
pub const SCHEMA: i32 = 4;
const TO_THE_OCTAVE: f64 = (1 << SCHEMA) as f64;

/// The number of the bucket that holds this time, s.
fn number(time: f64) -> i32 {
    libm::ceil(libm::log2(time) * TO_THE_OCTAVE) as i32
}

/// Where a bucket ends, s; buckets hold their ends.
fn end(number: f64) -> f64 {
    libm::exp2(number / TO_THE_OCTAVE)
}

/// The middle of a bucket, s.
pub fn middle(number: i32) -> f64 {
    end(f64::from(number) - 0.5)
}

impl Histogram {
    /// How many were over, by the number of their exponential bucket. What lies across a bucket's end is
    /// split there in proportion, as if it were spread evenly. Where requests are added, no bucket falls.
    pub fn exponential(&self) -> BTreeMap<i32, u64> {
        let mut buckets = BTreeMap::new();
        for (i, &over) in self.over.iter().enumerate().filter(|(_, over)| **over > 0) {
            // nothing takes no time at all
            let [from, to] = self.edges(i).map(|ns| ns.max(1) as f64 / 1e9);
            let (first, last) = (number(from), number(to));
            let below = match first == last {
                true => over,
                false => (over as f64 * (end(f64::from(first)) - from) / (to - from)) as u64,
            };
            for (number, count) in [(first, below), (last, over - below)] {
                if count > 0 {
                    *buckets.entry(number).or_default() += count;
                }
            }
        }
        buckets
    }
}

#[cfg(test)]
mod tests {
    use super::super::tails::samples::of;
    use super::*;
    use proptest::prelude::*;

    /// As Prometheus computes it: evenly inside a bucket, ns.
    fn quantile(buckets: &BTreeMap<i32, u64>, share: f64) -> f64 {
        let rank = share * buckets.values().sum::<u64>() as f64;
        let mut before = 0.0;
        for (&number, &count) in buckets {
            let count = count as f64;
            if before + count >= rank {
                let number = f64::from(number);
                let (from, to) = (end(number - 1.0), end(number));
                return (from + (to - from) * (rank - before) / count) * 1e9;
            }
            before += count;
        }
        unreachable!("the last bucket has the last request")
    }

    #[test]
    fn a_bucket_holds_its_end_and_powers_of_two_are_ends() {
        assert_eq!([number(1.0), number(1.0001), number(0.999)], [0, 1, 0]);
        assert_eq!([number(0.25), number(0.26), number(2.0)], [-32, -31, 16]);
        assert!(end(1.0) / end(0.0) < 1.06);
    }

    #[test]
    fn what_lies_across_an_end_is_split_there() {
        // 2^-10 s is at 60 % of a bucket of 967 to 983 µs
        let h = of(&[980_000; 1_000], &[]);
        let split = [(-160, 604), (-159, 396)];
        assert_eq!(h.exponential(), split.into());
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_histogram_within_the_width_of_a_bucket(
            over in proptest::collection::vec(1_000u64..1 << 36, 1..300),
            share in 0.01f64..1.0,
        ) {
            let h = of(&over, &[]);
            let ours = h.quantile(share).unwrap() as f64;
            let native = quantile(&h.exponential(), share);
            // a request that is split off may be one bucket of either kind away
            let width = end(1.0) * 33.0 / 32.0 + 1e-3;
            prop_assert!((1.0 / width..width).contains(&(native / ours)), "{native} {ours}");
        }

        #[test]
        fn no_request_is_lost_and_no_bucket_falls_when_some_are_added(
            first in proptest::collection::vec(0u64..1 << 36, 0..100),
            more in proptest::collection::vec(0u64..1 << 36, 0..100),
        ) {
            let mut h = of(&first, &[]);
            let before = h.exponential();
            h.add(&of(&more, &[]));
            let after = h.exponential();
            prop_assert_eq!(after.values().sum::<u64>(), h.requests());
            for (number, count) in before {
                prop_assert!(after[&number] >= count);
            }
        }
    }
}
