//! Requests are matched with the responses that answer them.

use std::collections::VecDeque;

use batchwise_twins::types::{sense_asks, sense_hist};
use batchwise_twins::{
    bw_twin_asks_answer, bw_twin_asks_answered, bw_twin_asks_begin, bw_twin_asks_censor,
    bw_twin_asks_read_answers, bw_twin_asks_reset, bw_twin_asks_take, bw_twin_hist_bucket,
};
use proptest::prelude::*;

/// Bytes of a request and of its response.
type Command = (u32, u32);
const SET: Command = (16_400, 5);
const GET: Command = (36, 16_395);

/// A client's end, with a truth beside it.
#[derive(Default)]
struct Client {
    asks: Box<sense_asks>,
    found: Box<sense_hist>,
    truth: Box<sense_hist>,
    sent: VecDeque<(u64, u32)>,
    end: u32,
    heard: u32,
    now: u64,
    unmatched: u32,
    guessed: u32,
}

impl Client {
    /// It knows from one request of each kind how long a response is, and that the server answers fewer than it has.
    fn taught() -> Self {
        let mut client = Self::default();
        for command in [SET, GET] {
            client.send(command);
            client.now += 10_000;
            client.hear(1);
        }
        client.see_in_hand();
        client
    }

    fn see_in_hand(&mut self) {
        for _ in 0..4 {
            (0..4).for_each(|_| self.send(SET));
            self.hear(2);
            self.hear(2);
        }
    }

    fn send(&mut self, (request, response): Command) {
        self.end = self.end.wrapping_add(request);
        self.sent.push_back((self.now, response));
        bw_twin_asks_begin(&mut self.asks, self.end, self.now, &mut self.unmatched);
    }

    /// A response to so many requests comes, and is read; the server had all that was sent.
    fn hear(&mut self, answered: usize) {
        self.hear_with(answered, self.end);
    }

    /// The server had what ends at `ack`.
    fn hear_with(&mut self, answered: usize, ack: u32) {
        let bytes = self
            .sent
            .iter()
            .take(answered)
            .map(|(_, bytes)| bytes)
            .sum();
        self.heard = self.heard.wrapping_add(bytes);
        let (asks, heard) = (&mut self.asks, self.heard);
        bw_twin_asks_answer(asks, heard, bytes, ack, &mut self.guessed);
        bw_twin_asks_read_answers(asks, &mut self.found, heard, self.now);
        for (sent, _) in self.sent.drain(..answered) {
            let bucket = bw_twin_hist_bucket((self.now >> 5 << 5) - (sent >> 5 << 5));
            self.truth.count[bucket as usize] += 1;
        }
    }
}

fn counts(h: &sense_hist) -> u32 {
    h.count.iter().sum()
}

proptest! {
    #[test]
    fn responses_of_one_size_are_told_apart_however_the_server_puts_them_together(
        gets in any::<bool>(),
        acts in proptest::collection::vec((any::<bool>(), 1u64..100_000, 1usize..8), 1..300),
    ) {
        let mut client = Client::taught();
        for (sends, time, several) in acts {
            client.now += time;
            if sends && client.sent.len() < 32 {
                client.send(if gets { GET } else { SET });
            } else if !client.sent.is_empty() {
                client.hear(several.min(client.sent.len()));
            }
        }
        prop_assert_eq!(&client.found.count[..], &client.truth.count[..]);
        prop_assert_eq!((client.unmatched, client.guessed), (0, 0));
    }

    #[test]
    fn a_server_that_answers_all_that_it_has_is_matched_exactly(
        rounds in proptest::collection::vec(
            (proptest::collection::vec(any::<bool>(), 1..8), 1u64..100_000),
            1..100,
        ),
    ) {
        let mut client = Client::taught();
        for (requests, time) in rounds {
            for gets in &requests {
                client.now += time / 8;
                client.send(if *gets { GET } else { SET });
            }
            client.now += time;
            client.hear(requests.len());
        }
        prop_assert_eq!(&client.found.count[..], &client.truth.count[..]);
    }
}

#[test]
fn whether_a_server_answers_one_after_another_or_all_at_once_with_one_response_is_not_known() {
    let mut client = Client::default();
    for _ in 0..64 {
        client.send(SET);
    }
    for _ in 0..1_000 {
        client.now += 10_000;
        client.hear(1);
        client.send(SET);
    }
    assert!(client.guessed > 900, "{}", client.guessed);
}

proptest! {
    #[test]
    fn a_length_that_was_taken_to_be_longer_at_first_is_found(
        first in 1usize..100,
        acts in proptest::collection::vec((1usize..20, 1u64..100_000, 1usize..8), 1..100),
    ) {
        let mut client = Client::default();
        (0..first).for_each(|_| client.send(SET));
        client.hear(first);
        for _ in 0..12 {
            client.send(SET);
            client.hear(1);
        }
        client.see_in_hand();
        client.truth = client.found.clone();
        client.guessed = 0;
        for (sends, time, several) in acts {
            client.now += time;
            for _ in 0..sends.min(64 - client.sent.len()) {
                client.send(SET);
            }
            client.hear(several.min(client.sent.len()));
        }
        prop_assert_eq!(&client.found.count[..], &client.truth.count[..]);
        prop_assert_eq!(client.guessed, 0);
    }
}

#[test]
fn what_a_first_response_was_taken_for_is_set_right_only_among_requests_of_its_size() {
    let mut client = Client::default();
    client.send(SET);
    client.hear(1);
    client.see_in_hand();
    client.send((1 << 9, 500));
    client.hear(1);
    // their length is not known, and the first three are taken for one
    (0..8).for_each(|_| client.send((36, 100)));
    let before = counts(&client.found);
    client.hear(3);
    client.hear(1);
    assert_eq!(counts(&client.found) - before, 4);
}

#[test]
fn a_server_that_answers_one_after_another_what_it_has_shows_itself() {
    let mut client = Client::default();
    for round in 0..40 {
        (0..5).for_each(|_| client.send(SET));
        for _ in 0..5 {
            client.now += 10_000;
            client.hear(1);
        }
        if round == 8 {
            (client.truth, client.guessed) = (client.found.clone(), 0);
        }
    }
    assert!(client.found.count == client.truth.count);
    assert_eq!(client.guessed, 0);
}

#[test]
fn a_long_response_is_that_of_the_request_that_asks_for_much_and_not_of_all_before_it() {
    let mut client = Client::taught();
    let before = counts(&client.found);
    for command in [SET, SET, GET, SET] {
        client.send(command);
    }
    // the server writes each by itself, having read all four
    for answered in 1..=4 {
        client.now += 50_000;
        client.hear(1);
        assert_eq!(counts(&client.found) - before, answered);
    }
}

#[test]
fn requests_that_are_never_answered_do_not_hold_up_the_others_for_ever() {
    let mut client = Client::taught();
    for _ in 0..3 * 128 {
        client.send(SET);
        client.sent.pop_back();
        client.send(SET);
        client.now += 10_000;
        client.hear(1);
    }
    let under_way = client.asks.head - client.asks.tail;
    assert!(under_way < 128, "{under_way}");
}

#[test]
fn a_window_that_begins_amid_a_pipeline_gives_no_request_the_response_to_an_older_one() {
    let mut client = Client::taught();
    for _ in 0..3 {
        client.send(SET);
    }
    bw_twin_asks_reset(&mut client.asks, client.end - 3 * SET.0, client.end);
    // the server answers all that it had when it began, and acknowledges what has come meanwhile
    let mut answers = 3;
    for round in 0..20 {
        client.now += 10_000;
        client.send(SET);
        client.now += 10_000;
        client.send(GET);
        client.now += 10_000;
        client.hear(std::mem::replace(&mut answers, 2));
        if round == 0 {
            client.truth = client.found.clone(); // what came before is not followed
        }
    }
    assert_eq!(&client.found.count[..], &client.truth.count[..]);
}

/// A request, while an older one is under way.
enum Sent {
    /// Once that is answered.
    Later,
    Before,
    /// The response is to both.
    AnsweredToo,
}

#[test]
fn a_window_that_begins_while_a_request_is_under_way_gives_the_next_its_own_response() {
    for sent in [Sent::Later, Sent::Before, Sent::AnsweredToo] {
        let mut client = Client::taught();
        client.send(SET);
        bw_twin_asks_reset(&mut client.asks, client.end - SET.0, client.end);
        client.now += 10_000;
        let old = client.end;
        match sent {
            Sent::Later => client.hear_with(1, old),
            Sent::Before => {
                client.send(SET);
                client.hear_with(1, old);
            }
            Sent::AnsweredToo => {
                client.send(SET);
                client.hear(2);
            }
        }
        client.truth = client.found.clone();
        for _ in 0..20 {
            if client.sent.is_empty() {
                client.send(SET);
            }
            client.now += 10_000;
            client.hear(1);
            client.now += 500_000;
        }
        assert!(client.found.count == client.truth.count);
    }
}

#[test]
fn requests_of_any_size_have_a_length_of_response() {
    let mut client = Client::default();
    for command in [(1, 9), (1 << 17, 5), (1 << 20, 5), (1, 9)] {
        client.send(command);
        client.hear(1);
    }
    let learnt: Vec<_> = client.asks.length.iter().filter(|n| **n > 0).collect();
    assert_eq!(learnt, [&9, &5]);
}

#[test]
fn a_bucket_is_narrow_and_they_are_in_order() {
    let mut last = 0;
    for ns in (0..1u64 << 22).step_by(7).chain((22..50).map(|b| 1 << b)) {
        let bucket = bw_twin_hist_bucket(ns);
        assert!(
            bucket >= last && bucket < 897,
            "{ns}: {bucket} after {last}"
        );
        last = bucket;
    }
    let longest = (1 << 37) - 1;
    assert_eq!(bw_twin_hist_bucket(longest), 895);
    // they have a bucket of their own: how long they took it does not say
    for longer in [longest + 1, 1 << 40, u64::MAX] {
        assert_eq!(bw_twin_hist_bucket(longer), 896);
    }
}

proptest! {
    #[test]
    fn a_request_is_as_old_as_it_is_however_long_it_takes(
        born in any::<u32>(),
        lives in proptest::collection::vec((0u64..400_000_000_000, any::<bool>()), 1..60),
    ) {
        let (mut asks, mut found) = (Box::<sense_asks>::default(), Box::<sense_hist>::default());
        let (mut now, mut unmatched) = (u64::from(born), 0);
        let mut sent = VecDeque::new();
        let (mut begun, mut sum) = (0, 0);
        for (time, begins) in lives {
            now += time;
            if begins {
                begun += 1;
                bw_twin_asks_begin(&mut asks, begun, now, &mut unmatched);
                sent.push_back(now);
            } else if let Some(at) = sent.pop_front() {
                let before = found.sum;
                bw_twin_asks_take(&mut asks, begun - sent.len() as u32);
                bw_twin_asks_answered(&mut asks, &mut found, begun, now);
                let (took, truth) = (found.sum - before, now - at);
                // as fine as a bucket is wide
                prop_assert!(took.abs_diff(truth) <= 32 + truth / 64, "{took} for {truth}");
                sum += 1;
            }
        }
        prop_assert_eq!(counts(&found), sum);
        let before = found.sum;
        bw_twin_asks_censor(&mut asks, &mut found, 0, now);
        let ages: u64 = sent.iter().map(|at| now - at).sum();
        prop_assert!((found.sum - before).abs_diff(ages) <= 32 * 60 + ages / 64);
    }
}

#[test]
fn a_servers_request_lasts_from_its_arrival_to_the_send_after_it_was_read() {
    let (mut asks, mut found) = (Box::<sense_asks>::default(), Box::<sense_hist>::default());
    let mut unmatched = 0;
    bw_twin_asks_begin(&mut asks, 64, 1_000, &mut unmatched);
    bw_twin_asks_begin(&mut asks, 128, 2_000, &mut unmatched);
    bw_twin_asks_take(&mut asks, 64);
    bw_twin_asks_answered(&mut asks, &mut found, 64, 9_000);
    assert_eq!(counts(&found), 1, "the second was not read yet");
    bw_twin_asks_take(&mut asks, 128);
    bw_twin_asks_answered(&mut asks, &mut found, 128, 12_000);
    assert_eq!(counts(&found), 2);
    assert!((17_000..=19_000).contains(&found.sum), "{}", found.sum);
}

#[test]
fn what_is_under_way_is_told_with_its_age_and_nothing_is_lost_where_there_is_no_room() {
    let (mut asks, mut found) = (Box::<sense_asks>::default(), Box::<sense_hist>::default());
    let mut unmatched = 0;
    for n in 0..130 {
        bw_twin_asks_begin(&mut asks, 64 * (n + 1), 1_000, &mut unmatched);
    }
    bw_twin_asks_censor(&mut asks, &mut found, 0, 33_000);
    assert_eq!((unmatched, counts(&found)), (0, 130));
    assert_eq!(found.count[bw_twin_hist_bucket(32_000) as usize], 130);
    // a server reads them all, and answers
    bw_twin_asks_take(&mut asks, 64 * 130);
    bw_twin_asks_answered(&mut asks, &mut found, 64 * 130, 65_000);
    assert_eq!((counts(&found), asks.merged), (260, 0));
}

#[test]
fn requests_that_share_an_entry_are_as_old_as_they_are_when_an_era_begins() {
    let (mut asks, mut found) = (Box::<sense_asks>::default(), Box::<sense_hist>::default());
    let mut unmatched = 0;
    // an era is 34 s, and times are told in one for 69
    for n in 0..130 {
        let at = if n < 128 {
            68_600_000_000
        } else {
            68_800_000_000
        };
        bw_twin_asks_begin(&mut asks, 64 * (n + 1), at, &mut unmatched);
    }
    bw_twin_asks_censor(&mut asks, &mut found, 0, 68_900_000_000);
    let ages: u64 = 128 * 300_000_000 + 2 * 100_000_000;
    assert_eq!((unmatched, counts(&found)), (0, 130));
    assert!(found.sum.abs_diff(ages) < 1_000_000, "{}", found.sum);
}
