//! A process that hands over hints: its message, its descriptors, and what it writes into the shared memory,
//! before and after that is read. The first byte says how it differs from a good one.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use batchwise::fuzzing;
use batchwise_hint::layout::{LARGEST, PAGE, REGISTRATION_LEN};
use batchwise_hint::reader::monotonic_ns;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::unistd::ftruncate;
use tempfile::TempDir;

use crate::input::Input;
use crate::send::send;

type Poll = Box<dyn FnMut() -> anyhow::Result<()>>;

thread_local! {
    static FOLDER: TempDir = tempfile::tempdir().expect("a folder");
    static ADDRESS: UnixAddr = FOLDER.with(|f| UnixAddr::new(&f.path().join("hints"))).expect("short");
    static LISTENER: RefCell<Poll> = ADDRESS.with(|at| {
        let poll = fuzzing::hints(at.path().expect("a path"));
        RefCell::new(Box::new(poll.expect("it listens")))
    });
}

pub fn run(data: &[u8]) {
    let poll = || LISTENER.with_borrow_mut(|poll| poll().expect("it goes on"));
    poll();
    let mut input = Input(data);
    let how = input.number::<1>();
    let registration = input.bytes(REGISTRATION_LEN);
    let memory = memory(how & 1 != 0, (how >> 5 & 3) as usize);
    let (unix, flags) = (AddressFamily::Unix, SockFlag::SOCK_CLOEXEC);
    let socket: OwnedFd = socket(unix, SockType::SeqPacket, flags, None).expect("a socket");
    ADDRESS
        .with(|at| connect(socket.as_raw_fd(), at))
        .expect("it listens");
    // one, none, three or two
    let fds = vec![memory.as_raw_fd(); (how >> 2 & 3 ^ 1) as usize];
    send(&socket, registration, &fds);
    for part in [input.0.len() / 2, input.0.len()] {
        memory.write_at(input.bytes(part), 0).expect("memory");
        if how & 16 == 0 {
            // a clock that is in step
            let now = monotonic_ns().to_ne_bytes();
            memory.write_at(&[now, now].concat(), 24).expect("memory");
        }
        poll();
    }
    drop(socket);
    poll();
}

fn memory(can_shrink: bool, size: usize) -> File {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let memory = File::from(memfd_create(c"fuzz", flags).expect("memory"));
    let size = [PAGE, 3 * PAGE, PAGE + 128, LARGEST][size];
    ftruncate(&memory, size as i64).expect("memory");
    let mut seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    seals.set(SealFlag::F_SEAL_SHRINK, !can_shrink);
    fcntl(&memory, FcntlArg::F_ADD_SEALS(seals)).expect("seals");
    memory
}
