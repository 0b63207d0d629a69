//! Applications that set TCP_NODELAY, TCP_CORK and MSG_MORE themselves while they are tuned.

use std::net::SocketAddr;
use std::time::Duration;

use batchwise_core::tune::report::DecisionEvent;
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::tune::Agent;
use tempfile::TempDir;

use crate::tcp::tune::ALWAYS;
use crate::tcp::tune::application::{Application, Style};
use crate::tcp::tune::sockets::{assert_given_back, until_held};

const PAUSE: Duration = Duration::from_micros(500);

#[test]
fn an_application_that_asks_while_overridden_is_overridden_again_and_gets_its_setting_at_the_end() {
    let scene = Scene::build("setting");
    let logs = TempDir::new().expect("a folder");
    let application = Application::start(&scene, 2, Style::Whole, PAUSE);
    let first = application.set_nodelay(true);
    let agent = Agent::start(scene.client(), logs.path(), &["--hold", "off"]);
    until_held(&first, true);
    let last = application.set_nodelay(false);
    until_held(&last, true);
    application.assert_goes_on();
    agent.finish();
    assert_given_back(&last);
    application.finish();
}

fn flip(name: &str, address: impl Fn(&Scene) -> SocketAddr) {
    let scene = Scene::build(name);
    let logs = TempDir::new().expect("a folder");
    let mut server = Agent::start(scene.server(), logs.path(), &ALWAYS);
    let mut client = Agent::start(scene.client(), logs.path(), &ALWAYS);
    let start = |style| Application::start_at(&scene, address(&scene), 2, style, PAUSE);
    let applications = [Style::Many, Style::Corked, Style::More].map(start);
    client.until("tests of its own", 0, |all| {
        // all the time, and with every arm in force
        for nodelay in [true, false, true, false, false, true] {
            for application in &applications {
                application.set_nodelay(nodelay);
            }
        }
        all.iter()
            .filter(|d| d.event == DecisionEvent::Probe)
            .count()
            >= 2
    });
    for application in &applications {
        application.assert_goes_on();
    }
    for agent in [&mut server, &mut client] {
        agent.assert_alive();
    }
    let nodelays = [true, false, false];
    let asked = applications.iter().zip(nodelays);
    let last: Vec<_> = asked.flat_map(|(a, on)| a.set_nodelay(on)).collect();
    client.finish();
    assert_given_back(&last);
    server.finish();
    for application in applications {
        application.finish();
    }
}

mod long {
    use super::*;

    #[test]
    fn the_last_setting_of_an_application_that_flips_it_is_what_it_has_in_the_end() {
        flip("flip", Scene::address);
    }

    #[test]
    fn the_last_setting_of_an_application_that_flips_it_is_what_it_has_in_the_end_over_ipv6() {
        flip("flip6", Scene::address_v6);
    }
}
