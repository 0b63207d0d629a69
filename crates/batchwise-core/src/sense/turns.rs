//! Turns: one end asks, the other answers, with however many writes. What was counted of them, and whether a
//! connection takes turns at all.

use crate::sense::queue::Window;

/// What `lib/turns.h` counts in units of this, ns.
const WEIGHT: f64 = 1024.0;
/// A connection on which more turns than this are crossed carries several requests at once.
const MOST_CROSSED: f64 = 0.05;
/// Answers that nothing asked for: more than this, and which request an answer is for is not known.
const MOST_STRAY: f64 = 0.05;
/// So much shorter the mean by bytes may be than that by turns, …
const MOST_SHORTER: f64 = 0.15;
/// … where more turns than this are tiny, and not nearly all.
const TINY: f64 = 0.05;

/// Turns: a connection's counters, or what was added to them in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// How long those that are over took, all together, ns.
    pub took: u64,
    /// Bytes that asked, in those.
    pub bytes: u64,
    /// How long each of these took, added up, in units of 1,024 ns.
    pub weighted: u64,
    /// How many began.
    pub begun: u32,
    /// How many were over.
    pub over: u32,
    /// Of them, those in which both ends had bytes on the way at once.
    pub crossed: u32,
    /// Of them, those that ask no more than what transports say of themselves.
    pub tiny: u32,
    /// Answers to nothing that was taken to be under way.
    pub strays: u32,
}

/// What an interval's requests are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Each turn is one.
    Turns,
    /// Several are under way at once, and are answered in order.
    Pipelined,
    /// Which answer belongs to which cannot be told.
    Unknown(Why),
}

/// Why a latency is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Several requests are under way on a connection at once.
    SeveralAtOnce,
    /// The shortest messages take longest: some of the turns may be a transport's own.
    TinyTakeLongest,
    /// So many requests are under way that percentiles cannot be told.
    Unanswered,
    /// Bytes passed, but what was counted holds no request's beginning and end.
    InPart,
}

impl Turns {
    /// What was added since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            took: self.took.wrapping_sub(earlier.took),
            bytes: self.bytes.wrapping_sub(earlier.bytes),
            weighted: self.weighted.wrapping_sub(earlier.weighted),
            begun: self.begun.wrapping_sub(earlier.begun),
            over: self.over.wrapping_sub(earlier.over),
            crossed: self.crossed.wrapping_sub(earlier.crossed),
            tiny: self.tiny.wrapping_sub(earlier.tiny),
            strays: self.strays.wrapping_sub(earlier.strays),
        }
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.took += other.took;
        self.bytes += other.bytes;
        self.weighted += other.weighted;
        self.begun += other.begun;
        self.over += other.over;
        self.crossed += other.crossed;
        self.tiny += other.tiny;
        self.strays += other.strays;
    }

    /// Mean of a turn, ns.
    pub fn mean(&self) -> Option<f64> {
        (self.over > 0).then(|| self.took as f64 / f64::from(self.over))
    }

    /// Mean by Little's law over the bytes that asked, ns: each byte weighs alike, so that what a transport says of
    /// itself weighs little.
    fn mean_of_bytes(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.weighted as f64 * WEIGHT / self.bytes as f64)
    }

    /// What the requests are; `answers` is this end's queue that answers enter.
    pub fn requests(&self, answers: &Window) -> Requests {
        let share = |part: u32, of: f64| f64::from(part) / of.max(1.0);
        if share(self.crossed, f64::from(self.over)) > MOST_CROSSED {
            return match share(self.strays, answers.total as f64) > MOST_STRAY {
                true => Requests::Unknown(Why::SeveralAtOnce),
                false => Requests::Pipelined,
            };
        }
        let tiny = share(self.tiny, f64::from(self.over));
        let shorter = self.mean_of_bytes().zip(self.mean());
        let shorter = shorter.is_some_and(|(byte, turn)| byte < (1.0 - MOST_SHORTER) * turn);
        match shorter && (TINY..1.0 - TINY).contains(&tiny) {
            true => Requests::Unknown(Why::TinyTakeLongest),
            false => Requests::Turns,
        }
    }
}

impl Why {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::SeveralAtOnce => "several requests at once",
            Self::TinyTakeLongest => "the shortest messages take longest",
            Self::Unanswered => "requests are not answered",
            Self::InPart => "no request was seen whole",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many turns of so many bytes that took so many ns each.
    fn turns(over: u32, bytes: u64, ns: u64) -> Turns {
        Turns {
            took: u64::from(over) * ns,
            bytes: u64::from(over) * bytes,
            weighted: u64::from(over) * bytes * (ns / 1024),
            begun: over,
            over,
            tiny: if bytes <= 64 { over } else { 0 },
            ..Turns::default()
        }
    }

    fn both(mut a: Turns, b: Turns) -> Turns {
        a.add(&b);
        a
    }

    fn answers(total: u64) -> Window {
        Window {
            total,
            ..Window::default()
        }
    }

    #[test]
    fn where_ends_take_turns_each_is_a_request() {
        // SETs of 16 KiB among GETs, and uploads among slow queries
        for all in [
            turns(100, 50, 1_000_000),
            both(turns(50, 36, 40_000), turns(50, 16_400, 80_000)),
            both(turns(50, 200, 900_000), turns(50, 9_000, 100_000)),
        ] {
            assert_eq!(all.requests(&answers(100)), Requests::Turns, "{all:?}");
        }
        let mean = both(turns(50, 36, 40_000), turns(50, 16_400, 80_000)).mean();
        assert_eq!(mean, Some(60_000.0));
    }

    #[test]
    fn where_they_cross_order_decides_whether_requests_can_be_told() {
        let crossed = |strays| Turns {
            crossed: 20,
            strays,
            ..turns(100, 50, 1_000_000)
        };
        assert_eq!(crossed(0).requests(&answers(200)), Requests::Pipelined);
        let unknown = Requests::Unknown(Why::SeveralAtOnce);
        assert_eq!(crossed(60).requests(&answers(200)), unknown);
    }

    #[test]
    fn calls_that_a_transport_splits_by_its_pings_are_not_told() {
        let split = both(turns(100, 67, 100_000), turns(100, 17, 2_200_000));
        let unknown = Requests::Unknown(Why::TinyTakeLongest);
        assert_eq!(split.requests(&answers(200)), unknown);
    }
}
