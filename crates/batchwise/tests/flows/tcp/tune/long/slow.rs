//! An agent that gets no CPU for longer than the guard waits for its heartbeat: slow is not dead.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use batchwise_testbed::stage::eventually;
use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::tune::Agent;
use nix::libc;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::tcp::tune::sockets::{Socket, assert_given_back, until_held};

/// A thread that keeps a CPU busy until dropped.
struct Busy {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    fn on(cpu: usize) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            pin(Pid::from_raw(0), cpu);
            while !flag.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let thread = Some(thread);
        Self { stop, thread }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn pin(thread: Pid, cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu).expect("a CPU");
    sched_setaffinity(thread, &cpus).expect("a CPU of this machine");
}

/// Has the agent's main thread run only when nobody else wants its CPU. Its guard goes on as before.
fn starve(agent: Pid, cpu: usize) {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters live through the call.
    let set = unsafe { libc::sched_setscheduler(agent.as_raw(), libc::SCHED_IDLE, &parameters) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    pin(agent, cpu);
}

/// How long it has waited for a CPU, and how often it got one.
fn waits(pid: Pid) -> (Duration, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("its schedstat");
    let mut numbers = text.split_whitespace().skip(1).map(str::parse);
    let mut next = || numbers.next().expect("three numbers").expect("a number");
    (Duration::from_nanos(next()), next())
}

fn until_given_back(sockets: &[Socket]) {
    until_held(sockets, sockets[0].nodelay);
    assert_given_back(sockets);
}

#[test]
fn an_agent_without_a_cpu_is_not_taken_for_dead_unless_it_is_stopped_or_killed() {
    const CPU: usize = 0;
    let scene = Scene::build("slow");
    let logs = TempDir::new().expect("a folder");
    let connect = |_| Socket::set(&scene.stage.connect(scene.address()), true);
    let sockets: Vec<_> = (0..4).map(connect).collect();
    let mut agent = Agent::start(scene.client(), logs.path(), &["--hold", "on"]);
    until_held(&sockets, false);
    let guard = agent.guard().expect("a guard");

    let busy = Busy::on(CPU);
    starve(agent.pid(), CPU);
    let (waited, turns) = waits(agent.pid());
    eventually(
        "the agent to wait for a CPU longer than a guard waits for it",
        || {
            let (now, then) = waits(agent.pid());
            // it has little to do, so it waits rarely
            (now - waited > Duration::from_secs(1)).then_some(then - turns)
        },
        || format!("{:?}", waits(agent.pid())),
    );
    assert_eq!(agent.guard(), Some(guard), "the guard of the beginning");
    until_held(&sockets, false);

    agent.signal(Signal::SIGSTOP);
    until_given_back(&sockets);
    agent.signal(Signal::SIGCONT);
    agent.next_guard(guard);
    until_held(&sockets, false);
    agent.signal(Signal::SIGKILL);
    until_given_back(&sockets);
    agent.wait();
    drop(busy);
}
