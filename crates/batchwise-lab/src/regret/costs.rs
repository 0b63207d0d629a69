//! What messages cost a client, a link and a server (§2 of the paper), and what follows for the mean
//! latency and the capacity of each arm in closed form.

use batchwise_core::tune::Arm;

/// TCP_DELACK_MIN, ns.
pub const DELAYED_ACK: f64 = 40e6;

/// Fixed costs, ns of CPU time unless told otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// A request at the server (the paper's α).
    pub alpha: f64,
    /// A batch of requests at the server (β): waking, reading, writing.
    pub beta: f64,
    /// A response at the client (c).
    pub c: f64,
    /// A send call at the client.
    pub send: f64,
    /// Sending a segment, at the client.
    pub packet_client: f64,
    /// Receiving a segment, at the server.
    pub packet_server: f64,
    /// The link's round trip.
    pub rtt: f64,
    /// What the acknowledgment of a small segment takes longer than the round trip.
    pub ack_wait: f64,
    /// Bytes of a request.
    pub bytes: f64,
    /// Bytes of a segment.
    pub mss: f64,
    /// Bytes that leave together even while a small segment is unacknowledged: the MSS by Minshall's
    /// rule, more where segments are put off to be sent as one (`tcp_tso_should_defer()`).
    pub fill: f64,
    /// Send calls of a request. The server can answer only after the last one.
    pub writes: u32,
}

/// What an arm gives under a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Mean latency below capacity, ns.
    pub latency: f64,
    /// Messages a second, at most.
    pub capacity: f64,
    /// The client is what limits it: beyond, messages wait inside the application, not in TCP.
    pub at_sender: bool,
}

/// Waiting is computed for no higher share of capacity than this; beyond, the backlog tells.
const FULL: f64 = 0.97;

impl Costs {
    /// SETs of 64 bytes, fitted to Redis over veth: sending a segment is what costs most.
    pub const B64: Self = Self {
        alpha: 700.0,
        beta: 3000.0,
        c: 100.0,
        send: 1250.0,
        packet_client: 2200.0,
        packet_server: 100.0,
        rtt: 8e3,
        ack_wait: 0.0,
        bytes: 100.0,
        mss: 1448.0,
        fill: 1448.0,
        writes: 1,
    };
    /// SETs of 512 bytes.
    pub const B512: Self = Self {
        alpha: 900.0,
        packet_client: 2400.0,
        packet_server: 150.0,
        send: 1300.0,
        rtt: 16e3,
        ack_wait: 12e3,
        bytes: 550.0,
        fill: 65536.0,
        ..Self::B64
    };
    /// SETs of 4 KiB.
    pub const KIB4: Self = Self {
        alpha: 1500.0,
        send: 2300.0,
        packet_client: 250.0,
        packet_server: 500.0,
        rtt: 20e3,
        ack_wait: 45e3,
        bytes: 4133.0,
        fill: 262_144.0,
        ..Self::B64
    };
    /// SETs of 16 KiB.
    pub const KIB16: Self = Self {
        alpha: 3000.0,
        send: 4600.0,
        packet_client: 50.0,
        packet_server: 400.0,
        rtt: 12e3,
        ack_wait: 30e3,
        bytes: 16_424.0,
        fill: 1_048_576.0,
        ..Self::B64
    };
    /// Small requests in two writes each: Nagle's algorithm against delayed acknowledgments.
    pub const TWO_WRITES: Self = Self {
        writes: 2,
        ..Self::B64
    };

    /// The mean latency and the capacity of an arm under `load` messages a second.
    pub fn outcome(&self, arm: Arm, load: f64) -> Outcome {
        match arm {
            Arm::Off => self.at_once(load),
            Arm::On => self.in_batches(load),
        }
    }

    /// The arm that is better under a steady load, and by which factor.
    pub fn better(&self, load: f64) -> (Arm, f64) {
        let value = |arm| {
            let o = self.outcome(arm, load);
            // beyond capacity latency has no bound; the less is served the worse
            o.latency * (1.0 + 1e3 * (load / o.capacity - 1.0).max(0.0))
        };
        let (on, off) = (value(Arm::On), value(Arm::Off));
        if on < off {
            (Arm::On, off / on)
        } else {
            (Arm::Off, on / off)
        }
    }

    /// The arm that ends a backlog sooner.
    pub fn quicker(&self, load: f64) -> Arm {
        let capacity = |arm| self.outcome(arm, load).capacity;
        if capacity(Arm::On) > capacity(Arm::Off) {
            Arm::On
        } else {
            Arm::Off
        }
    }

    fn sends(&self) -> f64 {
        self.send * f64::from(self.writes)
    }

    /// Every request leaves as it is written.
    fn at_once(&self, load: f64) -> Outcome {
        let segments = (self.bytes / self.mss).ceil().max(f64::from(self.writes));
        let sending = self.sends() + segments * self.packet_client;
        let each = self.alpha + segments * self.packet_server;
        let capacity = 1e9 / (sending + self.c).max(each);
        let at_sender = sending + self.c > each;
        let load = load.min(FULL * capacity) / 1e9;
        // the server takes what waits as a batch
        let batch = (load * self.beta / (1.0 - load * each)).max(1.0);
        let serving = self.beta + batch * each;
        let busy = (load * serving / batch).min(1.0);
        let latency = sending
            + waiting(load, sending + self.c)
            + self.rtt
            + serving * (1.0 + busy / 2.0)
            + self.c * (batch + 1.0) / 2.0;
        Outcome {
            latency,
            capacity,
            at_sender,
        }
    }

    /// Small segments wait for the acknowledgment of the one before.
    fn in_batches(&self, load: f64) -> Outcome {
        let per_byte = self.packet_server / self.mss;
        let each = self.alpha + self.bytes * per_byte;
        let most = (self.fill / self.bytes).max(1.0);
        let client = |batch: f64| {
            let segments = (batch * self.bytes / self.mss).ceil();
            self.sends() + segments / batch * self.packet_client + self.c
        };
        let capacity = 1e9 / client(most).max(each);
        let at_sender = client(most) > each;
        let load = load.min(FULL * capacity) / 1e9;
        let mut fixed = self.rtt + self.ack_wait + self.beta + self.packet_server;
        if self.writes > 1 {
            // nothing but the delayed acknowledgment releases the last write
            fixed = DELAYED_ACK + self.rtt;
        }
        let filled = most / load.max(1e-18);
        // a batch is sent and served before its acknowledgment comes
        let serial = each + self.bytes / self.mss * self.packet_client;
        let cycle = (fixed / (1.0 - (load * serial).min(FULL))).min(filled.max(self.rtt));
        let batch = (load * cycle).clamp(1.0, most);
        let held = cycle / (cycle + (-load * cycle).exp() / load.max(1e-18));
        let serving = self.beta + self.packet_server + batch * each;
        // who finds nothing under way has the last write held, the others go as a whole
        let release = if self.writes > 1 {
            (1.0 - held) * cycle
        } else {
            0.0
        };
        let latency = client(batch)
            + waiting(load, client(batch))
            + held * cycle / 2.0
            + release
            + self.rtt
            + serving
            + self.c * (batch - 1.0) / 2.0;
        Outcome {
            latency,
            capacity,
            at_sender,
        }
    }
}

/// Mean waiting time, ns, before a server that takes `service` ns for each of `load` arrivals a ns
/// (Poisson; Pollaczek and Khinchine).
fn waiting(load: f64, service: f64) -> f64 {
    let used = (load * service).min(FULL);
    service * used / (2.0 * (1.0 - used))
}
