//! Percentiles of latencies, from histograms in which requests that were not over yet when counting
//! stopped count as that: "at least so long" (Kaplan and Meier's estimator).

use alloc::vec::Vec;

use super::report::Tails;

/// Buckets to the octave: each is at most 1/32 wide.
const SUB: u32 = 5;

/// The bucket of all that take too long for another one.
const LONGEST: usize = 28 << SUB;

/// Latencies of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Those that were over, by bucket; the buckets begin at [`edge`].
    pub over: Vec<u64>,
    /// Those that had lasted so long and went on.
    pub unfinished: Vec<u64>,
    /// Sum over those that were over, ns.
    pub sum: u64,
    /// A bucket's number stands for latencies in units of 2 to the power of this, ns.
    pub shift: u32,
}

/// Latencies of a service's requests, by what is taken for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Turns.
    pub turns: Histogram,
    /// Messages, each with the response that it is taken to have, first in, first out.
    pub matched: Histogram,
}

impl Latencies {
    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.turns.add(&other.turns);
        self.matched.add(&other.matched);
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        let empty = |h: &Histogram| h.over.iter().chain(&h.unfinished).all(|n| *n == 0);
        empty(&self.turns) && empty(&self.matched)
    }

    /// What was added since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            turns: self.turns.since(&earlier.turns),
            matched: self.matched.since(&earlier.matched),
        }
    }
}

/// The bucket of a latency in units: `sense_hist_bucket` of lib/asks.h.
fn bucket(units: u64) -> usize {
    let shift = (64 - units.leading_zeros()).saturating_sub(SUB + 1);
    LONGEST.min(((shift << SUB) as usize) + (units >> shift) as usize)
}

/// Where the bucket begins, in units.
fn edge(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket >> SUB).saturating_sub(1);
    (bucket - (shift << SUB)) << shift
}

impl Histogram {
    /// How many were over.
    pub fn requests(&self) -> u64 {
        self.over.iter().sum()
    }

    /// Their mean, ns.
    pub fn mean(&self) -> Option<f64> {
        let requests = self.requests();
        (requests > 0).then(|| self.sum as f64 / requests as f64 * self.stretch())
    }

    /// By how much the mean of all is larger than of those that were over, as the long ones are cut off more often:
    /// up to the longest that was seen, the area below the share of those that last longer.
    pub fn stretch(&self) -> f64 {
        if self.unfinished.iter().all(|count| *count == 0) {
            return 1.0;
        }
        let (mut longer, mut area, mut over) = (1.0, 0.0, 0.0);
        let longest = self.over.len().max(self.unfinished.len());
        let last = (0..longest).rposition(|i| self.ended(i) > 0);
        let mut at_risk: u64 = (0..longest).map(|i| self.ended(i)).sum();
        let mut since = 0.0;
        for i in 0..last.map_or(0, |last| last + 1) {
            let ended = self.over.get(i).copied().unwrap_or(0);
            if self.ended(i) == 0 {
                continue;
            }
            let middle = (edge(i) + edge(i + 1)) as f64 / 2.0;
            area += longer * (middle - since);
            since = middle;
            longer *= 1.0 - ended as f64 / at_risk as f64;
            over += middle * ended as f64;
            at_risk -= self.ended(i);
        }
        match over > 0.0 {
            true => area / (over / self.requests() as f64),
            false => 1.0,
        }
    }

    /// How many were over or cut off in a bucket.
    fn ended(&self, bucket: usize) -> u64 {
        let of = |counts: &[u64]| counts.get(bucket).copied().unwrap_or(0);
        of(&self.over) + of(&self.unfinished)
    }

    /// For a share of the requests it was counted; in addition, so many are known to be under way, for so long, ns.
    pub fn with_hanging(&self, share: f64, hanging: &[(u64, u32)]) -> Self {
        let mut all = self.clone();
        for count in all.over.iter_mut().chain(&mut all.unfinished) {
            *count = (*count as f64 / share) as u64;
        }
        for (age, requests) in hanging {
            let bucket = bucket(age >> self.shift);
            if all.unfinished.len() <= bucket {
                all.unfinished.resize(bucket + 1, 0);
            }
            all.unfinished[bucket] += u64::from(*requests);
        }
        all
    }

    /// Latencies, ns, and how many of those that were over lasted about so long.
    pub fn over(&self) -> impl Iterator<Item = (u64, u64)> {
        let middle = |bucket| ((edge(bucket) + edge(bucket + 1)) << self.shift) / 2;
        self.over
            .iter()
            .enumerate()
            .map(move |(bucket, &over)| (middle(bucket), over))
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        self.shift = other.shift;
        self.sum += other.sum;
        for (ours, theirs) in [
            (&mut self.over, &other.over),
            (&mut self.unfinished, &other.unfinished),
        ] {
            if ours.len() < theirs.len() {
                ours.resize(theirs.len(), 0);
            }
            for (a, b) in ours.iter_mut().zip(theirs) {
                *a += b;
            }
        }
    }

    /// What was added since `earlier`. Each CPU counts in 32 bits, which wrap, and so does the sum of all.
    pub fn since(&self, earlier: &Self) -> Self {
        let new = |now: &[u64], then: &[u64]| {
            let then = then.iter().copied().chain(core::iter::repeat(0));
            let pairs = now.iter().zip(then);
            let new = pairs.map(|(now, then)| u64::from((*now as u32).wrapping_sub(then as u32)));
            new.collect()
        };
        Self {
            over: new(&self.over, &earlier.over),
            unfinished: new(&self.unfinished, &earlier.unfinished),
            sum: self.sum.wrapping_sub(earlier.sum),
            shift: self.shift,
        }
    }

    /// The latency, ns, that this share of the requests stays below. `None` where too many of them were
    /// not over to tell, or took longer than buckets go, or there were none.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let unfinished = |i: usize| self.unfinished.get(i).copied().unwrap_or(0);
        let mut at_risk = self.requests() + self.unfinished.iter().sum::<u64>();
        let mut longer = 1.0;
        for (i, &over) in self.over.iter().enumerate() {
            if over > 0 {
                let before = longer;
                longer *= 1.0 - over as f64 / at_risk as f64;
                if longer <= 1.0 - share {
                    if i >= LONGEST {
                        return None;
                    }
                    // evenly inside the bucket
                    let part = (before - (1.0 - share)) / (before - longer);
                    let (from, to) = (edge(i) as f64, edge(i + 1) as f64);
                    let units = from + (to - from) * part;
                    return Some((units * (1u64 << self.shift) as f64) as u64);
                }
            }
            at_risk -= over + unfinished(i);
        }
        None
    }

    /// The percentiles that are reported; `beside` is what a request takes elsewhere, ns.
    pub fn tails(&self, beside: u64) -> Tails {
        let at = |share| self.quantile(share).map(|ns| ns + beside);
        Tails {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
        }
    }
}

/// Histograms for tests.
#[cfg(test)]
pub(super) mod samples {
    use super::Histogram;

    pub const SHIFT: u32 = 5;

    pub fn bucket(ns: u64) -> usize {
        super::bucket(ns >> SHIFT)
    }

    pub fn of(over: &[u64], unfinished: &[u64]) -> Histogram {
        let count = |all: &[u64]| {
            let mut counts = alloc::vec![0; super::LONGEST + 1];
            all.iter().for_each(|&ns| counts[bucket(ns)] += 1);
            counts
        };
        Histogram {
            over: count(over),
            unfinished: count(unfinished),
            sum: over.iter().sum(),
            shift: SHIFT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{SHIFT, bucket, of};
    use super::*;
    use proptest::prelude::*;

    fn near(found: Option<u64>, ns: u64) -> bool {
        found.is_some_and(|f| (f as f64 / ns as f64 - 1.0).abs() < 0.035)
    }

    #[test]
    fn edges_are_where_buckets_begin_and_all_are_narrow() {
        for i in 0..895 {
            let (from, to) = (edge(i), edge(i + 1));
            assert!(to > from);
            assert_eq!(bucket(from << SHIFT), i);
            assert_eq!(bucket((to << SHIFT) - 1), i);
            assert!(
                i < 64 || (to - from) as f64 / from as f64 <= 1.0 / 32.0,
                "{i}"
            );
        }
    }

    #[test]
    fn each_request_is_told_near_its_latency() {
        let h = of(&[3_000, 5_000_000, 5_000_000], &[9_000_000]);
        let told: Vec<_> = h.over().filter(|(_, over)| *over > 0).collect();
        let [(short, 1), (long, 2)] = told[..] else {
            panic!("{told:?}")
        };
        assert!(near(Some(short), 3_000) && near(Some(long), 5_000_000));
    }

    #[test]
    fn percentiles_are_those_of_the_requests() {
        let all: Vec<u64> = (1..=10_000).map(|i| i * 1_000).collect();
        let h = of(&all, &[]);
        for (share, ns) in [(0.5, 5_000_000), (0.9, 9_000_000), (0.99, 9_900_000)] {
            assert!(
                near(h.quantile(share), ns),
                "{share}: {:?}",
                h.quantile(share)
            );
        }
        assert_eq!(of(&[], &[5_000]).quantile(0.5), None);
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn requests_that_were_not_over_raise_the_tail_instead_of_vanishing() {
        // 5 of 100 were under way for longer than any that was over
        let h = of(&[100_000; 95], &[200_000; 5]);
        assert!(near(h.quantile(0.9), 100_000));
        assert_eq!(
            h.quantile(0.99),
            None,
            "at least 200 µs, nobody knows how long"
        );
    }

    #[test]
    fn requests_under_way_weigh_as_many_as_they_are_though_few_of_the_others_were_counted() {
        // one in ten of 1,000 requests was counted; 100 hang
        let h =
            of(&[100_000; 100], &[]).with_hanging(0.1, &[(5_000_000_000, 60), (9_000_000_000, 40)]);
        assert_eq!(h.requests(), 1_000);
        assert!(near(h.quantile(0.9), 100_000), "{:?}", h.quantile(0.9));
        assert_eq!(h.quantile(0.95), None);
    }

    #[test]
    fn what_is_counted_while_a_counter_wraps_is_not_lost() {
        // two CPUs' counters, the first of which wraps
        let count = |cpus: [u32; 2]| Histogram {
            over: alloc::vec![cpus.into_iter().map(u64::from).sum()],
            ..Histogram::default()
        };
        let (before, now) = (count([u32::MAX - 1, 5]), count([3, 7]));
        assert_eq!(now.since(&before).over, [7]);
    }

    #[test]
    fn what_takes_longer_than_buckets_go_is_not_told_as_shorter() {
        let second = 1_000_000_000;
        let h = of(&[second, second, 140 * second, 1_000 * second], &[]);
        assert!(near(h.quantile(0.5), second));
        assert_eq!(h.quantile(0.75), None);
        assert_eq!(h.mean(), Some(285.5 * second as f64));
    }

    #[test]
    fn a_window_that_cuts_requests_off_leaves_the_distribution_as_it_is() {
        // latencies of 1 to 100 µs, observed until a random time: the longer, the more often cut off
        let (mut over, mut cut) = (Vec::new(), Vec::new());
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 33
        };
        for _ in 0..200_000 {
            let (latency, until) = (1_000 + random() % 99_000, random() % 150_000);
            match latency <= until {
                true => over.push(latency),
                false => cut.push(until),
            }
        }
        let h = of(&over, &cut);
        assert!(near(h.quantile(0.5), 50_500), "{:?}", h.quantile(0.5));
        assert!(near(h.quantile(0.99), 99_000), "{:?}", h.quantile(0.99));
        let naive = of(&over, &[]);
        assert!(naive.quantile(0.5).unwrap() < 45_000);
        let means = [h.mean().unwrap(), naive.mean().unwrap()];
        assert!(
            (means[0] / 50_500.0 - 1.0).abs() < 0.02 && means[1] < 45_000.0,
            "{means:?}"
        );
    }

    proptest! {
        #[test]
        fn quantiles_grow_with_their_share(
            over in proptest::collection::vec(32u64..1 << 36, 1..200),
            unfinished in proptest::collection::vec(32u64..1 << 36, 0..50),
        ) {
            let h = of(&over, &unfinished);
            let mut last = 0;
            for share in [0.01, 0.5, 0.9, 0.99, 0.999] {
                if let Some(q) = h.quantile(share) {
                    prop_assert!(q >= last);
                    last = q;
                }
            }
        }

        #[test]
        fn adding_is_counting_together(
            a in proptest::collection::vec(32u64..1 << 36, 0..50),
            b in proptest::collection::vec(32u64..1 << 36, 0..50),
        ) {
            let mut sum = of(&a, &b);
            sum.add(&of(&b, &a));
            let all: Vec<u64> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(sum, of(&all, &all));
        }
    }
}
