//! Arms that can be switched within one continuous run: slices of a fraction of a second in random
//! order, of which neighbours are compared. What drifts slower than a slice cancels.

use std::time::{Duration, Instant};

use anyhow::Result;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use batchwise_testbed::stop::Stop;

#[derive(Clone, Copy, Debug)]
pub struct Slices {
    /// What is left out at the begin of a slice: the switch itself disturbed it.
    pub settle: Duration,
    /// What is measured of a slice.
    pub length: Duration,
}

pub const USUAL: Slices = Slices {
    settle: Duration::from_millis(25),
    length: Duration::from_millis(150),
};

/// A slice, with what was read at its ends.
#[derive(Clone, Debug)]
pub struct Slice<A, S> {
    /// Slices of one block are compared.
    pub block: u32,
    pub position: usize,
    pub arm: A,
    /// Read at the begin, after the settling.
    pub before: S,
    /// Read at the end.
    pub after: S,
}

impl Slices {
    /// Runs `blocks` blocks, each of one slice of every arm in random order. `switch` puts an arm in
    /// force and returns once it is; `read` reads the counters without disturbing what is measured.
    pub fn run<A: Copy, S>(
        &self,
        stop: &Stop,
        (first_block, blocks): (u32, u32),
        arms: &[A],
        mut switch: impl FnMut(A) -> Result<()>,
        mut read: impl FnMut() -> Result<S>,
    ) -> Result<Vec<Slice<A, S>>> {
        let mut rng = StdRng::seed_from_u64(rand::rng().random());
        let mut slices = Vec::new();
        for block in first_block..first_block + blocks {
            let mut order = arms.to_vec();
            order.shuffle(&mut rng);
            for (position, arm) in order.into_iter().enumerate() {
                stop.check()?;
                switch(arm)?;
                std::thread::sleep(self.settle);
                let begin = Instant::now();
                let before = read()?;
                std::thread::sleep(self.length.saturating_sub(begin.elapsed()));
                let after = read()?;
                slices.push(Slice {
                    block,
                    position,
                    arm,
                    before,
                    after,
                });
            }
        }
        Ok(slices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_every_arm_once_and_reads_while_it_is_in_force() {
        let slices = Slices {
            settle: Duration::ZERO,
            length: Duration::from_micros(100),
        };
        let in_force = std::cell::Cell::new('-');
        let switch = |arm| {
            in_force.set(arm);
            Ok(())
        };
        let read = || Ok(in_force.get());
        let stop = Stop::default();
        let found = slices.run(&stop, (5, 8), &['a', 'b', 'c'], switch, read);
        let found = found.unwrap();
        assert_eq!(found.len(), 24);
        for block in found.chunks(3) {
            let mut arms: Vec<_> = block.iter().map(|slice| slice.arm).collect();
            arms.sort_unstable();
            assert_eq!(arms, ['a', 'b', 'c']);
        }
        assert!(found.iter().all(|s| (s.before, s.after) == (s.arm, s.arm)));
        assert_eq!((found[0].block, found[23].block), (5, 12));
    }
}
