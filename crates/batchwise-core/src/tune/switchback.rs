//! A switchback test: slices of both settings, two by two in random order. What drifts slower than a
//! slice (the machine's speed, the load) meets both neighbours alike; what hits one slice (a stall)
//! spoils one pair. So it counts who was better in each pair, and of throughput the median over pairs, and
//! a sequential test in the manner of Wald's says when that is enough.

use alloc::vec::Vec;

use super::{Arm, Params, Policy, Room, Slice};

/// So many pairs decide where all of them favour one setting plainly.
pub(super) const PLAIN_PAIRS: u32 = 3;

/// What is under way, in the mean over the parts that a test's slices are looked at in. A slice is cut
/// short when much more is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usual {
    sum: f64,
    parts: f64,
}

impl Usual {
    /// A slice is looked at so often while it goes on, …
    pub const PARTS: u32 = 4;
    /// … and ends when this many times as much as usual is under way. …
    const TOO_MUCH: f64 = 3.0;
    /// … Fewer bytes are no backlog.
    const NO_BACKLOG: f64 = 16_384.0;

    /// Takes in how many bytes are under way at the end of a part.
    pub fn is_exceeded_by(&mut self, bytes: f64) -> bool {
        let mean = self.sum / self.parts.max(1.0);
        self.sum += bytes;
        self.parts += 1.0;
        self.parts > f64::from(Self::PARTS) && bytes > (Self::TOO_MUCH * mean).max(Self::NO_BACKLOG)
    }
}

/// How a setting served in a test: medians over its slices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Served {
    /// Mean latency, ns.
    pub latency: f64,
    /// Messages a second.
    pub messages: f64,
    /// Bytes a second, in both directions.
    pub bytes: f64,
    /// Acknowledgments without data that this end sends for a message.
    pub acks: f64,
}

/// What a test found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The setting that the applications had asked for.
    pub own: Arm,
    /// Whether the other one is better; `None`: undecided.
    pub better: Option<bool>,
    /// Pairs that were compared, …
    pub pairs: u32,
    /// … those of them that the other setting won, …
    pub wins: u32,
    /// … and lost, by the margin.
    pub losses: u32,
    /// How many times better the other setting was, in the test's terms: median over pairs.
    pub gain: f64,
    /// How the own setting served, and the other.
    pub served: [Served; 2],
    /// What that says of what more would be carried. `None`: no process of the applications could be seen
    /// to take CPU time.
    pub room: Option<Room>,
    /// How long it took, ns.
    pub time: f64,
}

impl Outcome {
    /// How a setting served.
    pub fn of(&self, arm: Arm) -> &Served {
        &self.served[usize::from(arm != self.own)]
    }

    /// The share of the pairs that count and say what the test says.
    pub fn confidence(&self) -> f64 {
        let most = match self.better {
            Some(true) => self.wins,
            Some(false) => self.losses,
            None => return 0.0,
        };
        f64::from(most) / f64::from((self.wins + self.losses).max(1))
    }
}

/// A test that goes on.
#[derive(Clone, Debug)]
pub struct Switchback {
    policy: Policy,
    params: Params,
    own: Arm,
    in_force: Arm,
    random: u64,
    /// The pair that goes on begins with the own setting.
    own_first: bool,
    /// Its first slice, once that is over.
    first: Option<Slice>,
    /// Slices of each pair: own setting, other one.
    pairs: Vec<[Slice; 2]>,
    /// Time that slices took, all in all, ns.
    time: f64,
    /// It is over after so long, ns.
    limit: f64,
}

impl Switchback {
    /// The other setting against `own`, the applications', while `in_force` is. `seed` makes the order.
    pub fn new(policy: Policy, params: Params, own: Arm, in_force: Arm, seed: u64) -> Self {
        let mut test = Self {
            policy,
            params,
            own,
            in_force,
            random: seed,
            own_first: false,
            first: None,
            pairs: Vec::new(),
            time: 0.0,
            limit: f64::INFINITY,
        };
        test.own_first = test.coin();
        test
    }

    /// Over after so long at the latest, ns.
    pub fn within(mut self, limit: u64) -> Self {
        self.limit = limit as f64;
        self
    }

    /// The setting of the next slice; `None`: the test is over.
    pub fn next(&self) -> Option<Arm> {
        if self.first.is_none() && self.is_over() {
            return None;
        }
        let own = self.own_first == self.first.is_none();
        Some(if own { self.own } else { self.own.other() })
    }

    /// The slice that [`Self::next`] asked for is over; `all` it took, ns, with switching and settling.
    pub fn add(&mut self, slice: Slice, all: f64) {
        self.time += all;
        let Some(first) = self.first.take() else {
            self.first = Some(slice);
            return;
        };
        let pair = match self.own_first {
            true => [first, slice],
            false => [slice, first],
        };
        self.pairs.push(pair);
        self.own_first = self.coin();
    }

    /// What was found so far.
    pub fn outcome(&self) -> Outcome {
        let (wins, losses) = self.counts();
        let served = [0, 1].map(|arm| {
            let median_of = |of: fn(&Slice) -> f64| median(self.slices(arm).map(of));
            Served {
                latency: median_of(Slice::latency),
                messages: median_of(|s| s.done * 1e9 / s.time.max(1.0)),
                bytes: median_of(Slice::rate),
                acks: median_of(|s| s.acks / s.done.max(1.0)),
            }
        });
        let gain = median(self.gains());
        let on = usize::from(self.own == Arm::Off);
        Outcome {
            own: self.own,
            better: self.verdict(),
            pairs: self.pairs.len() as u32,
            wins,
            losses,
            gain: libm::exp(gain),
            served,
            room: Room::of(self.slices(on), self.slices(1 - on)),
            time: self.time,
        }
    }

    /// Of the own setting (0) or the other (1).
    fn slices(&self, arm: usize) -> impl Iterator<Item = &Slice> {
        self.pairs.iter().map(move |pair| &pair[arm])
    }

    /// By how much the other setting was better in each pair, as logarithms. Throughput that differs by
    /// more than chance counts as it does in the median pair: one alone says little of it.
    fn gains(&self) -> impl Iterator<Item = f64> {
        let more = self.served_more();
        let middle = median(more.iter().copied());
        let sure = is_more_than_chance(&more).then_some(self.params.weight * middle);
        let of = move |([own, other], more): (&[Slice; 2], f64)| {
            let gain = sure.unwrap_or(more) + ratio(own.latency(), other.latency());
            self.policy.keeper(own, other).unwrap_or(gain)
        };
        self.pairs.iter().zip(more).map(of)
    }

    /// By how much more the other setting served in each pair, as logarithms.
    fn served_more(&self) -> Vec<f64> {
        let more = |[own, other]: &[Slice; 2]| ratio(other.rate(), own.rate());
        self.pairs.iter().map(more).collect()
    }

    fn counts(&self) -> (u32, u32) {
        let of = |wanted: fn(f64, f64) -> bool| {
            let margin = self.params.margin;
            self.gains().filter(|g| wanted(*g, margin)).count() as u32
        };
        (of(|g, m| g > m), of(|g, m| g < -m))
    }

    fn is_over(&self) -> bool {
        // a pair more must fit
        let pairs = self.pairs.len() as f64;
        let time = self.time * (pairs + 1.0) / pairs.max(1.0);
        let most = self.pairs.len() as u32 >= self.params.most_pairs;
        self.verdict().is_some() || most || time > self.limit
    }

    /// Whom the first three pairs and all that follow favour so plainly that no chance explains it.
    fn is_plain(&self) -> Option<bool> {
        let whole = |[own, other]: &[Slice; 2]| {
            ratio(other.rate(), own.rate()) + ratio(own.latency(), other.latency())
        };
        let most = libm::log(self.params.plain);
        let all = |is: fn(f64, f64) -> bool| {
            self.pairs.iter().all(|pair| {
                let seen = pair.iter().all(Slice::is_of_something);
                seen && is(whole(pair), most)
            })
        };
        match self.pairs.len() >= PLAIN_PAIRS as usize {
            true if all(|gain, most| gain > most) => Some(true),
            true if all(|gain, most| gain < -most) => Some(false),
            _ => None,
        }
    }

    fn verdict(&self) -> Option<bool> {
        if let Some(better) = self.is_plain() {
            return Some(better);
        }
        if (self.pairs.len() as u32) < self.params.fewest_pairs {
            return None;
        }
        let (wins, losses) = self.counts();
        let is_own = self.in_force == self.own;
        let (wins, losses) = if is_own {
            (wins, losses)
        } else {
            (losses, wins)
        };
        let ahead = i64::from(wins) - 2 * i64::from(losses);
        let lead = i64::from(self.params.lead);
        let better = match ahead {
            a if a >= lead => is_own,
            a if a <= -2 * lead / 3 => !is_own,
            _ => return None,
        };
        // latency decides nothing while throughput points the other way, be it by chance
        let kept = |[own, other]: &&[Slice; 2]| self.policy.keeper(own, other).is_some();
        let by_slo = 2 * self.pairs.iter().filter(kept).count() > self.pairs.len();
        let more = bounded_mean(&self.served_more());
        let opposes = !by_slo && if better { -more } else { more } > self.params.margin;
        (!opposes).then_some(better)
    }

    /// splitmix64
    fn coin(&mut self) -> bool {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) & 1 == 1
    }
}

impl Policy {
    /// The gain of a pair in which one setting keeps the SLO and the other does not.
    fn keeper(self, own: &Slice, other: &Slice) -> Option<f64> {
        let Self::Slo(most) = self else {
            return None;
        };
        match [own, other].map(|slice| slice.latency() <= most as f64) {
            [false, true] => Some(FAR),
            [true, false] => Some(-FAR),
            _ => None,
        }
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    libm::log(a.max(1.0) / b.max(1.0))
}

/// The mean of these, where each counts for at most a quarter: a stall in one of six stays below the margin.
fn bounded_mean(of: &[f64]) -> f64 {
    of.iter().map(|x| x.clamp(-MOST, MOST)).sum::<f64>() / of.len().max(1) as f64
}

const MOST: f64 = 0.25;

/// Whether that is further from 0 than their scatter explains: 2.5 standard errors.
fn is_more_than_chance(of: &[f64]) -> bool {
    let (n, mean) = (of.len() as f64, bounded_mean(of));
    let apart = |x: &f64| (x.clamp(-MOST, MOST) - mean) * (x.clamp(-MOST, MOST) - mean);
    n >= 3.0 && mean * mean * n * (n - 1.0) > 2.5 * 2.5 * of.iter().map(apart).sum::<f64>()
}

/// More than any margin: an SLO is kept first.
const FAR: f64 = 1.0;

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n => (values[(n - 1) / 2] + values[n / 2]) / 2.0,
    }
}
