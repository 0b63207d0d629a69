//! What an application does to the agent and to others with the sockets that it hands over.

use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::thread;
use std::time::Duration;

use batchwise_testbed::stage::eventually;
use batchwise_window::{MAGIC, Mode, Set, VERSION};
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    connect, recv, recvmsg, sendmsg, socket,
};
use nix::unistd::Pid;

use super::{Place, stuff};

/// Memory of which a page is never there: who copies from it waits, with all that he holds.
struct Nowhere {
    fault: OwnedFd,
    at: *mut libc::c_void,
}

/// `struct uffdio_api` and `struct uffdio_register` (linux/userfaultfd.h), and their requests.
type Api = [u64; 3];
type Register = [u64; 4];
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFD_API: u64 = 0xaa;
const MISSING: u64 = 1;
const PAGE: usize = 4096;

impl Nowhere {
    fn new() -> Self {
        // SAFETY: a new descriptor, new memory, and structures of the kernel's size that outlive the calls.
        unsafe {
            let fault = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            assert!(fault >= 0, "{}", std::io::Error::last_os_error());
            let fault = OwnedFd::from_raw_fd(fault as i32);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(null_mut(), PAGE, libc::PROT_READ, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            let mut api: Api = [UFFD_API, 0, 0];
            let begun = libc::ioctl(fault.as_raw_fd(), UFFDIO_API, &raw mut api);
            let mut register: Register = [at as u64, PAGE as u64, MISSING, 0];
            let done = libc::ioctl(fault.as_raw_fd(), UFFDIO_REGISTER, &raw mut register);
            assert_eq!((begun, done), (0, 0), "{}", std::io::Error::last_os_error());
            Self { fault, at }
        }
    }
}

/// One that speaks to the agent without the library.
struct Application(OwnedFd);

impl Application {
    /// It has its memory.
    fn begin(place: &Place) -> Self {
        let application = Self::connect(place);
        application.ask(0, 0, &[]);
        let answer = recv(application.0.as_raw_fd(), &mut [0; 64], MsgFlags::empty());
        answer.expect("memory");
        application
    }

    fn connect(place: &Place) -> Self {
        let kind = SockType::SeqPacket;
        let socket = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None);
        let application = Self(socket.expect("a socket"));
        let address = UnixAddr::new(&place.socket()).expect("an address");
        connect(application.0.as_raw_fd(), &address).expect("the agent listens");
        application
    }

    fn ask(&self, slot: u32, turn: u32, fds: &[i32]) {
        let bytes = [MAGIC, VERSION, slot, turn].map(u32::to_ne_bytes).concat();
        let (parts, rights) = ([IoSlice::new(&bytes)], [ControlMessage::ScmRights(fds)]);
        let rights = if fds.is_empty() { &[][..] } else { &rights };
        let to = self.0.as_raw_fd();
        sendmsg::<()>(to, &parts, rights, MsgFlags::empty(), None).expect("it is taken");
    }
}

/// The descriptor of the memory that an application is given.
fn memory_of(application: &Application) -> Option<OwnedFd> {
    let mut bytes = [0; 64];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let mut space = nix::cmsg_space!([i32; 1]);
    let from = application.0.as_raw_fd();
    let message = recvmsg::<()>(from, &mut parts, Some(&mut space), MsgFlags::empty());
    let message = message.ok()?;
    let mut rights = message.cmsgs().ok()?;
    let Some(ControlMessageOwned::ScmRights(fds)) = rights.next() else {
        return None;
    };
    // SAFETY: the kernel just gave it to us.
    fds.first().map(|fd| unsafe { OwnedFd::from_raw_fd(*fd) })
}

#[test]
fn memory_counts_as_its_users_for_as_long_as_it_is_kept() {
    let place = Place::build("memory");
    let mut agent = place.agent();
    let given = || {
        let application = Application::connect(&place);
        application.ask(0, 0, &[]);
        memory_of(&application)
    };
    let kept: Vec<_> = (0..64).map(|_| given().expect("memory")).collect();
    assert!(given().is_none(), "the 65th");
    drop(kept);
    let again = || given().map(drop);
    eventually("memory again", again, || agent.0.quote());
    agent.signal(Signal::SIGTERM);
}

#[test]
fn what_those_who_wait_have_sent_does_not_keep_the_agent_from_ending() {
    let place = Place::build("queue");
    let mut agent = place.agent();
    let pid = agent.0.pid();
    stop(pid);
    let _others: Vec<_> = (0..20)
        .map(|_| {
            let application = Application::connect(&place);
            let (client, server) = place.connection();
            lingers(&client);
            application.ask(1, 1, &[client.as_raw_fd()]);
            (application, server)
        })
        .collect();
    kill(pid, Signal::SIGTERM).expect("the agent is there");
    agent.signal(Signal::SIGCONT);
}

/// What is ready is registered with the agent and can send.
fn is_served(set: &Set, place: &Place) {
    let (client, _server) = place.connection();
    let key = set.add(client.as_fd(), 1).expect("a key");
    assert!(set.wait(key, client.as_fd()).expect("an answer").is_some());
    assert_eq!(set.mode_of(key), Mode::Agent);
    set.remove(key);
}

#[test]
fn a_socket_whose_lock_is_held_delays_only_the_application_that_registers_it() {
    let place = Place::build("locked");
    let mut agent = place.agent();
    let (hostile, honest) = (Application::begin(&place), place.set());
    let (held, _server) = place.connection();
    let nowhere = Nowhere::new();
    let (at, to) = (nowhere.at as usize, held.as_raw_fd());
    thread::scope(|scope| {
        // SAFETY: the kernel reads a page that is mapped.
        scope.spawn(move || unsafe { libc::send(to, at as *const _, PAGE, 0) });
        let sleeps = || {
            let tasks = fs::read_dir("/proc/self/task").expect("our threads");
            let waits = |task: fs::DirEntry| fs::read_to_string(task.path().join("wchan"));
            let held = tasks.flatten().flat_map(waits);
            held.into_iter()
                .any(|w| w == "handle_userfault")
                .then_some(())
        };
        eventually("the lock to be held", sleeps, || agent.0.quote());
        hostile.ask(1, 1, &[to]);
        (0..10).for_each(|_| is_served(&honest, &place));
        // the page is there, all zeros
        drop(nowhere.fault);
    });
    agent.signal(Signal::SIGTERM);
}

/// Stops the agent; returns when none of its threads runs any more.
fn stop(pid: Pid) {
    kill(pid, Signal::SIGSTOP).expect("the agent is there");
    let runs = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).expect("its state");
        !stat.contains(") T ")
    };
    let stopped = || {
        let mut tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
        (!tasks.any(|task| runs(task.expect("a thread")))).then_some(())
    };
    eventually("the agent to stop", stopped, String::new);
}

/// Has data that nobody reads, and whoever closes it last waits for an hour.
fn lingers(client: &TcpStream) {
    let linger = socket2::SockRef::from(client).set_linger(Some(Duration::from_secs(3600)));
    linger.expect("it lingers");
    stuff(client);
}

/// Hands over a socket with data that nobody reads, which lingers for an hour, and lets go of it: its
/// close is the agent's.
fn hand_over(place: &Place, pid: Pid) -> (Application, TcpStream) {
    let application = Application::begin(place);
    let (client, server) = place.connection();
    lingers(&client);
    stop(pid);
    application.ask(1, 1, &[client.as_raw_fd()]);
    drop(client);
    kill(pid, Signal::SIGCONT).expect("the agent is there");
    (application, server)
}

#[test]
fn a_socket_that_lingers_holds_up_nothing_that_others_hand_over() {
    let place = Place::build("linger");
    let mut agent = place.agent();
    let pid = agent.0.pid();
    let honest = place.set();
    is_served(&honest, &place);
    let _lingers = hand_over(&place, pid);
    let open = || {
        fs::read_dir(format!("/proc/{pid}/fd"))
            .expect("its descriptors")
            .count()
    };
    let before = open();
    (0..100).for_each(|_| is_served(&honest, &place));
    let closed = || (open() <= before).then_some(());
    eventually("all others to be closed", closed, || agent.0.quote());
    agent.signal(Signal::SIGTERM);
}
