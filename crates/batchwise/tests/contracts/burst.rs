//! The lines of `batchwise burst`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use batchwise_testbed::stage::{scrape::METRICS, turn};
use batchwise_testbed::triangle::{
    CLIENT_LINK, SERVER_IP, Triangle, TriangleSpec, VANTAGE_SERVER_LINK,
};
use nix::sys::signal::Signal;

use crate::metrics::hold_metrics;
use crate::shape::{hold, hold_now};
use crate::site::{Asking, Running, at, batchwise};

/// More than the initial window of a connection.
const BYTES: usize = 20_000;

#[test]
fn marks_at_a_sender_and_admission_at_a_router() {
    let _turn = turn();
    let triangle = Triangle::build("ct-burst", &TriangleSpec::default()).expect("three hosts");
    let (sender, router) = (&triangle.client, &triangle.vantage);
    let queue = format!("qdisc replace dev {VANTAGE_SERVER_LINK} root pfifo limit 1000");
    router.namespace().tc(&queue).expect("a queue");
    let options = format!("--interval 200ms --format jsonl --metrics {METRICS}");
    let mark = format!("burst mark --interface {CLIENT_LINK} {options}");
    let mark = Running::start(sender, batchwise(&mark));
    let admit = format!("burst admit --interface {VANTAGE_SERVER_LINK} {options}");
    let admit = Running::start(router, batchwise(&admit));

    let listener = at(&triangle.server, || TcpListener::bind((SERVER_IP, 0)));
    let address = listener.local_addr().expect("an address");
    let stream = at(sender, || TcpStream::connect(address));
    let (accepted, _) = listener.accept().expect("the other end");
    let _sending = Asking::start(move || {
        (&stream).write_all(&[7; BYTES]).expect("sent");
        (&accepted).read_exact(&mut [0; BYTES]).expect("it arrives");
    });
    let agents = [("burst-mark", mark, sender), ("burst-admit", admit, router)];
    for (name, agent, host) in agents {
        hold(name, || agent.lines());
        hold_metrics(&format!("{name}-metrics"), host);
        let (lines, code) = agent.end(Signal::SIGTERM);
        assert_eq!(code, Some(0));
        hold_now(name, &lines);
    }
}
