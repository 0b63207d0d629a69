//! Rounds: what is compared runs one after another in random order, and only runs of the same round
//! are compared, so that a drift of the machine does not touch the ratios.

use anyhow::Result;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::frame::{Frame, Measured};

/// A run that belongs to a round.
pub trait InRound {
    /// What differs within a round.
    type Arm: Copy + PartialEq;
    /// Which round, and which of its runs.
    fn round_and_arm(&self) -> (u32, Self::Arm);
}

/// The runs of `arm`, each with that of `base` in the same round; a round that has not both has
/// none.
pub fn pairs<'a, P, I>(points: I, arm: P::Arm, base: P::Arm) -> impl Iterator<Item = (&'a P, &'a P)>
where
    P: InRound + 'a,
    I: Iterator<Item = &'a P> + Clone,
{
    let of_arm = points.clone().filter(move |p| p.round_and_arm().1 == arm);
    of_arm.filter_map(move |above| {
        let same = (above.round_and_arm().0, base);
        let below = points.clone().find(|p| p.round_and_arm() == same)?;
        Some((above, below))
    })
}

/// A value of `arm` over that of `base`, for each round that has both.
pub fn ratios<P: InRound>(
    points: &[P],
    arm: P::Arm,
    base: P::Arm,
    value: impl Fn(&P) -> f64,
) -> Vec<f64> {
    let ratio = |(above, below)| {
        let base = value(below);
        (base > 0.0).then(|| value(above) / base)
    };
    pairs(points.iter(), arm, base).filter_map(ratio).collect()
}

/// A run to be made.
#[derive(Clone, Copy, Debug)]
pub struct Turn<A> {
    /// Its round, from 0.
    pub round: u32,
    /// Its position in the round, from 0.
    pub position: usize,
    /// What differs within a round.
    pub arm: A,
}

/// Measures every arm in every round, and writes what there is after each.
///
/// # Errors
/// Those of `run`, and those of writing.
pub fn in_random_order<A: Copy, M: Measured>(
    frame: &Frame<'_>,
    rounds: u32,
    arms: &[A],
    measured: &mut M,
    mut run: impl FnMut(&mut M, Turn<A>) -> Result<()>,
) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(rand::rng().random());
    for round in 0..rounds {
        let mut order = arms.to_vec();
        order.shuffle(&mut rng);
        for (position, arm) in order.into_iter().enumerate() {
            let turn = Turn {
                round,
                position,
                arm,
            };
            run(measured, turn)?;
        }
        measured.write(frame, false)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Round, arm, value.
    type Run = (u32, char, f64);

    impl InRound for Run {
        type Arm = char;

        fn round_and_arm(&self) -> (u32, char) {
            (self.0, self.1)
        }
    }

    #[test]
    fn only_runs_of_one_round_are_compared_whatever_their_order() {
        let runs = [
            (0, 'a', 2.0),
            (0, 'b', 3.0),
            (1, 'b', 30.0),
            (1, 'a', 10.0),
            (2, 'b', 7.0),
        ];
        assert_eq!(ratios(&runs, 'b', 'a', |r| r.2), [1.5, 3.0]);
    }

    #[test]
    fn nothing_is_compared_with_zero() {
        let runs = [(0, 'a', 0.0), (0, 'b', 3.0)];
        assert!(ratios(&runs, 'b', 'a', |r| r.2).is_empty());
    }
}
