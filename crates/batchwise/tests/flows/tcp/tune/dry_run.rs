//! `--dry-run` decides, and touches nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use batchwise_core::tune::report::{Decision, DecisionEvent, InForce};
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::tune::Agent;
use tempfile::TempDir;

use crate::tcp::tune::application::{Application, Style};
use crate::tcp::tune::sockets::{accepted_by_redis, assert_given_back, nodelay};

#[test]
fn a_dry_run_says_what_it_would_try_and_changes_no_socket_ever() {
    let scene = Scene::build("dry");
    let logs = TempDir::new().expect("a folder");
    let application = Application::start(&scene, 4, Style::Many, Duration::ZERO);
    let mut sockets = application.set_nodelay(true);
    sockets.extend(accepted_by_redis(scene.server(), sockets.len()));
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let watching = std::thread::spawn(move || {
        let (mut looks, mut changes) = (0, 0);
        while !stopped.load(Ordering::Relaxed) {
            let changed = sockets.iter().any(|s| nodelay(&s.socket) != s.nodelay);
            changes += u32::from(changed);
            looks += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        (sockets, looks, changes)
    });
    let agents = [scene.server(), scene.client()]
        .map(|host| Agent::start(host, logs.path(), &["--dry-run"]));
    let [_, client] = &agents;
    client.until("two tests that it would make", 0, |all| {
        all.iter()
            .filter(|d| d.event == DecisionEvent::WouldProbe)
            .count()
            >= 2
    });
    for agent in &agents {
        let decisions = agent.decisions();
        let would = |d: &Decision| d.dry_run && d.nagle == InForce::App;
        assert!(decisions.iter().all(would), "{decisions:?}");
        let tested = decisions.iter().any(|d| d.event == DecisionEvent::Probe);
        assert!(!tested, "{decisions:?}");
    }
    agents.into_iter().for_each(Agent::finish);
    stop.store(true, Ordering::Relaxed);
    let (sockets, looks, changes) = watching.join().expect("no panic");
    assert!(
        looks > 100 && changes == 0,
        "{changes} changes in {looks} looks"
    );
    assert_given_back(&sockets);
    application.finish();
}
