//! Turns, as lib/turns.h counts them at either end: however many writes, reads and segments make one.

use batchwise_twins::types::{sense_endpoint, sense_record_flag, sense_sock_view, sense_turns};
use batchwise_twins::{bw_twin_drain, bw_twin_read, bw_twin_resync, bw_twin_segment, bw_twin_send};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// One end of a connection.
struct End {
    e: Box<sense_endpoint>,
    v: sense_sock_view,
    now: u64,
}

impl End {
    fn new(flags: u32) -> Self {
        let mut e = Box::new(sense_endpoint::default());
        e.rec.flags = flags;
        let v = sense_sock_view::default();
        bw_twin_resync(&mut e, MS, &v, 0);
        Self { e, v, now: MS }
    }

    fn client() -> Self {
        Self::new(0)
    }

    fn server() -> Self {
        Self::new(sense_record_flag::SENSE_F_SERVER.0)
    }

    fn pass(&mut self, ns: u64) -> &mut Self {
        self.now += ns;
        self
    }

    /// Sends, and it leaves at once.
    fn send(&mut self, bytes: u32) -> &mut Self {
        let end = self.v.write_seq + bytes;
        bw_twin_send(&mut self.e, self.now, &self.v, end, 0, 1448);
        (self.v.write_seq, self.v.last_tx) = (end, self.now);
        self.v.snd_nxt = end;
        self
    }

    /// So many bytes of what was sent last have not left.
    fn hold(&mut self, bytes: u32) -> &mut Self {
        self.v.snd_nxt = self.v.write_seq - bytes;
        self
    }

    /// A segment arrives from a peer that has received up to `ack`.
    fn hear_with(&mut self, bytes: u32, ack: u32) -> &mut Self {
        let seq = self.v.rcv_nxt;
        bw_twin_segment(&mut self.e, self.now, &self.v, seq, bytes, ack, 1, 1);
        self.v.rcv_nxt += bytes;
        self
    }

    /// Likewise from one that has all.
    fn hear(&mut self, bytes: u32) -> &mut Self {
        self.hear_with(bytes, self.v.write_seq)
    }

    fn read(&mut self) -> &mut Self {
        self.v.copied_seq = self.v.rcv_nxt;
        bw_twin_read(&mut self.e, self.now, &self.v);
        self
    }

    fn turns(&mut self) -> sense_turns {
        bw_twin_drain(&mut self.e);
        self.e.rec.turns
    }
}

#[test]
fn a_clients_turn_lasts_from_the_first_write_to_the_last_read_before_the_next() {
    let mut client = End::client();
    // header and body apart; the answer in two writes, the second of which waits for an acknowledgment
    client.send(100).pass(MS).send(50).pass(MS);
    client.hear(10).read().pass(43 * MS).hear(10).read();
    assert_eq!(
        client.turns().over,
        0,
        "that it is over only the next one shows"
    );
    client.pass(500 * MS).send(100);
    let turns = client.turns();
    assert_eq!((turns.over, turns.took, turns.bytes), (1, 45 * MS, 150));
    assert_eq!(turns.crossed, 0);
}

#[test]
fn a_servers_turn_lasts_until_its_answers_last_byte_has_left() {
    let mut server = End::server();
    server.hear(100).pass(MS).read().send(10).send(10);
    // the second write is held back until the first is acknowledged, and leaves then
    server.pass(40 * MS).hear_with(0, 10);
    server.v.last_tx = server.now;
    server.pass(3 * MS).hear(100);
    let turns = server.turns();
    // the time is kept in units of 1,024 ns
    assert_eq!((turns.over, turns.bytes), (1, 100));
    assert!(turns.took.abs_diff(41 * MS) < 1_024, "{turns:?}");
}

#[test]
fn an_answer_left_when_it_did_however_long_ago() {
    for minutes in [1, 74, 200] {
        let mut server = End::server();
        server.hear(100).pass(MS).read().pass(MS).send(10);
        server.pass(minutes * 60_000 * MS).hear(100);
        let turns = server.turns();
        assert!(turns.took.abs_diff(2 * MS) < 1_024, "{turns:?}");
    }
}

#[test]
fn what_waits_to_leave_is_unsent_and_held_where_nagles_algorithm_holds_it() {
    let mut server = End::server();
    server.v.nagled = 1448;
    server.hear(100).pass(MS).read().send(10).send(10).hold(10);
    server.pass(40 * MS).hear_with(0, 10).hold(0);
    // a long answer waits for the window
    server
        .pass(3 * MS)
        .hear(100)
        .read()
        .send(100_000)
        .hold(90_000);
    server.pass(2 * MS).hear_with(0, 20).hold(0);
    server.pass(5 * MS).read();
    server.turns();
    let unsent = server.e.rec.unsent;
    assert_eq!((unsent.time, unsent.held), (42 * MS, 40 * MS));
}

#[test]
fn requests_that_wait_for_no_answer_cross_those_that_come() {
    let mut client = End::client();
    client.send(100).pass(MS).send(100).pass(MS);
    // the first one's answer left before the second had arrived
    client.hear_with(10, 100).read();
    client.pass(MS).hear(10).read().pass(MS).send(100);
    let turns = client.turns();
    assert_eq!((turns.over, turns.crossed), (1, 1));

    let mut server = End::server();
    server.hear(100).read().send(10).pass(MS);
    // a client that asks before it has the answer
    server.hear_with(100, 0).read().send(10).pass(MS).hear(100);
    let turns = server.turns();
    assert_eq!((turns.over, turns.crossed), (2, 1));
}

#[test]
fn a_client_that_sends_once_more_than_in_the_turn_before_has_asked_for_more() {
    let mut client = End::client();
    for sends in [2, 2, 1, 1, 3] {
        for _ in 0..sends {
            client.pass(MS).send(100);
        }
        client.pass(MS).hear(10).read();
    }
    client.pass(MS).send(100);
    let turns = client.turns();
    assert_eq!((turns.over, turns.crossed), (5, 2));
}

#[test]
fn a_client_that_keeps_several_requests_under_way_from_its_first_turn_on_takes_no_turns() {
    let born = || End::new(sense_record_flag::SENSE_F_BIRTH.0);
    let mut pipelining = born();
    pipelining.send(50).send(50).send(50).send(50);
    for _ in 0..10 {
        pipelining.pass(MS).hear(20).read().send(50);
    }
    let turns = pipelining.turns();
    assert_eq!((turns.over, turns.crossed, turns.strays), (10, 9, 9));

    // one that waits for all answers has nothing under way
    let mut waiting = born();
    waiting.send(50).send(50).send(50).send(50);
    waiting.pass(MS).hear(80).read();
    for _ in 0..10 {
        waiting.pass(MS).send(50).pass(MS).hear(20).read();
    }
    waiting.pass(MS).send(50);
    let turns = waiting.turns();
    assert_eq!((turns.over, turns.crossed, turns.strays), (11, 1, 0));
}

#[test]
fn what_was_under_way_before_counting_is_no_turn() {
    let mut client = End::client();
    client.hear(10).read().pass(MS).send(100);
    assert_eq!(client.turns().over, 0);
    let mut server = End::server();
    server.send(10).pass(MS).hear(100);
    assert_eq!(server.turns().over, 0);
}

proptest! {
    #[test]
    fn turns_are_counted_whole_whatever_makes_them(
        turns in proptest::collection::vec(
            (proptest::collection::vec(1u32..3_000, 1..5), proptest::collection::vec(1u32..3_000, 1..40), 1u64..50_000),
            1..40,
        ),
    ) {
        let (mut client, mut server) = (End::client(), End::server());
        let (mut took, mut bytes) = (0, 0);
        for (asks, answers, step) in &turns {
            for ask in asks {
                client.pass(*step).send(*ask);
                server.pass(*step).hear(*ask).read();
                bytes += u64::from(*ask);
            }
            for answer in answers {
                client.pass(*step).hear(*answer).read();
                server.pass(*step).send(*answer);
            }
            took += step * (asks.len() + answers.len() - 1) as u64;
        }
        let last = turns.len() as u32;
        client.pass(MS).send(1);
        server.pass(MS).hear(1);
        // a client crosses where its sends are not as many as in the turn before, a server never
        let sends = turns.windows(2).filter(|two| two[0].0.len() != two[1].0.len());
        let crossed = sends.count() as u32;
        for (end, crossed) in [(&mut client, crossed), (&mut server, 0)] {
            let counted = end.turns();
            prop_assert_eq!((counted.over, counted.crossed), (last, crossed));
            prop_assert_eq!((counted.took, counted.bytes), (took, bytes));
        }
    }
}
