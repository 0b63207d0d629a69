//! The queues of a socket against what Little's law takes them for (§3.1 of the paper): items each of which enters and
//! leaves at its own time. `total` is how many have left, `integral` the time that all have spent in the queue.

use batchwise_twins::types::{sense_endpoint, sense_queue, sense_sock_view};
use batchwise_twins::{bw_twin_drain, bw_twin_read, bw_twin_resync, bw_twin_segment, bw_twin_send};
use proptest::prelude::*;

/// Bytes of a message.
const MESSAGE: u32 = 10;
/// So many of a queue's items are followed each by itself.
const FOLLOWED: usize = 32;

/// The items of a queue in the order in which they leave.
#[derive(Default)]
struct Items {
    entered: Vec<u64>,
    left: Vec<u64>,
    most: usize,
}

impl Items {
    fn enter(&mut self, now: u64) {
        self.entered.push(now);
        self.most = self.most.max(self.waiting());
    }

    fn leave(&mut self, now: u64, items: usize) {
        self.left.extend(std::iter::repeat_n(now, items));
    }

    fn waiting(&self) -> usize {
        self.entered.len() - self.left.len()
    }

    /// What the queue is to say at `now`: items in it, `total`, `integral`.
    fn queue(&self, now: u64) -> (usize, u64, u64) {
        let until = self.left.iter().copied().chain(std::iter::repeat(now));
        let stays = self.entered.iter().zip(until);
        let stayed = stays.map(|(entered, left)| left - entered).sum();
        (self.waiting(), self.left.len() as u64, stayed)
    }
}

fn told(q: &sense_queue, now: u64) -> (usize, u64, u64) {
    let stayed = q.integral + (now - q.time) * u64::from(q.size);
    (q.size as usize, q.total, stayed)
}

/// One end: what its application sends is acknowledged, what arrives is read.
struct End {
    e: Box<sense_endpoint>,
    v: sense_sock_view,
    una: u32,
    now: u64,
    unacked: Items,
    unread: Items,
}

impl End {
    fn new() -> Self {
        let mut e = Box::new(sense_endpoint::default());
        let v = sense_sock_view::default();
        bw_twin_resync(&mut e, 1, &v, 0);
        Self {
            e,
            v,
            una: 0,
            now: 1,
            unacked: Items::default(),
            unread: Items::default(),
        }
    }

    fn send(&mut self) {
        self.now += 1;
        let end = self.v.write_seq + MESSAGE;
        bw_twin_send(&mut self.e, self.now, &self.v, end, 0, 1448);
        self.v.write_seq = end;
        self.unacked.enter(self.now);
    }

    fn acknowledged(&mut self, messages: usize) {
        self.now += 1;
        self.una += messages as u32 * MESSAGE;
        bw_twin_segment(
            &mut self.e,
            self.now,
            &self.v,
            self.v.rcv_nxt,
            0,
            self.una,
            1,
            0,
        );
        self.unacked.leave(self.now, messages);
    }

    fn arrive(&mut self) {
        self.now += 1;
        bw_twin_segment(
            &mut self.e,
            self.now,
            &self.v,
            self.v.rcv_nxt,
            MESSAGE,
            self.una,
            1,
            1,
        );
        self.v.rcv_nxt += MESSAGE;
        self.unread.enter(self.now);
    }

    fn read(&mut self, messages: usize) {
        self.now += 1;
        self.v.copied_seq += messages as u32 * MESSAGE;
        bw_twin_read(&mut self.e, self.now, &self.v);
        self.unread.leave(self.now, messages);
    }

    /// Calls, and as many segments.
    fn check(&mut self) {
        bw_twin_drain(&mut self.e);
        for (queue, items) in [&self.unacked, &self.unread].into_iter().enumerate() {
            let truth = items.queue(self.now);
            for unit in [0, 2] {
                let told = told(&self.e.rec.q[unit][queue], self.now);
                if items.most <= FOLLOWED {
                    assert_eq!(told, truth, "unit {unit} queue {queue}");
                }
                // some leave with those behind them
                assert_eq!(told.0 + told.1 as usize, items.entered.len());
                assert!(told.1 <= truth.1 && told.2 >= truth.2, "{told:?} {truth:?}");
                assert!(items.waiting() > 0 || told.0 == 0, "{} stay behind", told.0);
            }
        }
    }
}

#[test]
fn all_leave_however_many_have_waited() {
    let mut end = End::new();
    // what sends later waits behind many
    for many in [200_000, 1, 70_000] {
        for _ in 0..many {
            end.send();
            end.arrive();
        }
        end.acknowledged(end.unacked.waiting() - 1);
        end.read(end.unread.waiting() - 1);
    }
    end.acknowledged(1);
    end.read(1);
    end.check();
}

#[test]
fn a_call_of_any_length_leaves_with_all_its_segments() {
    let mut e = Box::new(sense_endpoint::default());
    let mut v = sense_sock_view::default();
    bw_twin_resync(&mut e, 1, &v, 0);
    let (segments, mss) = (200_000, 1000);
    bw_twin_send(&mut e, 2, &v, segments * mss, 0, mss);
    v.write_seq = segments * mss;
    bw_twin_segment(&mut e, 12, &v, 0, 0, segments * mss, 1, 0);
    bw_twin_drain(&mut e);
    let all = u64::from(segments);
    assert_eq!(told(&e.rec.q[2][0], 12), (0, all, 10 * all));
}

proptest! {
    #[test]
    fn each_stays_from_its_own_entry_to_its_own_exit(
        steps in proptest::collection::vec((0usize..4, 0usize..40), 1..100)
    ) {
        let mut end = End::new();
        for (what, many) in steps {
            match what {
                0 => (0..many).for_each(|_| end.send()),
                1 => (0..many).for_each(|_| end.arrive()),
                2 => end.acknowledged(many.min(end.unacked.waiting())),
                _ => end.read(many.min(end.unread.waiting())),
            }
            end.check();
        }
        end.acknowledged(end.unacked.waiting());
        end.read(end.unread.waiting());
        end.check();
    }
}
