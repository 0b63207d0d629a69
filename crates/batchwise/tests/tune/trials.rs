//! Two agents on one connection.

use std::time::Duration;

use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::tune::{Agent, Decision};
use tempfile::TempDir;

use crate::application::{Application, Style};

/// What the exchange may need to tell the other end's agent: its options take turns, one a
/// millisecond and direction.
const TOLD_NS: u64 = 100_000_000;

/// From when to when an agent tried an arm, ns since 1970, and what ended that.
fn trials(decisions: &[Decision]) -> Vec<(u64, u64, &str)> {
    let pairs = decisions.windows(2).filter(|pair| pair[0].begins_trial());
    pairs
        .map(|pair| (pair[0].ts_ns, pair[1].ts_ns, pair[1].event.as_str()))
        .collect()
}

#[test]
fn the_agents_of_a_connections_two_ends_do_not_try_arms_at_the_same_time() {
    let scene = Scene::build("both");
    let logs = TempDir::new().expect("a folder");
    // an SLO that nothing can keep: there is always reason to try the other arm
    let args = ["--policy", "slo:1us"];
    let server = Agent::start(scene.server(), logs.path(), &args);
    let client = Agent::start(scene.client(), logs.path(), &args);
    let pause = Duration::from_micros(500);
    let application = Application::start(&scene, 4, Style::Whole, pause);
    let sockets = application.set_nodelay(true);
    for agent in [&server, &client] {
        agent.until("trials", 0, |all| trials(all).len() >= 3);
    }
    let (at_server, at_client) = (server.decisions(), client.decisions());
    let (at_server, at_client) = (trials(&at_server), trials(&at_client));
    for s in &at_server {
        for c in &at_client {
            let both = s.1.min(c.1).saturating_sub(s.0.max(c.0));
            // two that began in the same instant: one gives way, as soon as it is told
            let gave_way = if s.1 < c.1 { s.2 } else { c.2 } == "yield";
            assert!(both < TOLD_NS || gave_way, "{both} ns: {s:?}, {c:?}");
        }
    }
    println!("{} and {} trials", at_server.len(), at_client.len());
    client.finish();
    server.finish();
    crate::sockets::assert_given_back(&sockets);
    application.finish();
}
