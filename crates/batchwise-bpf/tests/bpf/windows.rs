//! Windows begin at any time of a connection: whatever is under way then, the mean of the requests in them is
//! right. Against a server that is simulated: it reads all that is there, and answers it with one write.

use batchwise_twins::types::{sense_asks, sense_hist};
use batchwise_twins::{
    bw_twin_asks_answer, bw_twin_asks_begin, bw_twin_asks_read_answers, bw_twin_asks_reset,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// Bytes of a request and of its response.
const REQUEST: u32 = 101;
const RESPONSE: u32 = 5;
/// ns: one way, the server's time for a request, and until a response is read.
const WAY: u64 = 10_000;
const SERVICE: u64 = 10_000;
const READ: u64 = 5_000;
/// From one window to the next, and how long each is, ns.
const SLOT: u64 = 250_000_000;
const WINDOW: u64 = 60_000_000;
const WINDOWS: u64 = 60;

#[derive(Clone, Copy, Debug)]
enum Load {
    /// So many requests a second, whatever the server does.
    Open(f64),
    /// The next request after each response.
    OneAfterAnother,
}

#[derive(Clone, Copy)]
enum Event {
    Send(usize),
    /// A response to the requests before the first number; the server had those before the second.
    Response(usize, usize),
    Read(usize),
}

/// What passes on the connection, in order. The server stands still for `stall` ns around each window's
/// beginning, as it does while programs are attached on its CPU.
fn events(load: Load, stall: u64, rng: &mut StdRng) -> Vec<(u64, Event)> {
    let end = (WINDOWS + 1) * SLOT;
    let mut sends = vec![SLOT / 7];
    if let Load::Open(rate) = load {
        while sends.last() < Some(&end) {
            let gap = -rng.random::<f64>().max(1e-9).ln() * 1e9 / rate;
            sends.push(sends[sends.len() - 1] + gap as u64);
        }
    }
    let mut events = Vec::new();
    let (mut free, mut answered) = (0, 0);
    while answered < sends.len() && sends[answered] < end {
        let mut begin = free.max(sends[answered] + WAY);
        let in_stall = (begin + stall / 2) % SLOT;
        if in_stall < stall {
            begin += stall - in_stall;
        }
        let there_by = |time| sends.partition_point(|sent| sent + WAY <= time);
        let taken = there_by(begin);
        free = begin + SERVICE * (taken - answered) as u64;
        let response = Event::Response(taken, there_by(free));
        events.push((free + WAY, response));
        events.push((free + WAY + READ, Event::Read(taken)));
        answered = taken;
        if let Load::OneAfterAnother = load {
            sends.push(free + WAY + READ + 1_000);
        }
    }
    let all = sends.iter().enumerate();
    events.extend(all.map(|(i, at)| (*at, Event::Send(i))));
    events.sort_by_key(|(at, _)| *at);
    events
}

/// How far the mean of all windows is off.
fn error(load: Load, stall: u64) -> f64 {
    let events = events(load, stall, &mut StdRng::seed_from_u64(7));
    let (mut asks, mut found) = (Box::<sense_asks>::default(), Box::<sense_hist>::default());
    let (mut unmatched, mut guessed) = (0, 0);
    let (mut sent, mut answered, mut read, mut acked) = (vec![], 0, 0, 0);
    // when a request was sent that is followed in this window
    let mut followed: Vec<Option<u64>> = Vec::new();
    let (mut slot, mut truth) = (0, (0, 0));
    for (at, event) in events {
        let counts = at >= SLOT && at % SLOT < WINDOW;
        if counts && slot != at / SLOT {
            slot = at / SLOT;
            let (una, end) = (acked as u32 * REQUEST, sent.len() as u32 * REQUEST);
            bw_twin_asks_reset(&mut asks, una, end);
            followed.fill(None);
        }
        match event {
            Event::Send(i) => {
                assert_eq!(i, sent.len());
                sent.push(at);
                followed.push(counts.then_some(at));
                if counts {
                    let end = sent.len() as u32 * REQUEST;
                    bw_twin_asks_begin(&mut asks, end, at, &mut unmatched);
                }
            }
            Event::Response(upto, had) => {
                let bytes = (upto - answered) as u32 * RESPONSE;
                (answered, acked) = (upto, had);
                if counts {
                    let (end, ack) = (upto as u32 * RESPONSE, had as u32 * REQUEST);
                    bw_twin_asks_answer(&mut asks, end, bytes, ack, &mut guessed);
                }
            }
            Event::Read(upto) => {
                if counts {
                    let end = upto as u32 * RESPONSE;
                    bw_twin_asks_read_answers(&mut asks, &mut found, end, at);
                    for sent in followed[read..upto].iter().flatten() {
                        truth = (truth.0 + at - sent, truth.1 + 1);
                    }
                }
                read = upto;
            }
        }
    }
    let requests: u32 = found.count.iter().sum();
    let mean = found.sum as f64 / f64::from(requests);
    mean / (truth.0 as f64 / f64::from(truth.1)) - 1.0
}

#[test]
fn whenever_a_window_begins_the_mean_of_its_requests_is_right() {
    let loads = [
        Load::OneAfterAnother,
        Load::Open(2_000.0),
        Load::Open(10_000.0),
        Load::Open(80_000.0),
    ];
    for load in loads {
        for stall in [0, 2_000_000] {
            let error = error(load, stall);
            println!("{load:?}, stall of {stall} ns: {:+.2} %", 100.0 * error);
            // 160 requests pile up in the last, and 128 are followed
            assert!(error.abs() < 0.04, "{load:?} {stall}: {error}");
        }
    }
}
