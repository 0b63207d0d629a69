//! An agent as small as can be, for tests.

use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use batchwise_hint::layout::REGISTRATION_LEN;
use batchwise_hint::reader::{Calibration, Mapping, Registration, Snapshot};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, accept,
    bind, listen, recvmsg, socket,
};

/// For how long a condition may take to come true: only a broken product or machine needs it all.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Where an agent listens.
pub struct Agent {
    socket: OwnedFd,
    path: PathBuf,
    calibration: Calibration,
}

/// A handle of an application.
pub struct Handle {
    pub registration: Registration,
    memory: Mapping,
    calibration: Calibration,
}

/// An application that has connected.
pub struct Application(OwnedFd);

impl Agent {
    pub fn listen(path: &Path) -> Self {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket =
            socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).expect("a socket");
        let address = UnixAddr::new(path).expect("its address");
        bind(socket.as_raw_fd(), &address).expect("it is free");
        listen(&socket, Backlog::new(8).expect("a number")).expect("it listens");
        Self {
            socket,
            path: path.to_owned(),
            calibration: Calibration::start(),
        }
    }

    /// Waits for an application.
    pub fn accept(&self) -> Application {
        let fd = accept(self.socket.as_raw_fd()).expect("an application");
        // SAFETY: the kernel just gave it to us.
        Application(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Waits for an application's handle of this service.
    pub fn find(&self, application: &Application, service: SocketAddr) -> Handle {
        loop {
            let handle = self.next(application);
            if handle.registration.identity.service == service {
                return handle;
            }
        }
    }

    /// Waits for an application's next handle.
    pub fn next(&self, application: &Application) -> Handle {
        let mut bytes = [0; REGISTRATION_LEN];
        let mut control = nix::cmsg_space!([i32; 1]);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let fd = application.0.as_raw_fd();
        let message = recvmsg::<()>(fd, &mut parts, Some(&mut control), flags).expect("a message");
        let Some(ControlMessageOwned::ScmRights(fds)) =
            message.cmsgs().expect("all of them").next()
        else {
            panic!("the application hung up");
        };
        // SAFETY: the kernel just gave it to us.
        let memory = unsafe { OwnedFd::from_raw_fd(fds[0]) };
        Handle {
            memory: Mapping::new(&memory, &self.calibration).expect("a segment"),
            registration: Registration::decode(&bytes).expect("a registration"),
            calibration: self.calibration,
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Handle {
    pub fn read(&mut self) -> Snapshot {
        self.memory.read(&self.calibration)
    }

    /// Requests that were completed since `earlier`, and how long they took in the mean, ns, when
    /// none was outstanding then and now.
    pub fn mean_since(&mut self, earlier: &Snapshot) -> (u64, f64) {
        let now = self.read();
        let (a, b) = (&earlier.sums, &now.sums);
        let created = b.created - a.created;
        let completed = b.completed - a.completed;
        assert_eq!(created, completed, "requests are outstanding");
        let came = b.created_at.wrapping_sub(a.created_at);
        let left = b.completed_at.wrapping_sub(a.completed_at);
        let ticks = left.wrapping_sub(came) as f64;
        (completed, ticks * now.ns_per_tick / completed as f64)
    }
}

/// Looks until `found` gives something.
#[allow(dead_code, reason = "not every test waits")]
pub fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(it) = found() {
            return it;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
