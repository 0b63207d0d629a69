//! Agents and servers that are replaced under load, and two agents at one place.

use std::time::Duration;

use batchwise_core::tune::report::{Decision, DecisionEvent};
use batchwise_testbed::stage::generator::{LASTING, Load};
use batchwise_testbed::stage::refusal::{assert_refused, run};
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::tune::Agent;
use batchwise_testbed::stage::{Stage, batchwise, eventually};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::tcp::tune::application::{Application, Style};
use crate::tcp::tune::sockets::{assert_given_back, nodelay, of_redis, until_held};

/// The service's latency is known, which without the other end's help is not trusted enough.
fn is_measured(decisions: &[Decision]) -> bool {
    decisions.iter().any(|d| d.event == DecisionEvent::Start)
}

#[test]
fn a_new_agent_takes_over_connections_exchange_and_settings_of_one_that_was_killed() {
    let scene = Scene::build("upgrade");
    let logs = TempDir::new().expect("a folder");
    let hold = ["--hold", "off"];
    let server = Agent::start(scene.server(), logs.path(), &hold);
    let mut client = Agent::start(scene.client(), logs.path(), &hold);
    let pause = Duration::from_micros(300);
    let application = Application::start(&scene, 4, Style::Whole, pause);
    let sockets = application.set_nodelay(false);
    for _ in 0..3 {
        until_held(&sockets, true);
        let before = client.decisions();
        client.until("both ends' estimates", 0, is_measured);
        client.signal(Signal::SIGKILL);
        let mut next = Agent::launch(scene.client(), logs.path(), &hold);
        client.wait();
        next.wait_attached();
        until_held(&sockets, true);
        let so_far = next.decisions();
        assert!(so_far.len() >= before.len(), "the log was not appended to");
        next.until("both ends' estimates again", before.len(), is_measured);
        application.assert_goes_on();
        client = next;
    }
    client.finish();
    // the new agents did not take the arm of the old ones for the application's setting
    assert_given_back(&sockets);
    application.assert_goes_on();
    server.finish();
    application.finish();
}

#[test]
fn a_restart_of_the_server_leaves_agents_that_tune_its_new_connections() {
    let mut scene = Scene::build("redis");
    let logs = TempDir::new().expect("a folder");
    let mut server = Agent::start(scene.server(), logs.path(), &["--hold", "on"]);
    let mut client = Agent::start(scene.client(), logs.path(), &["--hold", "on"]);
    for _ in 0..2 {
        let mut load = Load::start(scene.client(), scene.address(), LASTING);
        let connection = scene.stage.connect(scene.address());
        connection.set_nodelay(true).expect("TCP_NODELAY");
        eventually(
            "the sockets of both ends to be tuned",
            || {
                let at_server = of_redis(scene.server());
                let held = !at_server.is_empty() && at_server.iter().all(|s| !nodelay(&s.socket));
                (held && !nodelay(&connection)).then_some(())
            },
            || format!("{:?}", (server.decisions(), client.decisions())),
        );
        load.assert_alive();
        scene.restart_redis();
    }
    for agent in [&mut server, &mut client] {
        agent.assert_alive();
    }
    let application = Application::start(&scene, 2, Style::Whole, Duration::from_millis(1));
    until_held(&application.set_nodelay(true), false);
    let load = "--rate 4000 --duration 1s --value-size 64 --get-ratio 0.5";
    Load::start(scene.client(), scene.address(), load).report();
    application.finish();
    server.finish();
    client.finish();
}

#[test]
fn a_second_agent_for_the_same_cgroup_is_refused() {
    let stage = Stage::build("second");
    let logs = TempDir::new().expect("a folder");
    let mut first = Agent::start(&stage.hosts.server, logs.path(), &[]);
    let cgroup = stage.hosts.server.cgroup().to_string_lossy();
    let mut tune = batchwise();
    tune.args("tune --duration 1s --port 6379 --cgroup".split(' '));
    tune.arg(&*cgroup);
    let words = ["another `batchwise tune`", &cgroup, "stop it"];
    assert_refused(&run(&mut tune), 1, &words);
    first.assert_alive();
    first.finish();
    let third = run(&mut tune);
    assert!(third.status.success(), "{third:?}");
}
