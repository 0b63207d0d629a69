//! Whatever order connections are read, missed and closed in, what the tracker says has passed adds
//! up to what their counters say.

use std::collections::BTreeMap;

use batchwise_core::sense::connection::{Connection, Quiet, Reading, Vitals};
use batchwise_core::sense::report::Side;
use batchwise_core::sense::sample::{Flow, Sample};
use batchwise_core::sense::tracker::{Stage, Tracker};
use batchwise_core::sense::wire::{Item, Queue};
use proptest::prelude::*;

/// What happens to the connections of a machine.
#[derive(Clone, Debug)]
enum Act {
    Open,
    /// The socket is closed and connected anew at once: the cookie stays.
    Reconnect(usize),
    /// Items enter or leave a queue.
    Work(usize, usize, i8),
    /// Its last state is in the next reading, …
    Close(usize),
    /// … which still shows it, too, as does the one after, …
    CloseLate(usize),
    /// … or is lost.
    CloseUnseen(usize),
    /// A reading in which those whose bit is set are torn.
    Read(u8),
    /// The same, in which only those are mentioned that have changed.
    News(u8),
}

fn act(losses: bool) -> impl Strategy<Value = Act> {
    let at = 0..8usize;
    prop_oneof![
        2 => Just(Act::Open),
        1 => at.clone().prop_map(Act::Reconnect),
        8 => (at.clone(), 0..4usize, any::<i8>()).prop_map(|(c, q, n)| Act::Work(c, q, n)),
        1 => at.clone().prop_map(Act::Close),
        1 => at.clone().prop_map(Act::CloseLate),
        u32::from(losses) => at.prop_map(Act::CloseUnseen),
        3 => any::<u8>().prop_map(Act::Read),
        3 => any::<u8>().prop_map(Act::News),
    ]
}

fn born(cookie: u64, at: u64) -> Connection {
    Connection {
        cookie,
        local: ([10, 0, 0, 1], 6379).into(),
        remote: ([10, 0, 0, 2], 50_000).into(),
        netns: 0,
        side: Side::Server,
        born: at,
        nagle_off: false,
        app_nagle_off: false,
        epoch: 0,
        segments_before: 0,
        vitals: Vitals::default(),
        exchanges: false,
        options: [0; 3],
        sample: Sample::birth(at),
    }
}

/// The machine, and what was made of it.
#[derive(Default)]
struct Machine {
    now: u64,
    cookies: u64,
    open: Vec<Connection>,
    /// Closed, and read next.
    closed: Vec<Connection>,
    /// Closed, and still shown by so many readings.
    lingering: Vec<(u8, Connection)>,
    lost_events: u64,
    /// What was told of those that are open.
    told: BTreeMap<(u64, u64), u64>,
    /// The last state of all, by cookie and birth.
    truth: BTreeMap<(u64, u64), Connection>,
    tracked: BTreeMap<(u64, u64), (Flow, u64)>,
}

impl Machine {
    fn open(&mut self, cookie: u64) {
        self.open.push(born(cookie, self.now));
    }

    fn close(&mut self, at: usize) -> Option<Connection> {
        (!self.open.is_empty()).then(|| self.open.remove(at % self.open.len()))
    }

    fn act(&mut self, act: &Act, tracker: &mut Tracker) {
        self.now += 1_000;
        match *act {
            Act::Open => {
                self.cookies += 1;
                self.open(self.cookies);
            }
            Act::Reconnect(at) => {
                if let Some(c) = self.close(at) {
                    self.open(c.cookie);
                    self.closed.push(c);
                }
            }
            Act::Work(at, queue, items) => {
                let (now, n) = (self.now, self.open.len().max(1));
                if let Some(c) = self.open.get_mut(at % n) {
                    let queues = &mut c.sample.local;
                    queues[Item::Calls as usize][queue].track(now, items.into());
                    c.sample.at = now;
                    c.vitals.bytes += u64::from(items.unsigned_abs());
                }
            }
            Act::Close(at) => {
                let c = self.close(at);
                self.closed.extend(c);
            }
            Act::CloseLate(at) => {
                let c = self.close(at);
                self.lingering.extend(c.clone().map(|c| (2, c)));
                self.closed.extend(c);
            }
            Act::CloseUnseen(at) => {
                self.lost_events += u64::from(self.close(at).is_some());
            }
            Act::Read(missed) => self.read(missed, false, tracker),
            Act::News(missed) => self.read(missed, true, tracker),
        }
        for c in self.open.iter().chain(&self.closed) {
            self.truth.insert((c.cookie, c.born), c.clone());
        }
    }

    fn read(&mut self, missed: u8, news_only: bool, tracker: &mut Tracker) {
        for c in &mut self.open {
            c.sample.at = self.now;
        }
        let all = self.open.iter().enumerate();
        let (torn, shown): (Vec<_>, Vec<_>) = all.partition(|(i, _)| missed >> (i % 8) & 1 == 1);
        let reading = Reading {
            at: 0,
            open: shown
                .into_iter()
                .map(|(_, c)| c.clone())
                .filter(|c| {
                    let told = self.told.insert((c.cookie, c.born), c.vitals.bytes);
                    !news_only || told != Some(c.vitals.bytes)
                })
                .chain(self.lingering.iter().map(|(_, c)| c.clone()))
                .collect(),
            torn: torn.iter().map(|(_, c)| (c.cookie, c.born)).collect(),
            quiet: Vec::new(),
            news_only,
            closed: std::mem::take(&mut self.closed),
            lost_events: self.lost_events,
        };
        self.lingering.retain_mut(|(left, _)| {
            *left -= 1;
            *left > 0
        });
        tracker.read(&reading, Some(0));
        for c in tracker.connections() {
            let key = (c.last.cookie, c.last.born);
            let (flow, bytes) = self.tracked.entry(key).or_default();
            c.flow.iter().for_each(|f| flow.append(f));
            *bytes += c.bytes;
        }
    }
}

proptest! {
    #[test]
    fn what_has_passed_adds_up_to_the_counters(acts in proptest::collection::vec(act(false), 1..120)) {
        let (mut machine, mut tracker) = (Machine::default(), Tracker::new(0));
        for act in &acts {
            machine.act(act, &mut tracker);
        }
        machine.act(&Act::Read(0), &mut tracker);
        prop_assert_eq!(machine.tracked.len(), machine.truth.len());
        for (key, (flow, bytes)) in &machine.tracked {
            let truth = &machine.truth[key];
            prop_assert_eq!(*bytes, truth.vitals.bytes);
            let whole = truth.sample.since(&Sample::birth(truth.born));
            for queue in [Queue::Unacked, Queue::Unread, Queue::AckDelay, Queue::Turnaround] {
                prop_assert_eq!(flow.here(Item::Calls, queue), whole.here(Item::Calls, queue));
            }
        }
        let open = tracker.connections().filter(|c| c.stage != Stage::Closed).count();
        prop_assert_eq!(open, machine.open.len());
    }

    #[test]
    fn nothing_is_counted_twice_when_closes_are_lost(acts in proptest::collection::vec(act(true), 1..120)) {
        let (mut machine, mut tracker) = (Machine::default(), Tracker::new(0));
        for act in &acts {
            machine.act(act, &mut tracker);
        }
        for _ in 0..4 {
            machine.act(&Act::Read(0), &mut tracker);
        }
        for (key, (flow, bytes)) in &machine.tracked {
            let truth = &machine.truth[key];
            prop_assert!(*bytes <= truth.vitals.bytes);
            let calls = flow.here(Item::Calls, Queue::Unacked).total;
            let queue = truth.sample.local[Item::Calls as usize][Queue::Unacked as usize];
            prop_assert!(calls <= queue.total);
        }
        // and nobody who is gone is kept
        let open = tracker.connections().filter(|c| c.stage != Stage::Closed).count();
        prop_assert_eq!(open, machine.open.len());
    }
}

fn read(tracker: &mut Tracker, c: Option<&Connection>, epoch: Option<u32>) -> Option<u64> {
    let reading = Reading {
        open: c.cloned().into_iter().collect(),
        ..Reading::default()
    };
    tracker.read(&reading, epoch);
    let flow = tracker.connections().next()?.flow?;
    Some(flow.here(Item::Calls, Queue::Unacked).total)
}

fn answered(c: &mut Connection, messages: u64) {
    c.sample.local[Item::Calls as usize][Queue::Unacked as usize].total += messages;
    c.vitals.bytes += 64 * messages;
    c.sample.at += 1_000;
}

#[test]
fn a_connection_that_was_there_before_counts_from_its_first_reading() {
    let (mut c, mut tracker) = (born(1, 500), Tracker::new(1_000));
    answered(&mut c, 7);
    assert_eq!(read(&mut tracker, Some(&c), Some(0)), None);
    assert_eq!(tracker.connections().next().unwrap().bytes, 0);
    answered(&mut c, 3);
    assert_eq!(read(&mut tracker, Some(&c), Some(0)), Some(3));
}

#[test]
fn a_connection_whose_record_is_torn_is_missing_until_it_is_read_again() {
    let (mut c, mut tracker) = (born(1, 0), Tracker::new(0));
    answered(&mut c, 7);
    assert_eq!(read(&mut tracker, Some(&c), Some(0)), Some(7));
    answered(&mut c, 3);
    let torn = Reading {
        torn: vec![(c.cookie, c.born)],
        ..Reading::default()
    };
    for _ in 0..100 {
        tracker.read(&torn, Some(0));
        let missing = tracker.connections().next().unwrap();
        assert_eq!((missing.stage, missing.bytes), (Stage::Missing, 0));
        assert_eq!(missing.flow, None);
    }
    assert_eq!(read(&mut tracker, Some(&c), Some(0)), Some(3));
}

#[test]
fn a_connection_that_is_no_news_is_open_and_nothing_passed_on_it() {
    let (mut c, mut tracker) = (born(1, 0), Tracker::of_windows());
    answered(&mut c, 7);
    assert_eq!(read(&mut tracker, Some(&c), Some(0)), Some(7));
    let nothing = Reading {
        news_only: true,
        ..Reading::default()
    };
    for _ in 0..100 {
        tracker.read(&nothing, Some(0));
        let still = tracker.connections().next().unwrap();
        assert_eq!((still.stage, still.bytes), (Stage::Open, 0));
        assert_eq!((still.flow, still.segments), (None, Some([0; 2])));
    }
    answered(&mut c, 3);
    assert_eq!(read(&mut tracker, Some(&c), Some(0)), Some(3));
}

#[test]
fn a_connection_whose_close_nobody_saw_is_forgotten_and_never_counted_again() {
    let (mut c, mut tracker) = (born(1, 0), Tracker::new(0));
    answered(&mut c, 7);
    assert_eq!(read(&mut tracker, Some(&c), Some(0)), Some(7));
    for _ in 0..3 {
        read(&mut tracker, None, Some(0));
    }
    assert_eq!(tracker.connections().count(), 0);
    assert_eq!(read(&mut tracker, Some(&c), Some(0)), None);
    answered(&mut c, 3);
    assert_eq!(read(&mut tracker, Some(&c), Some(0)), Some(3));
}

#[test]
fn queues_flow_only_between_two_readings_of_one_counting() {
    let (mut c, mut tracker) = (born(1, 0), Tracker::new(0));
    assert_eq!(read(&mut tracker, Some(&c), None), None);
    answered(&mut c, 1);
    assert_eq!(
        read(&mut tracker, Some(&c), Some(0)),
        None,
        "not counted before"
    );
    answered(&mut c, 2);
    assert_eq!(read(&mut tracker, Some(&c), Some(0)), Some(2));
    answered(&mut c, 4);
    assert_eq!(
        read(&mut tracker, Some(&c), Some(1)),
        None,
        "it slept since counting began"
    );
    c.epoch = 1;
    answered(&mut c, 8);
    assert_eq!(read(&mut tracker, Some(&c), Some(1)), None, "counted anew");
    assert_eq!(tracker.connections().next().unwrap().bytes, 8 * 64);
    answered(&mut c, 16);
    assert_eq!(read(&mut tracker, Some(&c), Some(1)), Some(16));
}

#[test]
fn of_windows_what_each_counted_flows_and_the_pause_between_them_does_not() {
    let (mut c, mut tracker) = (born(1, 0), Tracker::of_windows());
    let queue = |c: &mut Connection, at, items| {
        c.sample.local[Item::Calls as usize][Queue::Unacked as usize].track(at, items);
        c.sample.at = at;
    };
    c.epoch = 1;
    // one message stays for 10 ns; another is there when the window ends, after 5
    queue(&mut c, 100, 1);
    queue(&mut c, 110, -1);
    queue(&mut c, 115, 1);
    c.sample.at = 120;
    assert_eq!(read(&mut tracker, Some(&c), Some(1)), Some(1));
    let flow = tracker.connections().next().unwrap().flow.unwrap();
    assert_eq!(flow.here(Item::Calls, Queue::Unacked).integral, 15);
    // the pause; it is still there when the next window begins, and leaves 7 ns later
    c.hold(2, 1_000);
    queue(&mut c, 1_007, -1);
    assert_eq!(read(&mut tracker, Some(&c), Some(2)), Some(1));
    let flow = tracker.connections().next().unwrap().flow.unwrap();
    assert_eq!(flow.here(Item::Calls, Queue::Unacked).integral, 7);
    // nothing of it in the window after
    assert_eq!(read(&mut tracker, Some(&c), Some(3)), None);
}

#[test]
fn segments_tell_which_share_was_counted_also_of_those_that_were_quiet() {
    let (mut c, mut tracker) = (born(1, 0), Tracker::of_windows());
    let segments = |tracker: &Tracker| tracker.connections().next().unwrap().segments;
    c.epoch = 1;
    c.vitals.segments = 10;
    read(&mut tracker, Some(&c), Some(1));
    assert_eq!(segments(&tracker), None, "nobody knows what passed before");
    // 90 pass by, then 10 are counted
    (c.epoch, c.segments_before, c.vitals.segments) = (2, 100, 110);
    read(&mut tracker, Some(&c), Some(2));
    assert_eq!(segments(&tracker), Some([100, 10]));
    let quiet = Reading {
        quiet: vec![Quiet {
            cookie: c.cookie,
            born: c.born,
            vitals: Vitals {
                segments: 150,
                ..Vitals::default()
            },
            nagle_off: false,
            app_nagle_off: false,
        }],
        ..Reading::default()
    };
    tracker.read(&quiet, Some(3));
    assert_eq!(segments(&tracker), Some([40, 0]));
    assert_eq!(tracker.connections().next().unwrap().stage, Stage::Open);
}
