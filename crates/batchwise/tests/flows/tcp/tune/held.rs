//! Requests in two writes whose second half waits for a delayed acknowledgment: cured once and for good.

use std::time::Duration;

use batchwise_core::tune::report::{Advice, Decision, DecisionEvent, InForce};
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::tune::Agent;
use tempfile::TempDir;

use crate::tcp::tune::application::{Application, Style};
use crate::tcp::tune::sockets::{assert_given_back, until_held};

fn adopted(all: &[Decision]) -> bool {
    let adopts = |d: &Decision| {
        d.event == DecisionEvent::Adopt
            && d.nagle == InForce::Off
            && d.advice == Some(Advice::NagleHolds)
    };
    all.iter().any(adopts)
}

fn tests(decisions: &[Decision]) -> usize {
    let tests = decisions.iter().filter(|d| d.event == DecisionEvent::Probe);
    tests.count()
}

#[test]
fn what_ended_a_hold_stays_and_the_next_agent_goes_on_with_it() {
    let scene = Scene::build("held");
    let logs = TempDir::new().expect("a folder");
    let agent = Agent::start(scene.client(), logs.path(), &[]);
    let application = Application::start(&scene, 4, Style::Halves, Duration::ZERO);
    let sockets = application.set_nodelay(false);
    agent.until("the cure", 0, adopted);
    until_held(&sockets, true);
    // the load is a hundred times as high, nothing is held, and the first rest is over
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(tests(&agent.decisions()), 1, "{:#?}", agent.decisions());
    until_held(&sockets, true);
    agent.finish();
    assert_given_back(&sockets);

    let mut next = Agent::launch(scene.client(), logs.path(), &[]);
    let before = next.decisions().len();
    next.wait_attached();
    next.until("the cure again", before, adopted);
    until_held(&sockets, true);
    assert_eq!(tests(&next.decisions()[before..]), 0, "it was known");
    next.finish();
    assert_given_back(&sockets);
    application.finish();
}
