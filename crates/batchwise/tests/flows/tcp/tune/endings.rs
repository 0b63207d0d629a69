//! Orderly endings, and what the guard itself must survive.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use batchwise_core::tune::report::{DecisionEvent, InForce};
use batchwise_testbed::cgroup::Membership;
use batchwise_testbed::host::{Role, ip};
use batchwise_testbed::redis::PORT;
use batchwise_testbed::stage::refusal::{assert_refused, run};
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::tune::Agent;
use batchwise_testbed::stage::{PATIENCE, batchwise};
use batchwise_testbed::stop::Stop;
use nix::fcntl::{Flock, FlockArg};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

use crate::tcp::tune::application::{Application, Style};
use crate::tcp::tune::sockets::{Socket, assert_given_back, assert_given_back_in_time, until_held};

const PAUSE: Duration = Duration::from_micros(500);
const HOLD: [&str; 2] = ["--hold", "off"];

#[test]
fn when_an_agent_has_ended_in_order_the_sockets_are_given_back_already() {
    let scene = Scene::build("end");
    let logs = TempDir::new().expect("a folder");
    let application = Application::start(&scene, 4, Style::Whole, PAUSE);
    let sockets = application.set_nodelay(false);
    for signal in [Some(Signal::SIGTERM), Some(Signal::SIGINT), None] {
        let duration = if signal.is_some() { "300s" } else { "4s" };
        let args = [&HOLD[..], &["--duration", duration]].concat();
        let mut agent = Agent::launch(scene.client(), logs.path(), &args);
        until_held(&sockets, true);
        if let Some(signal) = signal {
            agent.signal(signal);
        }
        let status = agent.wait();
        assert_given_back(&sockets);
        assert!(status.success(), "{signal:?}: {status}");
        let last = agent.decisions().pop().expect("decisions");
        assert_eq!(
            (last.event, last.nagle),
            (DecisionEvent::Stop, InForce::App)
        );
    }
    application.finish();
}

#[test]
fn an_agent_whose_guard_is_killed_gets_itself_a_new_one_and_goes_on() {
    let scene = Scene::build("guard");
    let logs = TempDir::new().expect("a folder");
    let application = Application::start(&scene, 4, Style::Whole, PAUSE);
    let sockets = application.set_nodelay(false);
    let mut agent = Agent::start(scene.client(), logs.path(), &HOLD);
    until_held(&sockets, true);
    let first = agent.guard().expect("a guard");
    kill(first, Signal::SIGKILL).expect("the guard is there");
    let second = agent.next_guard(first);
    until_held(&sockets, true);

    // as systemd does it: a signal to all processes of the unit
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGABRT,
    ] {
        kill(second, signal).expect("the guard is there");
    }
    application.assert_goes_on();
    assert_eq!(agent.guard(), Some(second));
    let death = agent.signal(Signal::SIGKILL);
    assert_given_back_in_time(&sockets, death);
    agent.wait();
    application.finish();
}

#[test]
fn an_agent_that_ends_without_a_guard_gives_the_sockets_back_itself() {
    let scene = Scene::build("unguarded");
    let logs = TempDir::new().expect("a folder");
    let application = Application::start(&scene, 4, Style::Whole, PAUSE);
    let sockets = application.set_nodelay(false);
    let mut agent = Agent::start(scene.client(), logs.path(), &HOLD);
    until_held(&sockets, true);
    // both signals wait until it goes on: it has no time for another guard
    let guard = agent.guard().expect("a guard");
    agent.signal(Signal::SIGSTOP);
    kill(guard, Signal::SIGKILL).expect("the guard is there");
    agent.signal(Signal::SIGTERM);
    agent.signal(Signal::SIGCONT);
    let status = agent.wait();
    assert_given_back(&sockets);
    assert!(status.success(), "{status}");
    application.finish();
}

#[test]
fn neither_a_lock_on_the_cgroup_nor_a_cgroup_above_lets_two_agents_meet() {
    let scene = Scene::build("place");
    let logs = TempDir::new().expect("a folder");
    let cgroup = fs::File::open(scene.client().cgroup()).expect("the cgroup");
    let locked = Flock::lock(cgroup, FlockArg::LockExclusiveNonblock);
    let _locked = locked
        .map_err(|(_, e)| e)
        .expect("anyone can lock a folder");
    let agent = Agent::start(scene.client(), logs.path(), &[]);
    let above = scene.client().cgroup().parent().expect("a cgroup above");
    let mut tune = batchwise();
    tune.args("tune --duration 1s --port 6379 --cgroup".split(' '));
    assert_refused(
        &run(tune.arg(above)),
        1,
        &["another `batchwise tune`", "above or below"],
    );
    agent.finish();
}

#[test]
fn a_cgroup_that_is_made_anew_ends_the_agent_and_its_sockets_are_given_back() {
    let scene = Scene::build("anew");
    let folder = scene.client().cgroup().join("service");
    fs::create_dir(&folder).expect("a cgroup");
    let application = {
        let _inside = Membership::join(&folder).expect("this process in it");
        Application::start(&scene, 4, Style::Whole, PAUSE)
    };
    let sockets = application.set_nodelay(false);
    let mut command = batchwise();
    command.args("tune --port 6379 --hold off --cgroup".split(' '));
    command.arg(&folder);
    let agent = scene.client().spawn("the agent", command, Role::Observer);
    let mut agent = agent.expect("an agent");
    agent.on_line(drop);
    until_held(&sockets, true);
    fs::remove_dir(&folder).expect("an empty cgroup");
    fs::create_dir(&folder).expect("the same, and another one");
    let ended = agent.wait(&Stop::default(), PATIENCE).expect("its end");
    assert_given_back(&sockets);
    let said = agent.quote();
    assert_eq!(ended.code(), Some(1), "{said}");
    assert!(said.contains("start again"), "{said}");
    application.finish();
}

/// A connection with both ends in a network namespace of its own, made and used by a thread.
fn in_a_namespace_of_its_own(orders: Receiver<()>, made: Sender<Option<[TcpStream; 2]>>) {
    let before = fs::File::open("/proc/thread-self/ns/net").expect("our namespace");
    unshare(CloneFlags::CLONE_NEWNET).expect("a namespace");
    ip(&["link", "set", "lo", "up"]).expect("its loopback");
    let inhabitant = Command::new("sleep").arg("300").spawn();
    let mut inhabitant = inhabitant.expect("a process in it");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).expect("a listener");
    let mut client = TcpStream::connect(("127.0.0.1", PORT)).expect("a connection");
    let (mut server, _) = listener.accept().expect("its other end");
    let copies = [&client, &server].map(|end| end.try_clone().expect("a second handle"));
    made.send(Some(copies)).expect("the test waits");
    let mut is_inside = true;
    loop {
        client.write_all(b"x").expect("a request");
        server.read_exact(&mut [0]).expect("it comes");
        server.write_all(b"y").expect("an answer");
        client.read_exact(&mut [0]).expect("it comes");
        match orders.try_recv() {
            Ok(()) if is_inside => {
                setns(&before, CloneFlags::CLONE_NEWNET).expect("back");
                inhabitant.kill().expect("it is there");
                inhabitant.wait().expect("it ends");
                is_inside = false;
                made.send(None).expect("the test waits");
            }
            Err(TryRecvError::Empty) => std::thread::sleep(PAUSE),
            _ => break,
        }
    }
}

#[test]
fn sockets_of_a_namespace_in_which_no_process_is_any_more_are_given_back() {
    in_a_deserted_namespace("deserted", Signal::SIGTERM);
}

#[test]
fn sockets_of_such_a_namespace_are_given_back_by_the_guard_as_well() {
    in_a_deserted_namespace("forlorn", Signal::SIGKILL);
}

fn in_a_deserted_namespace(tag: &str, end: Signal) {
    let scene = Scene::build(tag);
    let logs = TempDir::new().expect("a folder");
    let ((order, orders), (made, ends)) = (channel(), channel());
    let thread = std::thread::spawn(move || in_a_namespace_of_its_own(orders, made));
    let ends_of_it = ends.recv().expect("the thread runs").expect("a connection");
    let sockets = ends_of_it.each_ref().map(|end| Socket::set(end, false));
    let mut agent = Agent::launch(scene.client(), logs.path(), &HOLD);
    until_held(&sockets, true);
    order.send(()).expect("the thread waits");
    ends.recv().expect("it has left the namespace");
    let death = agent.signal(end);
    let ended = agent.wait();
    assert!(
        end == Signal::SIGKILL || ended.success(),
        "{}",
        agent.messages()
    );
    assert_given_back_in_time(&sockets, death);
    order.send(()).expect("the thread waits");
    thread.join().expect("it ends");
}

mod long {
    use super::*;

    #[test]
    fn a_guard_that_is_stopped_is_noticed_and_replaced() {
        let scene = Scene::build("stuck");
        let logs = TempDir::new().expect("a folder");
        let application = Application::start(&scene, 4, Style::Whole, PAUSE);
        let sockets = application.set_nodelay(false);
        let mut agent = Agent::start(scene.client(), logs.path(), &HOLD);
        until_held(&sockets, true);
        let first = agent.guard().expect("a guard");
        kill(first, Signal::SIGSTOP).expect("the guard is there");
        agent.next_guard(first);
        until_held(&sockets, true);
        let messages = agent.messages();
        assert!(messages.contains("beginning anew"), "{messages}");

        // one that is stopped just before the end holds nothing up
        let second = agent.guard().expect("a guard");
        kill(second, Signal::SIGSTOP).expect("the guard is there");
        agent.signal(Signal::SIGTERM);
        assert!(agent.wait().success(), "{}", agent.messages());
        assert_given_back(&sockets);
        application.finish();
    }

    #[test]
    fn an_agent_that_lives_is_not_taken_for_dead_on_a_slow_machine_either() {
        let scene = Scene::build("lives");
        let logs = TempDir::new().expect("a folder");
        let application = Application::start(&scene, 4, Style::Whole, PAUSE);
        let sockets = application.set_nodelay(false);
        let mut agent = Agent::launch(scene.client(), logs.path(), &HOLD);
        until_held(&sockets, true);
        std::thread::sleep(Duration::from_secs(10));
        agent.signal(Signal::SIGTERM);
        assert!(agent.wait().success(), "{}", agent.messages());
        assert_given_back(&sockets);
        let messages = agent.messages();
        assert!(!messages.contains("for dead"), "{messages}");
        application.finish();
    }
}
