//! Socket options that are longer than a page, of which the agent's program sees a part.

use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr::null_mut;
use std::time::Duration;

use batchwise_testbed::stage::scene::Scene;
use batchwise_testbed::stage::tune::Agent;
use libbpf_rs::libbpf_sys::{self, bpf_insn};
use nix::libc;
use socket2::SockRef;
use tempfile::TempDir;

use crate::tcp::tune::application::{Application, Style};
use crate::tcp::tune::sockets::{assert_given_back, until_held};

/// Bytes, more than the largest page has.
const LONG: usize = 1 << 17;

/// Sets an option that is an `int` with a value that is longer than a page.
fn set_long(socket: &TcpStream, level: i32, option: i32, value: i32) -> io::Result<()> {
    let mut long = vec![0u8; LONG];
    long[..size_of_val(&value)].copy_from_slice(&value.to_ne_bytes());
    let (fd, len) = (socket.as_raw_fd(), LONG as libc::socklen_t);
    // SAFETY: the descriptor is open, and the value as long as is said.
    let set = unsafe { libc::setsockopt(fd, level, option, long.as_ptr().cast(), len) };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What Linux before 6.4 does behind all programs of a cgroup: refuses an option that is longer than programs see,
/// unless they have set its length to 0. Until dropped.
fn refuse_long(cgroup: &Path) -> [OwnedFd; 2] {
    const OPTLEN: u64 = 32; // in struct bpf_sockopt
    let insns: [u64; 5] = [
        0x61 | 2 << 8 | 1 << 12 | OPTLEN << 16, // r2 = optlen
        0xb7 | 1 << 32,                         // r0 = 1
        0xb5 | 2 << 8 | 1 << 16 | (LONG as u64 - 1) << 32, // if r2 < LONG goto +1
        0xb7,                                   // r0 = 0
        0x95,                                   // exit
    ];
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as _,
        expected_attach_type: libbpf_sys::BPF_CGROUP_SETSOCKOPT,
        ..Default::default()
    };
    // SAFETY: instructions are 8 bytes each; the strings are static; `options` says its size.
    let program = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_CGROUP_SOCKOPT,
            c"bw_test".as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            insns.as_ptr().cast::<bpf_insn>(),
            insns.len() as _,
            &raw mut options,
        )
    };
    let program = owned(program);
    let cgroup = File::open(cgroup).expect("the cgroup");
    let (at, attach) = (cgroup.as_raw_fd(), libbpf_sys::BPF_CGROUP_SETSOCKOPT);
    // SAFETY: both descriptors are open, and no options are as good as none.
    let link = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), at, attach, null_mut()) };
    [owned(link), program]
}

fn owned(fd: i32) -> OwnedFd {
    assert!(fd >= 0, "{}", io::Error::from_raw_os_error(-fd));
    // SAFETY: libbpf just made it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

#[test]
fn an_option_longer_than_a_page_is_set_and_remembered_as_others() {
    let scene = Scene::build("long");
    let logs = TempDir::new().expect("a folder");
    let application = Application::start(&scene, 2, Style::Whole, Duration::from_micros(500));
    let mut sockets = application.set_nodelay(true);
    let keep_alive = |s: &TcpStream| set_long(s, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);

    let alone = refuse_long(scene.client().cgroup());
    keep_alive(&sockets[0].socket).expect_err("as an older kernel");
    drop(alone);
    let agent = Agent::start(scene.client(), logs.path(), &["--hold", "off"]);
    until_held(&sockets, true);
    let _behind = refuse_long(scene.client().cgroup());
    for s in &mut sockets {
        keep_alive(&s.socket).expect("SO_KEEPALIVE");
        assert!(SockRef::from(&s.socket).keepalive().expect("SO_KEEPALIVE"));
        set_long(&s.socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 0).expect("TCP_NODELAY");
        s.nodelay = false;
    }
    until_held(&sockets, true);
    agent.finish();
    assert_given_back(&sockets);
    application.finish();
}
