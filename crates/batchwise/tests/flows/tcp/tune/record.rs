//! The record of what applications asked for: it outlives agent and guard.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use batchwise_testbed::host::Host;
use batchwise_testbed::redis::PORT;
use batchwise_testbed::stage::eventually;
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::tune::Agent;
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

use crate::tcp::tune::application::{Application, Style};
use crate::tcp::tune::sockets::{Socket, assert_given_back, assert_given_back_in_time, until_held};

const PAUSE: Duration = Duration::from_micros(500);
const HOLD: [&str; 2] = ["--hold", "off"];

/// As systemd does it with KillMode=mixed, or a container whose first process dies.
fn die_together(mut agent: Agent) {
    let guard = agent.guard().expect("a guard");
    agent.signal(Signal::SIGSTOP);
    kill(guard, Signal::SIGKILL).expect("the guard is there");
    agent.signal(Signal::SIGKILL);
    agent.wait();
}

/// An application whose sockets an agent holds that then dies together with its guard.
fn left_behind(scene: &Scene, logs: &Path) -> (Application, Vec<Socket>) {
    let application = Application::start(scene, 4, Style::Whole, PAUSE);
    let sockets = application.set_nodelay(false);
    let agent = Agent::start(scene.client(), logs, &HOLD);
    until_held(&sockets, true);
    die_together(agent);
    until_held(&sockets, true);
    application.assert_goes_on();
    (application, sockets)
}

/// The next agent for the same sockets gives them back.
fn assert_given_back_by_the_next(
    scene: &Scene,
    logs: &Path,
    (application, sockets): (Application, Vec<Socket>),
) {
    let next = Agent::start(scene.client(), logs, &["--dry-run"]);
    until_held(&sockets, false);
    assert_given_back(&sockets);
    next.finish();
    assert_given_back(&sockets);
    application.finish();
}

#[test]
fn what_agent_and_guard_leave_behind_when_they_die_together_the_next_agent_gives_back() {
    let scene = Scene::build("together");
    let logs = TempDir::new().expect("a folder");
    let left = left_behind(&scene, logs.path());
    assert_given_back_by_the_next(&scene, logs.path(), left);
}

#[test]
fn what_an_application_asks_for_after_an_agents_death_is_not_undone_by_the_next() {
    let scene = Scene::build("after");
    let logs = TempDir::new().expect("a folder");
    let application = Application::start(&scene, 4, Style::Whole, PAUSE);
    let mut sockets = application.set_nodelay(false);
    let mut agent = Agent::start(scene.client(), logs.path(), &HOLD);
    until_held(&sockets, true);
    let death = agent.signal(Signal::SIGKILL);
    assert_given_back_in_time(&sockets, death);
    agent.wait();

    sockets = application.set_nodelay(true);
    let next = Agent::start(scene.client(), logs.path(), &["--hold", "on"]);
    assert!(!next.messages().contains("again"), "{}", next.messages());
    until_held(&sockets, false);
    next.finish();
    assert_given_back(&sockets);
    application.finish();
}

#[test]
fn an_agent_of_another_port_gives_back_what_was_left_behind() {
    let scene = Scene::build("ports");
    let logs = TempDir::new().expect("a folder");
    let (application, sockets) = left_behind(&scene, logs.path());
    let mut other = Agent::launch_at(scene.client(), logs.path(), PORT + 1, &HOLD);
    other.wait_attached();
    until_held(&sockets, false);
    assert_given_back(&sockets);
    other.finish();
    application.finish();
}

#[test]
fn sockets_that_were_closed_since_are_waited_for_by_no_agent() {
    let scene = Scene::build("closed");
    let logs = TempDir::new().expect("a folder");
    let (application, sockets) = left_behind(&scene, logs.path());
    application.finish();
    drop(sockets);
    let mut other = Agent::launch_at(scene.client(), logs.path(), PORT + 1, &HOLD);
    other.wait_attached();
    let said = other.messages();
    assert!(!said.contains("out of reach"), "{said}");
    other.finish();
}

/// Whoever writes a new record finds that a folder has its name.
fn obstruct(host: &Host) -> impl Drop {
    struct Folder(std::path::PathBuf);
    impl Drop for Folder {
        fn drop(&mut self) {
            // it is empty and ours; where it is gone there is nothing to do
            let _ = fs::remove_dir(&self.0);
        }
    }
    let inode = fs::metadata(host.cgroup())
        .expect("the host's cgroup")
        .ino();
    let new = Path::new("/run/batchwise").join(format!("tune-{inode}.settings.new"));
    fs::create_dir_all(&new).expect("a folder in the way");
    Folder(new)
}

#[test]
fn nothing_is_switched_until_what_applications_asked_for_can_be_written_down() {
    let scene = Scene::build("record");
    let logs = TempDir::new().expect("a folder");
    let application = Application::start(&scene, 4, Style::Whole, PAUSE);
    let sockets = application.set_nodelay(false);
    let obstacle = obstruct(scene.client());
    let mut agent = Agent::start(scene.client(), logs.path(), &HOLD);
    let says = || {
        agent
            .messages()
            .contains("nothing is switched")
            .then_some(())
    };
    eventually("the agent to say so", says, || agent.messages());
    application.assert_goes_on();
    assert_given_back(&sockets);
    agent.assert_alive();

    drop(obstacle);
    until_held(&sockets, true);
    agent.finish();
    assert_given_back(&sockets);
    application.finish();
}
