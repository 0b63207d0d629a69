//! Whose sockets are switched.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use batchwise_core::tune::report::Decision;
use batchwise_testbed::bpf_stats::wait_attached;
use batchwise_testbed::cgroup::Membership;
use batchwise_testbed::host::Role;
use batchwise_testbed::lines::Printing;
use batchwise_testbed::stage::tune::Agent;
use batchwise_testbed::stage::{Stage, batchwise, eventually, listen};
use batchwise_testbed::stop::Stop;
use tempfile::TempDir;

use crate::tcp::tune::sockets::{Socket, assert_given_back, nodelay, until_held};
use crate::tcp::watch::whose::{Pair, ask, from_port};

const PORT: u16 = 17_032;
const OTHER: u16 = 17_033;

#[test]
fn a_connection_from_the_watched_port_to_another_service_is_never_switched() {
    let stage = Stage::build("whose-tuned");
    let (server, client) = (&stage.hosts.server, &stage.hosts.client);
    let _membership = Membership::join(client.cgroup()).expect("joining the client host");
    let [watched, other] =
        [PORT, OTHER].map(|port| listen(server, stage.hosts.server_address(port)));
    let connect = || {
        let foreign = from_port(client, PORT, &other);
        [foreign, from_port(client, 0, &watched)]
    };
    let mut before = connect();
    let logs = TempDir::new().expect("a folder");
    let mut agent = Agent::launch_at(client, logs.path(), PORT, &["--hold", "on"]);
    agent.wait_attached();
    // a port that is in use is free for another peer only
    let mut since = [
        from_port(client, PORT, &watched),
        from_port(client, 0, &other),
    ];
    since.reverse();
    let end = |pair: &Pair| Socket::set(&pair[0], true);
    let [foreign, own] = [0, 1].map(|n| [end(&before[n]), end(&since[n])]);
    let mut ask_all = || before.iter_mut().chain(&mut since).for_each(ask);
    ask_all();
    until_held(&own, false);
    for _ in 0..20 {
        ask_all();
        std::thread::sleep(Duration::from_millis(20));
        let is_own = foreign.iter().all(|s| nodelay(&s.socket));
        assert!(is_own, "a connection of another service was switched");
    }
    agent.finish();
    assert_given_back(&own);
}

#[test]
fn the_same_address_in_two_network_namespaces_is_two_services_and_both_are_switched() {
    let stage = Stage::build("twice-tuned");
    let address = SocketAddr::from(([127, 0, 0, 1], PORT));
    let hosts = [&stage.hosts.server, &stage.hosts.client];
    let mut command = batchwise();
    command.args(["tune", "--format", "jsonl", "--hold", "on"]);
    command.args(["--port", &PORT.to_string()]);
    let agent = Printing::<Decision>::start(hosts[0], "the agent", command, Role::Observer);
    let mut agent = agent.expect("an agent");
    let attached = wait_attached(agent.process(), "the agent", &Stop::default());
    attached.expect("its programs are attached");
    let mut pairs = hosts.map(|host| from_port(host, 0, &listen(host, address)));
    let sockets: Vec<_> = pairs
        .iter()
        .flatten()
        .map(|end| Socket::set(end, true))
        .collect();
    let held = || {
        pairs.iter_mut().for_each(ask);
        let switched = sockets.iter().all(|s| !nodelay(&s.socket));
        switched.then_some(())
    };
    eventually("both to be switched", held, || agent.quote());
    let lines = agent
        .finish(Duration::from_secs(5))
        .expect("it ends in order");
    let services: BTreeSet<_> = lines.iter().map(|line| (line.netns, line.side)).collect();
    assert_eq!(services.len(), 4, "{lines:#?}");
    assert_given_back(&sockets);
}
