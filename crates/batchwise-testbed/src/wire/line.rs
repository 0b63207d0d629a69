//! What a wire does to the frames of one direction, without sockets or a clock: it loses some,
//! lets some be overtaken, and delays all.

use std::collections::VecDeque;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

/// Frames that may be under way at once; more are lost.
const CAPACITY: usize = 16_384;

/// What happens to frames.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WireSpec {
    /// Share of frames that are lost, 0 to 1.
    pub loss: f64,
    /// Share of frames that are held back so that others overtake them, 0 to 1.
    pub reorder: f64,
    /// Frames that overtake a held one before it goes on.
    pub hold_frames: u64,
    /// How long a held frame waits at most for being overtaken.
    pub hold: Duration,
    /// How long every frame takes.
    pub delay: Duration,
    /// What is added to `delay`, uniformly between nothing and this. It does not reorder.
    pub jitter: Duration,
    /// Of the random numbers: the same frames meet the same fate.
    pub seed: u64,
}

impl WireSpec {
    /// Loses this share of frames.
    pub fn losing(loss: f64) -> Self {
        Self {
            loss,
            ..Self::default()
        }
    }

    /// Lets this share of frames be overtaken by up to three others within 100 µs.
    pub fn reordering(reorder: f64) -> Self {
        Self {
            reorder,
            hold_frames: 3,
            hold: Duration::from_micros(100),
            ..Self::default()
        }
    }

    /// Delays every frame.
    pub fn delaying(delay: Duration, jitter: Duration) -> Self {
        Self {
            delay,
            jitter,
            ..Self::default()
        }
    }
}

/// What a wire did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Frames that came.
    pub arrived: u64,
    /// Frames that were lost on purpose.
    pub lost: u64,
    /// Frames that were held back.
    pub held: u64,
    /// Of these: frames that another one overtook.
    pub reordered: u64,
    /// Frames that went on.
    pub passed: u64,
    /// Frames that were lost because there was no room: the wire could not keep up.
    pub overflowed: u64,
}

impl Counts {
    /// What was done since an earlier moment.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            arrived: self.arrived - before.arrived,
            lost: self.lost - before.lost,
            held: self.held - before.held,
            reordered: self.reordered - before.reordered,
            passed: self.passed - before.passed,
            overflowed: self.overflowed - before.overflowed,
        }
    }
}

/// One direction of a wire.
#[derive(Debug)]
pub struct Line {
    spec: WireSpec,
    rng: StdRng,
    held: Vec<Held>,
    /// In the order in which they go on.
    moving: VecDeque<(u64, Vec<u8>)>,
    counts: Counts,
}

#[derive(Debug)]
struct Held {
    frame: Vec<u8>,
    /// Overtaken so far.
    overtaken: u64,
    /// Goes on then, ns.
    latest: u64,
}

impl Line {
    /// With nothing on it.
    pub fn new(spec: &WireSpec) -> Self {
        Self {
            spec: spec.clone(),
            rng: StdRng::seed_from_u64(spec.seed),
            held: Vec::new(),
            moving: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Changes what happens to frames that come from now on.
    pub fn set(&mut self, spec: &WireSpec) {
        self.rng = StdRng::seed_from_u64(spec.seed);
        self.spec = spec.clone();
    }

    /// What it did so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// A frame comes at `now` (ns).
    pub fn arrive(&mut self, now: u64, frame: Vec<u8>) {
        self.counts.arrived += 1;
        // Three numbers a frame whatever is done with them, so that arms that share a seed differ
        // in nothing but what they are meant to.
        let [lose, hold, jitter] = [(); 3].map(|()| self.rng.random::<f64>());
        if lose < self.spec.loss {
            self.counts.lost += 1;
        } else if self.moving.len() + self.held.len() >= CAPACITY {
            self.counts.overflowed += 1;
        } else if hold < self.spec.reorder {
            self.counts.held += 1;
            let latest = now + nanos(self.spec.hold);
            self.held.push(Held {
                frame,
                overtaken: 0,
                latest,
            });
        } else {
            self.go_on(now, jitter, frame);
            for held in &mut self.held {
                held.overtaken += 1;
            }
            self.let_go(now);
        }
    }

    /// A frame that leaves the wire at `now` (ns).
    pub fn leave(&mut self, now: u64) -> Option<Vec<u8>> {
        self.let_go(now);
        if self.moving.front()?.0 > now {
            return None;
        }
        self.counts.passed += 1;
        self.moving.pop_front().map(|(_, frame)| frame)
    }

    /// When something happens next, ns.
    pub fn next(&self) -> Option<u64> {
        let held = self.held.iter().map(|held| held.latest).min();
        let moving = self.moving.front().map(|(due, _)| *due);
        held.into_iter().chain(moving).min()
    }

    fn let_go(&mut self, now: u64) {
        let frames = self.spec.hold_frames;
        let over = |held: &mut Held| held.overtaken >= frames || held.latest <= now;
        let over: Vec<_> = self.held.extract_if(.., over).collect();
        for held in over {
            self.counts.reordered += u64::from(held.overtaken > 0);
            self.go_on(now.min(held.latest), 0.0, held.frame);
        }
    }

    fn go_on(&mut self, now: u64, jitter: f64, frame: Vec<u8>) {
        let jitter = (nanos(self.spec.jitter) as f64 * jitter) as u64;
        let due = now + nanos(self.spec.delay) + jitter;
        let before = self.moving.back().map_or(0, |(due, _)| *due);
        self.moving.push_back((due.max(before), frame));
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frame `i` comes at `i * gap` ns; what left, and when.
    fn carry(line: &mut Line, frames: u32, gap: u64) -> Vec<(u64, u32)> {
        let mut left = Vec::new();
        let mut take = |line: &mut Line, now| {
            while let Some(frame) = line.leave(now) {
                left.push((now, u32::from_le_bytes(frame.try_into().unwrap())));
            }
        };
        for i in 0..frames {
            let now = u64::from(i) * gap;
            while let Some(due) = line.next().filter(|due| *due < now) {
                take(line, due);
            }
            line.arrive(now, i.to_le_bytes().to_vec());
            take(line, now);
        }
        while let Some(due) = line.next() {
            take(line, due);
        }
        left
    }

    #[test]
    fn a_wire_that_is_asked_for_nothing_passes_everything_at_once() {
        let mut line = Line::new(&WireSpec::default());
        let left = carry(&mut line, 100, 10);
        assert!(
            left.iter()
                .zip(0..)
                .all(|(&seen, i)| seen == (u64::from(i) * 10, i))
        );
        assert_eq!((left.len(), line.counts().passed), (100, 100));
    }

    #[test]
    fn the_share_that_is_lost_is_the_one_asked_for_and_is_counted() {
        let mut line = Line::new(&WireSpec::losing(0.01));
        let left = carry(&mut line, 100_000, 10);
        let counts = line.counts();
        assert!((800..1200).contains(&counts.lost), "{counts:?}");
        assert_eq!(left.len() as u64, counts.arrived - counts.lost);
    }

    #[test]
    fn the_same_seed_loses_the_same_frames() {
        let spec = WireSpec {
            seed: 7,
            ..WireSpec::losing(0.1)
        };
        let once = carry(&mut Line::new(&spec), 1000, 10);
        assert_eq!(once, carry(&mut Line::new(&spec), 1000, 10));
        let other = WireSpec { seed: 8, ..spec };
        assert_ne!(once, carry(&mut Line::new(&other), 1000, 10));
    }

    #[test]
    fn reordered_frames_all_arrive_and_are_overtaken_by_as_many_as_asked() {
        let mut line = Line::new(&WireSpec::reordering(0.25));
        let left = carry(&mut line, 10_000, 1000);
        assert_eq!(left.len(), 10_000);
        let counts = line.counts();
        assert!((2200..2800).contains(&counts.held), "{counts:?}");
        assert!(counts.reordered > counts.held * 9 / 10, "{counts:?}");
        let late = |(at, &(_, i)): (usize, &(u64, u32))| at as i64 - i64::from(i);
        let displaced = left.iter().enumerate().map(late).max().unwrap();
        assert!((1..=12).contains(&displaced), "{displaced}");
    }

    #[test]
    fn a_held_frame_that_nobody_follows_goes_on_after_the_hold_time() {
        let mut line = Line::new(&WireSpec::reordering(1.0));
        assert_eq!(carry(&mut line, 1, 0), [(100_000, 0)]);
        assert_eq!((line.counts().held, line.counts().reordered), (1, 0));
    }

    #[test]
    fn delay_and_jitter_keep_the_order() {
        let (delay, jitter) = (Duration::from_millis(20), Duration::from_millis(2));
        let mut line = Line::new(&WireSpec::delaying(delay, jitter));
        let left = carry(&mut line, 1000, 10_000);
        assert!(left.is_sorted());
        for (at, i) in left {
            let took = at - u64::from(i) * 10_000;
            assert!((20_000_000..=22_000_000).contains(&took), "{took} ns");
        }
    }

    #[test]
    fn a_full_wire_says_how_much_it_lost() {
        let mut line = Line::new(&WireSpec::delaying(Duration::from_secs(1), Duration::ZERO));
        let left = carry(&mut line, 20_000, 1);
        assert_eq!(left.len(), CAPACITY);
        assert_eq!(line.counts().overflowed, 20_000 - CAPACITY as u64);
    }
}
