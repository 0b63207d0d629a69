//! Two agents on one connection.

use std::time::Duration;

use batchwise_core::tune::report::{Decision, DecisionEvent};
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::tune::Agent;
use tempfile::TempDir;

use crate::tcp::tune::ALWAYS;
use crate::tcp::tune::application::{Application, Style};

#[test]
fn the_agents_of_a_connections_two_ends_both_decide_without_a_word_between_them() {
    let scene = Scene::build("both");
    let logs = TempDir::new().expect("a folder");
    let server = Agent::start(scene.server(), logs.path(), &ALWAYS);
    let client = Agent::start(scene.client(), logs.path(), &ALWAYS);
    let pause = Duration::from_micros(100);
    let application = Application::start(&scene, 4, Style::Many, pause);
    let sockets = application.set_nodelay(true);
    client.until("three tests that were decided", 0, |all| {
        all.iter().filter(|d| d.event.ends_test()).count() >= 3
    });
    // every test has an end before the next one
    for agent in [&server, &client] {
        let decisions = agent.decisions();
        let events = decisions.iter().map(|d| d.event);
        let tests = events.filter(|event| *event == DecisionEvent::Probe || event.ends_test());
        for (number, event) in tests.enumerate() {
            let begins = event == DecisionEvent::Probe;
            assert_eq!(number % 2 == 0, begins, "{decisions:#?}");
        }
    }
    client.finish();
    server.finish();
    crate::tcp::tune::sockets::assert_given_back(&sockets);
    application.finish();
}

#[test]
fn an_idle_or_quiet_service_is_never_tested() {
    let scene = Scene::build("quiet");
    let logs = TempDir::new().expect("a folder");
    let agent = Agent::start(scene.client(), logs.path(), &ALWAYS);
    let application = Application::start(&scene, 4, Style::Whole, Duration::from_millis(2));
    let sockets = application.set_nodelay(true);
    let started = |all: &[Decision]| all.iter().any(|d| d.event == DecisionEvent::Start);
    agent.until("the service to be seen", 0, started);
    std::thread::sleep(Duration::from_secs(3));
    let decisions = agent.decisions();
    let tested = decisions.iter().any(|d| d.event == DecisionEvent::Probe);
    assert!(!tested, "{decisions:#?}");
    agent.finish();
    crate::tcp::tune::sockets::assert_given_back(&sockets);
    application.finish();
}
