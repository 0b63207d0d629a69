//! Servers, clients and loads that policies are held against.

use batchwise_testbed::cpu_share::trace::Trace;

/// Responses a second of a server with a whole CPU.
pub const CAPACITY: f64 = 1000.0;
/// Requests of a page.
pub const PAGE: u32 = 20;
/// Of a page's requests, so many at once.
pub const IN_FLIGHT: u32 = 4;

#[derive(Clone, Debug, Default)]
pub struct Server {
    /// From each moment (s) on, its share of a CPU; the first is at 0.
    pub shares: Vec<(f64, f64)>,
    /// From when to when (s) health checks say that it is down.
    pub down: Option<(f64, f64)>,
    /// From when to when (s) it answers every request at once, with an error.
    pub fails: Option<(f64, f64)>,
}

/// What happens, whatever the policy.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    pub servers: Vec<Server>,
    /// Of what all servers can do on average while all are well.
    pub load: f64,
    /// Mean pages of a connection.
    pub pages: f64,
    /// Mean pause of a client between pages, s.
    pub think: f64,
    /// Round trip of each group of clients, s.
    pub groups: Vec<f64>,
    /// A client always goes to the same slot; there are so many in a group.
    pub clients: Option<u32>,
    /// How long, s.
    pub length: f64,
    /// The change whose effect is timed, and the server it happens to.
    pub change: Option<(f64, usize)>,
}

impl Scenario {
    fn new(name: &str, shares: &[f64], load: f64, length: f64) -> Self {
        let server = |share: &f64| Server {
            shares: vec![(0.0, *share)],
            ..Server::default()
        };
        Self {
            name: name.into(),
            servers: shares.iter().map(server).collect(),
            load,
            pages: 3.0,
            think: 0.05,
            groups: vec![0.0005],
            clients: None,
            length,
            change: None,
        }
    }

    /// Responses a second that clients ask for.
    pub fn rate(&self) -> f64 {
        let mean = |s: &Server| {
            let later = s.shares.iter().skip(1).map(|(at, _)| *at);
            let spans = s.shares.iter().zip(later.chain([self.length]));
            let served = spans.map(|((at, share), end)| share * (end - at));
            served.sum::<f64>() / self.length
        };
        let steady = |s: &Server| match self.change {
            Some(_) => s.shares[0].1,
            None => mean(s),
        };
        self.load * CAPACITY * self.servers.iter().map(steady).sum::<f64>()
    }
}

/// Four servers whose shares of a CPU follow independent traces.
pub fn traces(load: f64, seed: u64, length: f64) -> Scenario {
    let name = format!("traces, {:.0} %", load * 100.0);
    let mut s = Scenario::new(&name, &[1.0; 4], load, length);
    for (number, server) in (1..).zip(&mut s.servers) {
        let trace = Trace::generate(seed * 100 + number, length.ceil() as u32);
        let shares = trace.map(|t| {
            let steps = t.steps().iter();
            steps.map(|s| (s.at.as_secs_f64(), s.share)).collect()
        });
        server.shares = shares.unwrap_or_else(|_| vec![(0.0, 0.7)]);
    }
    s
}

/// All others.
pub fn fixed(length: f64) -> Vec<Scenario> {
    let third = length / 3.0;
    let base = |name: &str, load: f64| Scenario::new(name, &[0.7; 4], load, length);
    let mut all = vec![
        base("equal servers, 50 %", 0.5),
        base("equal servers, 80 %", 0.8),
    ];
    let mut sick = base("one sick", 0.6);
    sick.servers[1].shares = vec![(0.0, 0.7), (third, 0.15), (2.0 * third, 0.7)];
    sick.change = Some((third, 1));
    all.push(sick);
    let mut every = base("all sick", 0.4);
    for server in &mut every.servers {
        server.shares = vec![(0.0, 0.7), (third, 0.35), (2.0 * third, 0.7)];
    }
    every.change = Some((third, 0));
    all.push(every);
    let mut drift = base("slow drift", 0.6);
    let slower = (0..40).map(|step| {
        (
            length * f64::from(step) / 40.0,
            0.7 - 0.5 * f64::from(step) / 40.0,
        )
    });
    drift.servers[2].shares = slower.collect();
    drift.change = Some((0.0, 2));
    all.push(drift);
    let mut unequal = Scenario::new("unequal for good", &[0.9, 0.9, 0.45, 0.45], 0.6, length);
    unequal.change = Some((0.0, 2));
    all.push(unequal);
    for (name, load) in [("fails fast", 0.5), ("fails fast, 80 %", 0.8)] {
        let mut failing = base(name, load);
        // in the full run for more than two minutes
        failing.servers[3].fails = Some((length / 8.0, 7.0 * length / 8.0));
        all.push(failing);
    }
    let mut far = base("far clients", 0.5);
    far.groups = (0..12)
        .map(|g| if g % 4 == 0 { 0.08 } else { 0.002 })
        .collect();
    far.clients = Some(2);
    all.push(far);
    let mut few = Scenario::new("few samples", &[0.7; 20], 0.005, length);
    few.think = 0.2;
    all.push(few);
    let mut herd = Scenario::new("long connections", &[0.7; 10], 0.7, length);
    herd.pages = 30.0;
    herd.servers[0].shares = vec![(0.0, 0.7), (third, 0.35), (2.0 * third, 0.7)];
    herd.change = Some((third, 0));
    all.push(herd);
    let mut back = base("comes back", 0.6);
    back.servers[0].down = Some((third, 1.5 * third));
    let cold = |step: u32| (1.5 * third + f64::from(step), 0.2 + 0.05 * f64::from(step));
    back.servers[0].shares = [(0.0, 0.7)].into_iter().chain((0..=10).map(cold)).collect();
    back.change = Some((1.5 * third, 0));
    all.push(back);
    all
}
