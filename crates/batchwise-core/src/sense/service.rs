//! A service's connections in one interval, summed so that every request weighs alike, and the one
//! estimate that is made of them.

use alloc::vec::Vec;

use crate::sense::confidence;
use crate::sense::estimate::{self, Estimate};
use crate::sense::hint;
use crate::sense::queue::Window;
use crate::sense::report::{Estimator, Side, Tails, Unit};
use crate::sense::sample::Flow;
use crate::sense::tails::{Histogram, Latencies};
use crate::sense::turns::{Requests, Why};
use crate::sense::wire::{Item, Queue};

/// Where more than one in so many requests was matched with a response that was not theirs, a client alone is far too low
/// (`lab run applications`, `appends`: 68 %).
const MOST_GUESSED: u64 = 3;

/// The sum of a service's flows, as one unit sees them.
#[derive(Clone, Debug)]
pub struct ServiceSum {
    unit: Unit,
    side: Side,
    /// All connections.
    all: Flow,
    /// Those whose peer took part in the exchange.
    both: Flow,
    /// What the clients' applications count themselves, as their agents told …
    hint: Window,
    /// … and as they told this end.
    application: Window,
    latencies: Latencies,
    /// Requests that are under way when the interval ends: for how long, ns, and how many.
    hanging: Vec<(u64, u32)>,
    items: u64,
    items_both: u64,
    items_hinted: u64,
}

impl ServiceSum {
    /// Nothing yet.
    pub fn new(unit: Unit, side: Side) -> Self {
        let (all, both) = (Flow::default(), Flow::default());
        Self {
            unit,
            side,
            all,
            both,
            hint: Window::default(),
            application: Window::default(),
            latencies: Latencies::default(),
            hanging: Vec::new(),
            items: 0,
            items_both: 0,
            items_hinted: 0,
        }
    }

    /// Adds what passed on a connection in so many ns.
    pub fn add(&mut self, flow: &Flow, time: u64) {
        let two_sided = estimate::is_two_sided(flow, self.unit, self.side, time);
        let items = self.items_of(flow, two_sided);
        self.all.add(flow);
        self.items += items;
        if self.unit == Unit::Sends && estimate::is_hinted(flow, time) {
            self.hint.add(&flow.hint);
            self.items_hinted += items;
        }
        if two_sided {
            self.both.add(flow);
            self.items_both += items;
        }
    }

    /// Adds what the applications at this end say of their own requests: it is taken for their send
    /// calls.
    pub fn hear(&mut self, application: &Window) {
        if self.unit == Unit::Sends {
            self.application.add(application);
        }
    }

    /// Adds the latencies of single requests: they are send calls, or turns.
    pub fn match_up(&mut self, latencies: &Latencies) {
        if self.unit == Unit::Sends {
            self.latencies.add(latencies);
        }
    }

    /// Requests of a connection have been under way for so long, ns.
    pub fn hang(&mut self, age: u64, requests: u32) {
        self.hanging.push((age, requests));
    }

    /// How many requests are under way, where it is known what one is, and for how long the oldest has been, ns.
    pub fn under_way(&self) -> (Option<u64>, Option<u64>) {
        if matches!(self.requests(), Requests::Unknown(_)) {
            return (None, None);
        }
        let requests = self
            .hanging
            .iter()
            .map(|(_, requests)| u64::from(*requests));
        let ages = self.hanging.iter().map(|(age, _)| *age);
        (Some(requests.sum()), ages.max())
    }

    /// What the requests are, as turns and the order of answers tell.
    fn in_order(&self) -> Requests {
        let answers = match self.side {
            Side::Server => Queue::Unacked,
            Side::Client => Queue::Unread,
        };
        self.all.turns.requests(self.all.here(Item::Calls, answers))
    }

    /// What they are to this end alone, which has to match them with their answers.
    fn requests(&self) -> Requests {
        let sent = self.all.here(Item::Calls, Queue::Unacked).total;
        match (self.in_order(), self.side) {
            (Requests::Pipelined, Side::Client) if MOST_GUESSED * self.all.unsure > sent => {
                Requests::Unknown(Why::SeveralAtOnce)
            }
            (requests, _) => requests,
        }
    }

    /// Latencies of single requests, where it is known what one is.
    pub fn histogram(&self) -> Option<&Histogram> {
        match self.requests() {
            Requests::Turns => Some(&self.latencies.turns),
            Requests::Pipelined => Some(&self.latencies.matched),
            Requests::Unknown(_) => None,
        }
    }

    /// Percentiles, where requests were matched, and of how many; `e` is the estimate of the same time, in which
    /// a share of the requests was counted. A server does not see the network's part: it is added. Where requests
    /// were under way through all of the `interval`, ns, and hide a percentile, users feel more than the mean says.
    pub fn tails(&self, e: &mut Estimate, share: f64, interval: u64) -> (Tails, u64) {
        let beside = e.elsewhere(self.side);
        let Some(known) = self.histogram() else {
            return (Tails::default(), 0);
        };
        let tails = match &self.hanging[..] {
            [] => known.tails(beside),
            hanging => known.with_hanging(share, hanging).tails(beside),
        };
        let through = self.hanging.iter().any(|(age, _)| *age > interval);
        if tails.p99.is_none() && through {
            e.confidence *= confidence::UNKNOWN;
            e.why = Some(Why::Unanswered);
        }
        (tails, known.requests())
    }

    /// Requests on a connection. A send call of the client's is the best witness, its own or as
    /// the exchange tells; a server alone counts the messages that it could tell apart, when it
    /// read them or when it answered: an answer that is acknowledged in a later interval than its
    /// request was read in is not another.
    fn items_of(&self, flow: &Flow, two_sided: bool) -> u64 {
        let requests = |item| match self.side {
            Side::Server => flow.here(item, Queue::Unread).total,
            Side::Client => flow.here(item, Queue::Unacked).total,
        };
        match (self.unit, self.side) {
            (Unit::Bytes, _) => requests(Item::Bytes),
            (Unit::Packets, _) => requests(Item::Segments),
            (Unit::Sends, Side::Client) => requests(Item::Calls),
            (Unit::Sends, Side::Server) if two_sided => {
                // its reports are of a little less, or of a little more, than this time: bytes tell
                let told = flow.there(Item::Calls, Queue::Unacked).total;
                let of = flow.there(Item::Bytes, Queue::Unacked).total;
                let passed = flow.here(Item::Bytes, Queue::Unread).total;
                match of {
                    0 => told,
                    of => (told as f64 * passed as f64 / of as f64 + 0.5) as u64,
                }
            }
            (Unit::Sends, Side::Server) => {
                let acked = flow.here(Item::Calls, Queue::Unacked).total;
                requests(Item::Calls).max(acked.saturating_add_signed(flow.under_way))
            }
        }
    }

    /// From this end alone.
    fn alone(&self) -> Estimate {
        let local = estimate::local(&self.all, self.unit, self.side);
        let matched = &self.latencies.matched;
        let most = 2 * matched.requests() >= self.items;
        match estimate::matched(&self.all, matched, local.stages) {
            Some(matched) if self.side == Side::Client && most => matched,
            _ => local,
        }
    }

    /// What turns tell; gives the number of requests.
    fn take_turns(&self, e: &mut Estimate) -> u64 {
        let turns = &self.all.turns;
        // begun before they were counted
        if turns.begun == 0 && turns.over == 0 && self.items > 0 {
            return self.items;
        }
        let alone = e.estimator.is_one_sided();
        let requests = match alone {
            true => self.requests(),
            false => self.in_order(),
        };
        // with both ends' queues a message of the transport weighs as one, and hides nothing
        if alone || requests != Requests::Unknown(Why::TinyTakeLongest) {
            let mean = turns
                .mean()
                .map(|mean| mean * self.latencies.turns.stretch());
            e.take_turns(&self.all, requests, self.side, mean);
        }
        let messages = match requests {
            Requests::Turns => turns.over.into(),
            _ => self.all.here(Item::Calls, Queue::Unacked).total,
        };
        let each = |ns: u64| ns.checked_div(messages);
        e.stages.unsent = each(self.all.unsent.time);
        e.stages.held_by_nagle = each(self.all.unsent.held);
        e.stages.held_by_delack = each(self.all.unsent.acks);
        match alone && requests == Requests::Turns {
            true => turns.begun.into(),
            false => self.items,
        }
    }

    /// The estimate of `time` ns: by what the applications here say, or those of the clients when most of the
    /// traffic has its own count; two-sided when most of it is, on the connections that do.
    pub fn estimate(&self, time: u64) -> Estimate {
        if let Some(e) = hint::estimate(&self.application, time) {
            return e;
        }
        let share = |items| items as f64 / self.items.max(1) as f64;
        let hinted = share(self.items_hinted);
        if hinted >= 0.5
            && let Some(mut e) = hint::estimate(&self.hint, time)
        {
            e.confidence *= hinted;
            e.throughput /= hinted; // the others' requests are taken to be alike
            return e;
        }
        let share = share(self.items_both);
        let two_sided = if share >= 0.5 {
            estimate::two_sided(&self.both, self.unit, self.side)
        } else {
            None
        };
        let mut e = two_sided.unwrap_or_else(|| self.alone());
        if e.estimator == Estimator::TwoSided {
            e.confidence *= share;
        }
        let items = match self.unit {
            Unit::Sends => self.take_turns(&mut e),
            Unit::Bytes | Unit::Packets => self.items,
        };
        e.throughput = items as f64 * 1e9 / time.max(1) as f64;
        if items > 0 && e.latency.total.is_none() && e.why.is_none() {
            e.why = Some(Why::InPart);
            e.confidence *= confidence::UNKNOWN;
        }
        e
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::sample::Sample;
    use crate::sense::wire::QUEUES;

    const SECOND: u64 = 1_000_000_000;

    /// A server's connection that answered `requests`, and whether its client told of them.
    fn flow(requests: u64, hinted: bool) -> Flow {
        let mut flow = Flow::default();
        for (item, each) in [(Item::Calls, 1), (Item::Bytes, 64)] {
            for queue in QUEUES {
                let window = &mut flow.local[item as usize][queue as usize];
                (window.time, window.total) = (SECOND, requests * each);
            }
        }
        if hinted {
            flow.hints_heard = 1;
            flow.hint = Window {
                time: SECOND,
                integral: requests * 2_000_000,
                total: requests,
            };
        }
        flow
    }

    fn estimate(side: Side, flows: &[Flow]) -> Estimate {
        let mut sum = ServiceSum::new(Unit::Sends, side);
        for flow in flows {
            sum.add(flow, SECOND);
        }
        sum.estimate(SECOND)
    }

    #[test]
    fn clients_that_count_themselves_speak_for_the_few_that_do_not() {
        let e = estimate(Side::Server, &[flow(900, true), flow(100, false)]);
        assert_eq!(e.estimator, Estimator::Hint);
        assert_eq!(e.latency.total, Some(2_000_000));
        assert!((e.throughput - 1_000.0).abs() < 1.0, "{e:?}");
        assert!(e.confidence < 0.9, "{e:?}");
    }

    #[test]
    fn a_server_alone_counts_a_request_once_whatever_intervals_its_stages_fall_into() {
        let mut now = Sample::birth(0);
        let mut readings = alloc::vec![now];
        for step in [
            (Queue::Unread, 1),
            (Queue::Unread, -1),
            (Queue::Turnaround, 1),
            (Queue::Turnaround, -1),
            (Queue::Unacked, 1),
            (Queue::Unacked, -1),
        ] {
            now.at += SECOND;
            now.local[Item::Calls as usize][step.0 as usize].track(now.at, step.1);
            // what is read is in hand at once, and what is in hand leaves by being sent
            if !matches!(step, (Queue::Unread, -1) | (Queue::Turnaround, -1)) {
                readings.push(now);
            }
        }
        let readings = &readings;
        let counted = |edges: &[usize]| -> u64 {
            let pairs = edges.windows(2);
            let items = pairs.map(|w| {
                let flow = readings[w[1]].since(&readings[w[0]]);
                ServiceSum::new(Unit::Sends, Side::Server).items_of(&flow, false)
            });
            items.sum()
        };
        assert_eq!(readings.len(), 5);
        for edges in [&[0, 4][..], &[0, 2, 4], &[0, 3, 4], &[0, 1, 2, 3, 4]] {
            assert_eq!(counted(edges), 1, "{edges:?}");
        }
    }

    #[test]
    fn few_clients_that_count_themselves_do_not_speak_for_all() {
        let e = estimate(Side::Server, &[flow(100, true), flow(900, false)]);
        assert_eq!(e.estimator, Estimator::Local);
        assert!((e.throughput - 1_000.0).abs() < 1.0, "{e:?}");
    }
}
