//! The agent dies or hangs while it holds sockets at what their applications did not ask for: the
//! dead man's switch.

use std::time::Duration;

use batchwise_core::tune::report::{Decision, DecisionEvent, InForce};
use batchwise_testbed::stage::tune::Agent;
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

use crate::tcp::tune::ALWAYS;
use crate::tcp::tune::application::{Application, Style};
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::{eventually, programs_of, until_freed};

use crate::tcp::tune::sockets::{
    Socket, accepted_by_redis, assert_given_back, assert_given_back_in_time, nodelay, until_held,
};

/// Idle connections: two that ask for Nagle's algorithm, two that do not.
fn idle(scene: &Scene) -> Vec<Socket> {
    let connect = |i| Socket::set(&scene.stage.connect(scene.address()), i % 2 == 0);
    (0..4).map(connect).collect()
}

#[test]
fn sockets_are_given_back_within_a_second_of_the_agents_death_under_full_load() {
    let scene = Scene::build("kill");
    let logs = TempDir::new().expect("a folder");
    let application = Application::start(&scene, 6, Style::Whole, Duration::ZERO);
    let mut at_client = application.set_nodelay(true);
    at_client.extend(idle(&scene));
    let at_server = accepted_by_redis(scene.server(), at_client.len());
    for (host, sockets) in [(scene.client(), &at_client), (scene.server(), &at_server)] {
        let mut agent = Agent::start(host, logs.path(), &["--hold", "on"]);
        until_held(sockets, false);
        application.assert_goes_on();
        let guard = agent.guard().expect("a guard");
        let mut programs = programs_of(agent.pid());
        programs.extend(programs_of(guard));
        assert!(!programs.is_empty());

        let death = agent.signal(Signal::SIGKILL);
        assert_given_back_in_time(sockets, death);
        agent.wait();
        eventually(
            "the guard's end",
            || kill(guard, None).is_err().then_some(()),
            || format!("{guard} is there"),
        );
        until_freed(&programs);
        application.assert_goes_on();
    }
    application.finish();
}

#[test]
fn what_an_agent_has_found_out_by_itself_is_undone_by_its_death() {
    let scene = Scene::build("decided");
    let logs = TempDir::new().expect("a folder");
    // sent in two calls: Nagle's algorithm costs 40 ms each, and the agent must find that out
    let mut agent = Agent::start(scene.client(), logs.path(), &[]);
    let application = Application::start(&scene, 8, Style::Halves, Duration::ZERO);
    let mut sockets = application.set_nodelay(false);
    sockets.extend(idle(&scene));
    agent.until("Nagle's algorithm to be switched off", 0, |all| {
        let adopted = |d: &Decision| d.event == DecisionEvent::Adopt && d.nagle == InForce::Off;
        all.iter().any(adopted)
    });
    until_held(&sockets, true);

    let death = agent.signal(Signal::SIGKILL);
    assert_given_back_in_time(&sockets, death);
    agent.wait();
    application.assert_goes_on();
    application.finish();
}

#[test]
fn a_test_that_the_agent_does_not_survive_is_undone() {
    let scene = Scene::build("trial");
    let logs = TempDir::new().expect("a folder");
    let mut agent = Agent::start(scene.client(), logs.path(), &ALWAYS);
    let application = Application::start(&scene, 4, Style::Many, Duration::ZERO);
    let sockets = application.set_nodelay(true);
    let tried = || sockets.iter().all(|s| !nodelay(&s.socket));
    eventually(
        "a test of Nagle's algorithm",
        || {
            if !tried() {
                return None;
            }
            // stopped, so that the slice cannot end between this look and its death
            agent.signal(Signal::SIGSTOP);
            let caught = tried();
            if !caught {
                agent.signal(Signal::SIGCONT);
            }
            caught.then_some(())
        },
        || format!("{:?}", agent.decisions().last()),
    );
    let death = agent.signal(Signal::SIGKILL);
    assert_given_back_in_time(&sockets, death);
    agent.wait();
    application.assert_goes_on();
    application.finish();
}

#[test]
fn a_stopped_agent_loses_its_sockets_and_takes_them_over_again_when_it_goes_on() {
    let scene = Scene::build("stop");
    let logs = TempDir::new().expect("a folder");
    let application = Application::start(&scene, 6, Style::Whole, Duration::ZERO);
    let mut sockets = application.set_nodelay(true);
    sockets.extend(idle(&scene));
    let agent = Agent::start(scene.client(), logs.path(), &["--hold", "on"]);
    let started = |all: &[Decision]| all.iter().any(|d| d.event == DecisionEvent::Start);
    agent.until("the service to be seen", 0, started);
    until_held(&sockets, false);

    let stopped = agent.signal(Signal::SIGSTOP);
    assert_given_back_in_time(&sockets, stopped);
    // what an application asks for meanwhile is remembered
    let last = sockets.last_mut().expect("an idle socket");
    last.nodelay = !last.nodelay;
    last.socket.set_nodelay(last.nodelay).expect("TCP_NODELAY");
    assert_eq!(nodelay(&last.socket), last.nodelay);
    application.assert_goes_on();

    let before = agent.decisions().len();
    agent.signal(Signal::SIGCONT);
    until_held(&sockets, false);
    agent.until("the service to be seen again", before, started);
    agent.finish();
    assert_given_back(&sockets);
    application.assert_goes_on();
    application.finish();
}
