//! When to test, and what follows from a test. Three states: the applications' own setting, a test, and
//! the other setting adopted.

use alloc::collections::VecDeque;
use core::ops::Range;

use serde::{Deserialize, Serialize};

use super::switchback::PLAIN_PAIRS;
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// The applications have their own setting back: they ask for it themselves.
    GiveBack,
    /// Without a test [`Controller::adopted`] is another from now on.
    Recall(Recalled),
}

/// From where it is known what is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recalled {
    /// A test under a load like this one, so long ago, ns.
    Test(u64),
    /// The agent before this one had it in force.
    Before,
}

/// A setting that is in force in the place of the applications' own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct InForce {
    /// The setting.
    pub arm: Arm,
    /// The load under which the own one held messages back.
    pub cured: Option<Load>,
    /// The load that it was last seen with.
    pub load: Load,
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
    /// When the tests of the last minute were, ns.
    recent: VecDeque<Range<u64>>,
    /// What tests found, the oldest first.
    answers: VecDeque<Answer>,
    /// What was adopted ended a hold under this load.
    cured: Option<Load>,
    /// What an agent before this one had in force.
    resumed: Option<InForce>,
    /// As last seen.
    load: Load,
    is_held: bool,
}

/// What a test found is better under a load.
#[derive(Clone, Copy, Debug)]
struct Answer {
    load: Load,
    /// What was in force when that was the load: a load that waits for the setting is another one with each.
    in_force: Option<Arm>,
    adopted: Option<Arm>,
    since: u64,
}

/// Between tests.
#[derive(Clone, Copy, Debug)]
struct Pause {
    since: u64,
    /// The next test comes after this, ns, if nothing happens.
    rest: u64,
    /// The load that the answer is for. `None`: a setting was adopted or given up, which may change the
    /// load, and what waited is served now.
    load: Option<Load>,
    /// An answer of a test, which holds for what it makes of the load as well.
    is_answer: bool,
    /// Nagle's algorithm held messages back before it.
    was_held: bool,
}

/// So many answers are kept.
const MOST_ANSWERS: usize = 32;
/// What tests take is counted over so long, ns.
const MINUTE: u64 = 60_000_000_000;
/// Beside its slices a test switches, settles and reads: so much of it they are at least.
const IN_SLICES: f64 = 0.8;
/// What is held takes half a slice to settle.
const IN_HELD_SLICES: f64 = 0.6;

impl Controller {
    /// Begins with the applications' own setting.
    pub fn new(params: Params) -> Self {
        Self {
            params,
            adopted: None,
            last: None,
            pause: None,
            recent: VecDeque::new(),
            answers: VecDeque::new(),
            cured: None,
            resumed: None,
            load: Load::default(),
            is_held: false,
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

    /// How much of the last minute tests took, ns.
    pub fn tested_lately(&self, now: u64) -> u64 {
        let lately = self.recent.iter().filter(|test| test.end + MINUTE > now);
        lately.map(|test| test.end - test.start).sum()
    }

    /// How much of it they may still take, ns.
    pub fn budget_left(&self, now: u64) -> f64 {
        self.params.budget * MINUTE as f64 - self.tested_lately(now) as f64
    }

    /// Tests of the other one, of the same service, take from the same minute.
    pub fn share_budget(&mut self, other: &Self) {
        self.recent.clone_from(&other.recent);
    }

    /// What is better than the applications' own setting, as far as that is known. What is held and was tested is not
    /// held for want of another setting.
    pub fn better(&self) -> Option<Arm> {
        let is_tested = self.pause.is_some_and(|pause| pause.was_held);
        let held = (self.is_held && !is_tested).then_some(Arm::Off);
        self.adopted.or(held)
    }

    /// What is in force, for an agent that comes after this one.
    pub fn in_force(&self) -> Option<InForce> {
        let (cured, load) = (self.cured, self.load);
        self.adopted.map(|arm| InForce { arm, cured, load })
    }

    /// This was in force until a moment ago: it is again as soon as the service is seen to do something.
    pub fn resume(&mut self, then: InForce) {
        self.resumed = Some(then);
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
            (self.adopted, self.cured) = (None, None); // they ask for it themselves
            return Next::GiveBack;
        }
        if glimpse.load.segments > 0.0
            && let Some(then) = self.resumed.take_if(|then| then.arm != glimpse.app_setting)
        {
            self.cured = then.cured;
            self.put(Some(then.arm), glimpse.now, self.params.first_rest);
            // another load than it was in force for is tested at once; what was held until now is not
            if let Some(pause) = &mut self.pause {
                (pause.load, pause.was_held) = (Some(then.load), true);
            }
            return Next::Recall(Recalled::Before);
        }
        let is_changed = self.is_changed(glimpse);
        self.is_held = glimpse.held >= self.params.held;
        let is_cured = |then: Load| then.is_of_size(&glimpse.load, self.params.shift);
        if self.cured.is_some_and(is_cured) || glimpse.overlap < OVERLAP && !self.is_held {
            return Next::Stay; // where a setting was adopted, that is what it is for
        }
        let reason = match &self.pause {
            None if self.is_held => Reason::Held,
            None => Reason::New,
            Some(pause) if self.is_held && !pause.was_held => Reason::Held,
            Some(pause) if glimpse.now >= pause.end() => Reason::Due,
            Some(_) if is_changed => Reason::Shift,
            Some(_) => return Next::Stay,
        };
        if reason == Reason::Shift
            && let Some(answer) = self.answer(glimpse)
        {
            return self.recall(answer, glimpse.now);
        }
        let limit = self.budget_left(glimpse.now);
        match self.slice(glimpse, reason == Reason::Held, limit) {
            Some(slice) => Next::Test {
                slice: slice as u64,
                limit: limit as u64,
                reason,
            },
            None => Next::Stay,
        }
    }

    /// Takes in a test that was made for `reason` in this time; [`Self::adopted`] says what follows. One that ended
    /// undecided changes nothing.
    pub fn tested(&mut self, reason: Reason, outcome: Outcome, time: Range<u64>) {
        self.last = Some((outcome, time.end));
        let adopted = match outcome.better {
            Some(better) => better.then_some(outcome.own.other()),
            None => self.adopted,
        };
        self.keep(Answer {
            load: self.load,
            in_force: self.adopted,
            adopted,
            since: time.end,
        });
        if adopted != self.adopted {
            let held = outcome.of(Arm::On).latency - outcome.of(Arm::Off).latency;
            let is_cure = adopted == Some(Arm::Off) && held >= self.params.held;
            self.cured = is_cure.then_some(self.load);
        }
        self.rest(reason, adopted, time);
    }

    /// A test that was to be made for `reason` was not, or did not come to its end.
    pub fn passed_over(&mut self, reason: Reason, time: Range<u64>) {
        self.rest(reason, self.adopted, time);
    }

    /// From now on this is in force. As long as the answer stays the same, it is asked for less often.
    fn rest(&mut self, reason: Reason, adopted: Option<Arm>, time: Range<u64>) {
        let p = &self.params;
        let stays = adopted == self.adopted;
        let rest = match &self.pause {
            Some(pause) if reason == Reason::Due && stays => {
                pause.rest.saturating_mul(2).min(p.longest_rest)
            }
            _ => p.first_rest,
        };
        let now = time.end;
        self.recent.retain(|test| test.end + MINUTE > now);
        self.recent.push_back(time);
        self.adopted = adopted;
        self.pause = Some(Pause {
            since: now,
            rest,
            load: stays.then_some(self.load),
            is_answer: !stays,
            was_held: self.is_held,
        });
    }

    /// What a test under a load like this one found, not too long ago.
    fn answer(&self, glimpse: &Glimpse) -> Option<Answer> {
        let p = &self.params;
        let is_like = |answer: &&Answer| {
            answer.in_force == self.adopted
                && answer.since + p.longest_rest > glimpse.now
                && answer.load.is_like(&glimpse.load, p.shift)
        };
        self.answers.iter().rev().find(is_like).copied()
    }

    /// In the place of those that it contradicts.
    fn keep(&mut self, new: Answer) {
        let shift = self.params.shift;
        let is_other =
            |old: &Answer| old.in_force != new.in_force || !old.load.is_like(&new.load, shift);
        self.answers.retain(is_other);
        if self.answers.len() == MOST_ANSWERS {
            self.answers.pop_front();
        }
        self.answers.push_back(new);
    }

    /// The load is one that was tested: it is tested again when that is long ago.
    fn recall(&mut self, answer: Answer, now: u64) -> Next {
        let age = now - answer.since;
        let rest = self.params.longest_rest.saturating_sub(age);
        let rest = rest.max(self.params.first_rest);
        if answer.adopted == self.adopted {
            self.put(answer.adopted, now, rest);
            self.pause
                .iter_mut()
                .for_each(|pause| pause.load = Some(answer.load));
            return Next::Stay;
        }
        self.cured = None;
        self.put(answer.adopted, now, rest);
        Next::Recall(Recalled::Test(age))
    }

    /// This is in force from now on, without a test.
    fn put(&mut self, adopted: Option<Arm>, now: u64, rest: u64) {
        self.adopted = adopted;
        self.pause = Some(Pause {
            since: now,
            rest,
            load: None,
            is_answer: false,
            was_held: self.is_held,
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
            if glimpse.now < pause.since.saturating_add(2 * glimpse.span) {
                return false;
            }
            pause.load = Some(glimpse.load);
            // with another setting the same messages are in other segments
            self.cured = self.cured.map(|_| glimpse.load);
            if pause.is_answer {
                let since = pause.since;
                self.keep(Answer {
                    load: glimpse.load,
                    in_force: self.adopted,
                    adopted: self.adopted,
                    since,
                });
            }
            return false;
        };
        let ([least, most], shift) = (glimpse.bytes, self.params.shift);
        least > then.bytes * shift || most * shift < then.bytes
    }

    /// How long a test's slices are, ns. `None`: one that says anything takes longer than what is left.
    fn slice(&self, glimpse: &Glimpse, is_held: bool, left: f64) -> Option<f64> {
        let p = &self.params;
        let enough = p.segments * 1e9 / glimpse.load.segments.max(1e-3);
        let fewest = f64::from(2 * p.fewest_pairs);
        let most = IN_SLICES * p.budget * MINUTE as f64 / fewest;
        let (slice, fewest, in_slices) = match is_held {
            // what ends a hold is plain, if each slice has a message, however few there are
            true => (enough, f64::from(2 * PLAIN_PAIRS), IN_HELD_SLICES),
            false => (enough.min(most), fewest, IN_SLICES),
        };
        let slice = slice.clamp(p.shortest as f64, p.longest as f64);
        (slice * fewest <= left * in_slices).then_some(slice)
    }
}

impl Load {
    /// Whether they differ by less than this factor, in size as well.
    fn is_like(&self, other: &Self, factor: f64) -> bool {
        is_near(self.bytes, other.bytes, factor) && is_near(self.segments, other.segments, factor)
    }

    /// Whether a segment stands for as many bytes, so that the same is sent, however often.
    fn is_of_size(&self, other: &Self, factor: f64) -> bool {
        is_near(
            self.bytes * other.segments,
            other.bytes * self.segments,
            factor,
        )
    }
}

fn is_near(a: f64, b: f64, factor: f64) -> bool {
    a < b * factor && b < a * factor
}

impl Pause {
    fn end(&self) -> u64 {
        self.since.saturating_add(self.rest)
    }
}
