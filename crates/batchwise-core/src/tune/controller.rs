//! When to test, and what follows from a test. Three states: the applications' own setting, a test, and
//! the other setting adopted.

use alloc::collections::VecDeque;

use super::{Arm, Outcome, Params};

/// What is seen of a service without counting anything: what the kernel itself keeps of its sockets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Glimpse {
    /// ns of any monotonic clock.
    pub now: u64,
    /// What most of the applications asked for.
    pub app_setting: Arm,
    /// How much it does, in the mean over a few looks, …
    pub load: Load,
    /// … bytes a second in the quietest and in the busiest of them, …
    pub bytes: [f64; 2],
    /// … and how long they took in all, ns.
    pub span: u64,
    /// Segments that are under way or held back on a connection that sends, in the mean.
    pub overlap: f64,
    /// How long Nagle's algorithm holds a segment back, in the mean, ns.
    pub held: f64,
}

/// How much a service does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Bytes a second, in both directions.
    pub bytes: f64,
    /// Segments with data a second, sent.
    pub segments: f64,
}

/// Nagle's algorithm holds nothing back while all that was sent is acknowledged. A connection with one
/// request at a time has at most one segment under way in the mean, seen with some noise: only with more
/// is there something to test.
pub const OVERLAP: f64 = 1.25;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// Nothing.
    Stay,
    /// A test.
    Test {
        /// A slice's length, ns.
        slice: u64,
        /// The test is over after so long, ns.
        limit: u64,
        /// Why now.
        reason: Reason,
    },
    /// The applications have their own setting back.
    GiveBack,
}

/// Why a test is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The service was never tested.
    New,
    /// Nagle's algorithm holds messages back for long.
    Held,
    /// The load is another one than the last test's.
    Shift,
    /// The last test is long enough ago.
    Due,
}

/// Decides for one service.
#[derive(Clone, Debug)]
pub struct Controller {
    params: Params,
    /// The setting in force, if it is not the applications' own.
    adopted: Option<Arm>,
    /// What the last test found, and when it ended.
    last: Option<(Outcome, u64)>,
    pause: Option<Pause>,
    /// When the tests of the last minute ended, and how long they took, ns.
    recent: VecDeque<(u64, u64)>,
    /// As last seen.
    load: Load,
}

/// Between tests.
#[derive(Clone, Copy, Debug)]
struct Pause {
    since: u64,
    /// The next test comes after this, ns, if nothing happens.
    rest: u64,
    /// So many tests in a row had the same answer.
    same: u32,
    /// The load that the answer is for. `None`: a setting was adopted or given up, which may change the
    /// load, and what waited is served now.
    load: Option<Load>,
}

/// What tests take is counted over so long, ns.
const MINUTE: u64 = 60_000_000_000;
/// Beside its slices a test switches, settles and reads: so much of it they are at least.
const IN_SLICES: f64 = 0.8;

impl Controller {
    /// Begins with the applications' own setting.
    pub fn new(params: Params) -> Self {
        Self {
            params,
            adopted: None,
            last: None,
            pause: None,
            recent: VecDeque::new(),
            load: Load::default(),
        }
    }

    /// The setting in force, if it is not the applications' own.
    pub fn adopted(&self) -> Option<Arm> {
        self.adopted
    }

    /// What the last test found, and when it ended.
    pub fn last(&self) -> Option<&(Outcome, u64)> {
        self.last.as_ref()
    }

    /// When the next test comes if nothing happens, ns.
    pub fn next_test(&self) -> Option<u64> {
        self.pause.map(|pause| pause.end())
    }

    /// How much of the last minute tests may still take, ns.
    pub fn budget_left(&self, now: u64) -> f64 {
        let lately = self.recent.iter().filter(|(end, _)| end + MINUTE > now);
        let took: u64 = lately.map(|(_, took)| took).sum();
        self.params.budget * MINUTE as f64 - took as f64
    }

    /// Whether the load may be changing, so that the next look should come soon. `rates`: bytes a second
    /// in the last looks, the oldest first.
    pub fn is_restless(&self, rates: impl DoubleEndedIterator<Item = f64>) -> bool {
        let mut rates = rates.rev();
        let (last, shift) = (rates.next().unwrap_or(0.0), self.params.shift);
        rates.any(|rate| last > rate * shift || last * shift < rate)
    }

    /// Takes in how the service does.
    pub fn see(&mut self, glimpse: &Glimpse) -> Next {
        if self.adopted == Some(glimpse.app_setting) {
            self.adopted = None; // they ask for it themselves
            return Next::GiveBack;
        }
        let is_changed = self.is_changed(glimpse);
        let (can_batch, is_held) = (glimpse.overlap >= OVERLAP, glimpse.held >= self.params.held);
        // what a test has shown to help stays, though it leaves nothing to be seen any more
        let reason = match &self.pause {
            _ if !can_batch && !is_held && self.adopted.is_none() => return Next::Stay,
            None if is_held => Reason::Held,
            None => Reason::New,
            Some(pause) if glimpse.now >= pause.end() => Reason::Due,
            Some(pause) if is_held && pause.same == 0 => Reason::Held,
            Some(_) if can_batch && is_changed => Reason::Shift,
            Some(_) => return Next::Stay,
        };
        let left = self.budget_left(glimpse.now);
        let slice = self.slice(glimpse);
        if left * IN_SLICES < self.fewest_slices() * slice as f64 {
            return Next::Stay;
        }
        Next::Test {
            slice,
            limit: left as u64,
            reason,
        }
    }

    /// Takes in a test that began for `reason` and ended `now`; [`Self::adopted`] says what follows.
    pub fn tested(&mut self, reason: Reason, outcome: Outcome, now: u64) {
        let better = outcome.better == Some(true);
        self.last = Some((outcome, now));
        let adopted = better.then_some(outcome.own.other());
        self.rest(reason, adopted, now, outcome.time as u64);
    }

    /// A test that was to be made for `reason` was not, or did not come to its end.
    pub fn passed_over(&mut self, reason: Reason, now: u64) {
        self.rest(reason, self.adopted, now, 0);
    }

    /// From now on this is in force. As long as the answer stays the same, it is asked for less often.
    fn rest(&mut self, reason: Reason, adopted: Option<Arm>, now: u64, took: u64) {
        let p = &self.params;
        let stays = adopted == self.adopted;
        let same = match &self.pause {
            Some(pause) if stays => pause.same + 1,
            _ => 0,
        };
        let rest = match &self.pause {
            Some(pause) if reason == Reason::Due && stays => {
                pause.rest.saturating_mul(2).min(p.longest_rest)
            }
            _ if same >= SETTLED => p.longest_rest,
            _ => p.first_rest,
        };
        self.recent.retain(|(end, _)| end + MINUTE > now);
        self.recent.push_back((now, took));
        self.adopted = adopted;
        self.pause = Some(Pause {
            since: now,
            rest,
            same,
            load: stays.then_some(self.load),
        });
    }

    /// Whether the load is another one than the answer is for: in each of the last looks, so that a stall
    /// in one of them is no change.
    fn is_changed(&mut self, glimpse: &Glimpse) -> bool {
        self.load = glimpse.load;
        let Some(pause) = &mut self.pause else {
            return false;
        };
        let Some(then) = &pause.load else {
            let settled = pause.since.saturating_add(2 * glimpse.span);
            pause.load = (glimpse.now >= settled).then_some(glimpse.load);
            return false;
        };
        let ([least, most], shift) = (glimpse.bytes, self.params.shift);
        let shift = libm::pow(shift, f64::from(1_u32 << pause.same.min(SETTLED)));
        least > then.bytes * shift || most * shift < then.bytes
    }

    /// How long slices are for this load.
    fn slice(&self, glimpse: &Glimpse) -> u64 {
        let p = &self.params;
        let enough = p.segments * 1e9 / glimpse.load.segments.max(1e-3);
        let most = IN_SLICES * p.budget * MINUTE as f64 / self.fewest_slices();
        enough.min(most).clamp(p.shortest as f64, p.longest as f64) as u64
    }

    /// In a test that says anything.
    fn fewest_slices(&self) -> f64 {
        f64::from(2 * self.params.fewest_pairs)
    }
}

/// After so many tests with the same answer as the one before they rest for long.
const SETTLED: u32 = 3;

impl Pause {
    fn end(&self) -> u64 {
        self.since.saturating_add(self.rest)
    }
}
