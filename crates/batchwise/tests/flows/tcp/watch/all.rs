//! All services of the machine, by whose they are.

use std::collections::BTreeSet;

use batchwise_core::sense::report::{Line, Side};
use batchwise_testbed::stage::watch::Watch;
use batchwise_testbed::stage::{Stage, connect, eventually, listen};

use super::whose::{Pair, ask};

const PORTS: [u16; 3] = [17_051, 17_052, 17_061];

/// A service at each port, with a client.
fn services(stage: &Stage) -> Vec<Pair> {
    let pair = |port| {
        let address = stage.hosts.server_address(port);
        let listener = listen(&stage.hosts.server, address);
        let client = connect(&stage.hosts.client, address);
        let (server, _) = listener.accept().expect("the client");
        [client, server]
    };
    PORTS.map(pair).into()
}

fn port(line: &Line) -> u16 {
    let port = line.service.rsplit(':').next();
    port.and_then(|port| port.parse().ok()).expect("a port")
}

/// Which of the ports lines are of, of either side, while requests pass at all of them.
fn seen(watch: &Watch, pairs: &mut [Pair], enough: usize) -> (BTreeSet<(u16, Side)>, Vec<Line>) {
    let told = || {
        pairs.iter_mut().for_each(ask);
        let mut lines = watch.lines();
        lines.retain(|l| PORTS.contains(&port(l)) && l.throughput_per_s > 0.0);
        let seen: BTreeSet<_> = lines.iter().map(|l| (port(l), l.side)).collect();
        (seen.len() >= enough && lines.len() >= 4 * enough).then_some((seen, lines))
    };
    eventually("lines of the services", told, || {
        format!("{:#?}", watch.lines())
    })
}

#[test]
fn without_a_port_all_services_are_seen_and_named_by_their_processes() {
    let stage = Stage::build("all");
    let mut pairs = services(&stage);
    let watch = Watch::services(&stage.hosts.server, None, &[]);
    let (seen, lines) = seen(&watch, &mut pairs, 2 * PORTS.len());
    let both = |port| [(port, Side::Server), (port, Side::Client)];
    assert_eq!(seen, PORTS.into_iter().flat_map(both).collect());
    let pid = std::process::id();
    for line in lines {
        let process = line.process.expect("this process has its sockets");
        assert_eq!(process.pid, pid);
        assert!(!process.comm.is_empty());
    }
    watch.finish();
}

#[test]
fn ports_and_processes_narrow_it() {
    let stage = Stage::build("narrow");
    let mut pairs = services(&stage);
    let range = Watch::services(&stage.hosts.server, None, &["--port", "17050-17060"]);
    let (seen_there, _) = seen(&range, &mut pairs, 4);
    assert!(
        seen_there.iter().all(|(port, _)| *port != PORTS[2]),
        "{seen_there:?}"
    );
    range.finish();

    let pid = std::process::id().to_string();
    let mine = Watch::services(&stage.hosts.server, None, &["--pid", &pid]);
    let others = Watch::services(&stage.hosts.server, None, &["--pid", "1"]);
    seen(&mine, &mut pairs, 2 * PORTS.len());
    mine.finish();
    let lines = others.finish();
    assert!(
        lines.iter().all(|l| !PORTS.contains(&port(l))),
        "{lines:#?}"
    );
}
