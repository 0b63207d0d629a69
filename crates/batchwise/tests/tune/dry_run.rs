//! `--dry-run` decides, and touches nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::tune::{Agent, Decision};
use tempfile::TempDir;

use crate::application::{Application, Style};
use crate::sockets::{accepted_by_redis, assert_given_back, nodelay};

#[test]
fn a_dry_run_says_what_it_would_try_and_changes_no_socket_ever() {
    let scene = Scene::build("dry");
    let logs = TempDir::new().expect("a folder");
    let application = Application::start(&scene, 4, Style::Whole, Duration::ZERO);
    let mut sockets = application.wish(true);
    sockets.extend(accepted_by_redis(scene.server(), sockets.len()));
    let args = [
        "--dry-run",
        "--policy",
        "slo:1us",
        "--min-confidence",
        "0.2",
    ];
    let (stop, changes, looks) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let changed = sockets.iter().any(|s| nodelay(&s.socket) != s.nodelay);
                changes.fetch_add(u64::from(changed), Ordering::Relaxed);
                looks.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        // stops the thread above also when something fails
        let stopper = Stopper(&stop);
        let server = Agent::start(scene.server(), logs.path(), &args);
        let client = Agent::start(scene.client(), logs.path(), &args);
        let agents = [server, client];
        for agent in &agents {
            agent.until("three trials that it would make", 0, |all| {
                all.iter().filter(|d| d.event == "would_probe").count() >= 3
            });
            let would = |d: &Decision| d.nagle == "app" && !d.begins_trial();
            assert!(
                agent.decisions().iter().all(would),
                "{:?}",
                agent.decisions()
            );
            let dry = |d: &Decision| d.dry_run;
            assert!(agent.decisions().iter().all(dry), "{:?}", agent.decisions());
        }
        for agent in agents {
            agent.finish();
        }
        drop(stopper);
    });
    assert!(looks.load(Ordering::Relaxed) > 100);
    assert_eq!(changes.load(Ordering::Relaxed), 0);
    assert_given_back(&sockets);
    application.finish();
}

struct Stopper<'a>(&'a AtomicBool);

impl Drop for Stopper<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
