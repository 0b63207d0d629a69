//! Single requests through client, link and server, event by event: the paper's Figure 1, and what
//! the closed form of [`crate::regret::costs`] is held against.

use std::collections::{BTreeMap, VecDeque};

use batchwise_core::tune::Arm;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand_distr::{Distribution as _, Exp};

use crate::regret::costs::{Costs, DELAYED_ACK};

/// A part of a request, as one send call hands it over.
#[derive(Clone, Copy, Debug)]
struct Piece {
    request: usize,
    last: bool,
}

#[derive(Debug)]
enum Event {
    /// The application wants to send.
    Due(usize),
    /// The client's CPU is done with what it did.
    ClientDone(Done),
    Segment(Vec<Piece>),
    ServerDone(Vec<usize>, u64),
    /// Responses arrive.
    Responses(Vec<usize>),
    /// Everything up to this segment was acknowledged.
    Ack(u64),
    /// The server owes an acknowledgment since the segment of this number.
    AckTimer(u64),
}

#[derive(Debug)]
enum Done {
    Wrote(Piece),
    /// Segments were sent, which took this long, ns.
    Sent(f64),
    Read(usize),
}

/// A client, a link and a server.
pub struct Requests {
    costs: Costs,
    arm: Arm,
    /// Requests that the server takes at once.
    most: usize,
    now: f64,
    /// By the bits of their time, and in the order in which they were caused.
    events: BTreeMap<(u64, u64), Event>,
    caused: u64,
    due: Vec<f64>,
    done: Vec<f64>,
    client: Client,
    server: Server,
}

#[derive(Default)]
struct Client {
    queue: VecDeque<Done>,
    busy: bool,
    held: Vec<Piece>,
    /// Segments.
    sent: u64,
    acked: u64,
}

#[derive(Default)]
struct Server {
    socket: VecDeque<Piece>,
    busy: bool,
    /// What the client sent together.
    arrived: u64,
    answered: u64,
    /// Segments that were not taken in yet.
    segments: f64,
}

impl Requests {
    fn new(costs: Costs, arm: Arm, most: usize) -> Self {
        Self {
            costs,
            arm,
            most,
            now: 0.0,
            events: BTreeMap::new(),
            caused: 0,
            due: Vec::new(),
            done: Vec::new(),
            client: Client::default(),
            server: Server::default(),
        }
    }

    /// `n` requests wait at the server at time 0; it takes up to `most` at once (Figure 1).
    pub fn waiting_at_server(costs: Costs, n: usize, most: usize) -> (f64, f64) {
        let mut sim = Self::new(costs, Arm::Off, most);
        sim.due = vec![0.0; n];
        sim.done = sim.due.clone();
        let last = |request| Piece {
            request,
            last: true,
        };
        sim.at(0.0, Event::Segment((0..n).map(last).collect()));
        sim.run()
    }

    /// `n` requests of a Poisson process of `load` a second.
    pub fn open_loop(costs: Costs, arm: Arm, load: f64, n: usize, seed: u64) -> (f64, f64) {
        let mut sim = Self::new(costs, arm, usize::MAX);
        let mut rng = StdRng::seed_from_u64(seed);
        let gap = Exp::new(load / 1e9).expect("a load is positive");
        let mut due = 0.0;
        for request in 0..n {
            due += gap.sample(&mut rng);
            sim.due.push(due);
            sim.done.push(due);
            sim.at(due, Event::Due(request));
        }
        sim.run()
    }

    fn at(&mut self, when: f64, event: Event) {
        self.caused += 1;
        // times are positive: their bits are in their order
        self.events.insert((when.to_bits(), self.caused), event);
    }

    /// Mean latency, and when the last response was done with, ns.
    fn run(mut self) -> (f64, f64) {
        while let Some(((when, _), event)) = self.events.pop_first() {
            self.now = f64::from_bits(when);
            self.happen(event);
        }
        let end = self.done.iter().copied().fold(0.0, f64::max);
        let waited: f64 = self.done.iter().zip(&self.due).map(|(e, d)| e - d).sum();
        (waited / self.done.len() as f64, end)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Due(request) => {
                for write in 1..=self.costs.writes {
                    let last = write == self.costs.writes;
                    self.client
                        .queue
                        .push_back(Done::Wrote(Piece { request, last }));
                }
                self.client_works();
            }
            Event::ClientDone(done) => {
                self.client.busy = false;
                match done {
                    Done::Wrote(piece) => {
                        self.client.held.push(piece);
                        self.push();
                    }
                    Done::Read(request) => self.done[request] = self.now,
                    Done::Sent(_) => {}
                }
                self.client_works();
            }
            Event::Segment(pieces) => {
                self.server.segments += self.segments_of(&pieces);
                self.server.arrived += 1;
                self.server.socket.extend(pieces);
                self.at(self.now + DELAYED_ACK, Event::AckTimer(self.server.arrived));
                self.server_works();
            }
            Event::ServerDone(requests, acks) => {
                self.server.busy = false;
                let there = self.now + self.costs.rtt / 2.0;
                if !requests.is_empty() {
                    self.server.answered = acks;
                    self.at(there + self.costs.ack_wait, Event::Ack(acks));
                    self.at(there, Event::Responses(requests));
                }
                self.server_works();
            }
            Event::Responses(requests) => {
                self.client
                    .queue
                    .extend(requests.into_iter().map(Done::Read));
                self.client_works();
            }
            Event::AckTimer(segment) => {
                if self.server.answered < segment {
                    self.server.answered = segment;
                    self.at(self.now + self.costs.rtt / 2.0, Event::Ack(segment));
                }
            }
            Event::Ack(segment) => {
                self.client.acked = self.client.acked.max(segment);
                self.push();
                self.client_works();
            }
        }
    }

    fn client_works(&mut self) {
        if self.client.busy {
            return;
        }
        let Some(done) = self.client.queue.pop_front() else {
            return;
        };
        let cost = match done {
            Done::Wrote(_) => self.costs.send,
            Done::Sent(cost) => cost,
            Done::Read(_) => self.costs.c,
        };
        self.client.busy = true;
        self.at(self.now + cost, Event::ClientDone(done));
    }

    fn segments_of(&self, pieces: &[Piece]) -> f64 {
        let each = self.costs.bytes / f64::from(self.costs.writes);
        (pieces.len() as f64 * each / self.costs.mss).ceil()
    }

    /// Sends what may leave.
    fn push(&mut self) {
        let each = self.costs.bytes / f64::from(self.costs.writes);
        let full = self.client.held.len() as f64 * each >= self.costs.fill;
        let free = self.arm == Arm::Off || self.client.acked == self.client.sent || full;
        if self.client.held.is_empty() || !free {
            return;
        }
        let pieces = std::mem::take(&mut self.client.held);
        let cost = self.segments_of(&pieces) * self.costs.packet_client;
        self.client.sent += 1;
        self.client.queue.push_front(Done::Sent(cost));
        let there = self.now + cost + self.costs.rtt / 2.0;
        self.at(there, Event::Segment(pieces));
    }

    fn server_works(&mut self) {
        if self.server.busy || self.server.socket.is_empty() {
            return;
        }
        let mut requests = Vec::new();
        while requests.len() < self.most {
            let Some(piece) = self.server.socket.pop_front() else {
                break;
            };
            if piece.last {
                requests.push(piece.request);
            }
        }
        let cost = self.costs.beta
            + self.costs.alpha * requests.len() as f64
            + self.costs.packet_server * std::mem::take(&mut self.server.segments);
        self.server.busy = true;
        let done = Event::ServerDone(requests, self.server.arrived);
        self.at(self.now + cost, done);
    }
}
