//! Histograms of latencies are kept for so many services at once: those that have no connection any more leave theirs to
//! others. In a network namespace of the test's own.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use batchwise_bpf::{Config, Exchange, Hints, Sensor, Units};
use batchwise_core::sense::report::{Side, Unit};
use nix::sched::{CloneFlags, unshare};

use crate::kernel::need_root;

const PORT: u16 = 7000;

/// Runs `f` where there is nothing but loopback, with a sensor that counts and what it watches.
fn alone(f: impl FnOnce(Sensor, Servers) + Send) {
    need_root();
    let alone = || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let up = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        assert!(up.unwrap().success());
        let config = Config {
            ports: vec![PORT..=PORT],
            cgroup: None,
            units: Units::of(&[Unit::Sends]),
            tails: true,
            brief: true,
        };
        let (mut sensor, _) = Sensor::open(&config, &(None::<Exchange>, None::<Hints>)).unwrap();
        sensor.begin().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap();
        f(sensor, Servers(listener));
    };
    thread::scope(|scope| scope.spawn(alone).join())
        .unwrap_or_else(|e| std::panic::resume_unwind(e));
}

/// The n-th is at an address of its own. Both its ends are here: two services to the sensor.
struct Servers(TcpListener);

impl Servers {
    fn connect(&self, n: u8) -> Connection {
        let client = TcpStream::connect(address(n)).unwrap();
        let (server, _) = self.0.accept().unwrap();
        Connection { client, server }
    }
}

fn address(n: u8) -> SocketAddr {
    (Ipv4Addr::new(127, 1, 0, n), PORT).into()
}

struct Connection {
    client: TcpStream,
    server: TcpStream,
}

impl Connection {
    fn ask(&mut self) {
        self.client.write_all(b"?").unwrap();
        self.server.read_exact(&mut [0]).unwrap();
        self.server.write_all(b"!").unwrap();
        self.client.read_exact(&mut [0]).unwrap();
    }
}

/// An interval: requests of the n-th that it tells of, as the client and as the server see them.
fn told(sensor: &mut Sensor, n: u8) -> [u64; 2] {
    sensor.read().unwrap();
    requests(sensor, n)
}

fn requests(sensor: &mut Sensor, n: u8) -> [u64; 2] {
    let found = sensor.tails().unwrap();
    [Side::Client, Side::Server].map(|side| {
        let of = found
            .iter()
            .filter(|f| (f.0.server, f.0.side) == (address(n), side));
        of.map(|(_, latencies)| latencies.matched.requests()).sum()
    })
}

#[test]
fn services_that_are_gone_leave_their_percentiles_to_others() {
    alone(|mut sensor, servers| {
        let mut idle = servers.connect(1);
        let mut gone: Vec<_> = (2..=40).map(|n| servers.connect(n)).collect();
        gone.iter_mut().for_each(Connection::ask);
        // one that comes when there is no more room
        let mut last = servers.connect(41);
        last.ask();
        assert_eq!(told(&mut sensor, 41), [0, 0]);
        drop(gone);
        // what was counted for others is not its
        let mut sums = [0, 0];
        for _ in 0..5 {
            last.ask();
            let told = told(&mut sensor, 41);
            assert!(told.iter().all(|requests| *requests <= 1), "{told:?}");
            sums = [sums[0] + told[0], sums[1] + told[1]];
        }
        assert!(sums.iter().all(|requests| *requests >= 1), "{sums:?}");
        last.ask();
        assert_eq!(told(&mut sensor, 41), [1, 1]);
        // one that was there all the time still has its own
        idle.ask();
        assert_eq!(told(&mut sensor, 1), [1, 1]);
    });
}

#[test]
fn a_connection_whose_service_lost_its_percentiles_counts_for_no_other() {
    alone(|mut sensor, servers| {
        let mut old: Vec<_> = (1..=32).map(|n| servers.connect(n)).collect();
        old.iter_mut().for_each(Connection::ask);
        sensor.read().unwrap();
        // nobody looks at the connections: to the sensor they may be gone
        for _ in 0..4 {
            requests(&mut sensor, 0);
        }
        let mut new: Vec<_> = (101..=132).map(|n| servers.connect(n)).collect();
        new.iter_mut().for_each(Connection::ask);
        old.iter_mut().for_each(Connection::ask);
        let found = sensor.tails().unwrap();
        for (service, latencies) in found {
            let requests = latencies.matched.requests();
            assert!(requests <= 1, "{service:?}: {requests}");
        }
    });
}
