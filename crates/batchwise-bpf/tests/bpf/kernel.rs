//! Running and attaching XDP programs in tests, and making small ones.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{io, thread};

use batchwise_core::passive::Params;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use libbpf_sys::{bpf_insn, bpf_prog_load, bpf_prog_test_run_opts, bpf_test_run_opts};
use nix::sched::{CloneFlags, unshare};

pub const XDP_DROP: u32 = 1;
pub const XDP_PASS: u32 = 2;

pub fn need_root() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test loads BPF programs: run it as root"
    );
}

/// No epoch ends of itself, and no flow is idle, before a test has ended on the slowest machine.
pub fn patient() -> Params {
    Params {
        epoch_ns: 60_000_000_000,
        max_ns: 60_000_000_000,
        idle_ns: 60_000_000_000,
        ..Params::default()
    }
}

/// Runs a program on a frame; its verdict and the frame as it left it.
pub fn run(program: BorrowedFd<'_>, frame: &[u8]) -> (u32, Vec<u8>) {
    run_with(program, frame, bpf_test_run_opts::default())
}

/// Runs a tc program on a frame that came by loopback and leaves by it; its verdict.
pub fn run_forwarded(program: BorrowedFd<'_>, frame: &[u8]) -> i32 {
    const INTERFACES: std::ops::Range<usize> = 36..44; // in struct __sk_buff: where it came, and where it is
    let mut context = [0u8; 48];
    context[INTERFACES].copy_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0]);
    let opts = bpf_test_run_opts {
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: context.len() as u32,
        ..Default::default()
    };
    run_with(program, frame, opts).0.cast_signed()
}

/// Runs a tc program on a frame that loopback would send, with a mark; its verdict, the frame as it
/// left it, and the mark that it left.
pub fn run_marked(program: BorrowedFd<'_>, frame: &[u8], mark: u32) -> (i32, Vec<u8>, u32) {
    const MARK: std::ops::Range<usize> = 8..12; // in struct __sk_buff
    let (mut context, mut left) = ([0u8; 48], [0u8; 256]);
    context[MARK].copy_from_slice(&mark.to_ne_bytes());
    let opts = bpf_test_run_opts {
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: context.len() as u32,
        ctx_out: left.as_mut_ptr().cast(),
        ctx_size_out: left.len() as u32,
        ..Default::default()
    };
    let (verdict, out) = run_with(program, frame, opts);
    let left = left[MARK].try_into().map(u32::from_ne_bytes);
    (verdict.cast_signed(), out, left.unwrap())
}

/// `opts` has the context, if there is one.
fn run_with(program: BorrowedFd<'_>, frame: &[u8], opts: bpf_test_run_opts) -> (u32, Vec<u8>) {
    let mut out = vec![0; frame.len() + 256];
    let mut opts = bpf_test_run_opts {
        sz: size_of::<bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        ..opts
    };
    // SAFETY: the descriptor is open; the buffers are as long as `opts` says.
    let error = unsafe { bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut opts) };
    assert_eq!(error, 0, "{}", io::Error::from_raw_os_error(-error));
    out.truncate(opts.data_size_out as usize);
    (opts.retval, out)
}

/// The map of this name (its first 15 letters) that a program uses.
pub fn map(program: BorrowedFd<'_>, name: &str) -> MapHandle {
    let mut ids = [0u32; 16];
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: ids.len() as u32,
        map_ids: ids.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut len = size_of_val(&info) as u32;
    // SAFETY: the descriptor is open; the buffers are as long as is said.
    let error = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len)
    };
    assert_eq!(error, 0, "{}", io::Error::from_raw_os_error(-error));
    let ids = &ids[..info.nr_map_ids as usize];
    let mut maps = ids.iter().map(|id| MapHandle::from_map_id(*id).unwrap());
    maps.find(|map| map.name() == name).unwrap()
}

const fn insn(code: u8, dst: u8, src: u8, imm: u32) -> u64 {
    code as u64 | (dst as u64) << 8 | (src as u64) << 12 | (imm as u64) << 32
}

const EXIT: u64 = insn(0x95, 0, 0, 0);

const fn set(register: u8, value: u32) -> u64 {
    insn(0xb7, register, 0, value)
}

/// An XDP program with one verdict for all.
pub fn verdict(verdict: u32) -> OwnedFd {
    load(&[set(0, verdict), EXIT])
}

/// An XDP program that calls that of a prog array's first slot.
pub fn dispatcher(programs: BorrowedFd<'_>) -> OwnedFd {
    const TAIL_CALL: u32 = 12;
    load(&[
        insn(0x18, 2, 1, programs.as_raw_fd() as u32), // BPF_PSEUDO_MAP_FD
        0,
        set(3, 0),
        insn(0x85, 0, 0, TAIL_CALL),
        set(0, 0),
        EXIT,
    ])
}

fn load(insns: &[u64]) -> OwnedFd {
    // as libbpf does for `SEC("xdp")`; the kernel compares it before it lets one call another
    let mut opts = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as _,
        expected_attach_type: libbpf_sys::BPF_XDP,
        ..Default::default()
    };
    // SAFETY: instructions are 8 bytes each; the strings are static; `opts` says its size.
    let fd = unsafe {
        bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_XDP,
            c"bw_test".as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            insns.as_ptr().cast::<bpf_insn>(),
            insns.len() as _,
            &raw mut opts,
        )
    };
    owned(fd)
}

/// A prog array of one slot.
pub fn prog_array(program: BorrowedFd<'_>) -> MapHandle {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let map = MapHandle::create(MapType::ProgArray, Some("bw_test"), 4, 4, 1, &opts).unwrap();
    let fd = program.as_raw_fd().to_ne_bytes();
    map.update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY).unwrap();
    map
}

fn owned(fd: i32) -> OwnedFd {
    assert!(fd >= 0, "{}", io::Error::from_raw_os_error(-fd));
    // SAFETY: libbpf just made it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A program's name in bpffs, until dropped.
pub struct Pin(pub PathBuf);

impl Pin {
    pub fn new(program: &OwnedFd, name: &str) -> Self {
        batchwise_bpf::balance::mount_bpffs().unwrap();
        let name = format!("{name}-{}", std::process::id()); // another run has another
        let path = Path::new("/sys/fs/bpf").join(name);
        drop(std::fs::remove_file(&path)); // what a killed run of the same number left
        let c_path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the path is a string and the descriptor is open.
        let error =
            unsafe { libbpf_sys::bpf_obj_pin(program.as_fd().as_raw_fd(), c_path.as_ptr()) };
        assert_eq!(error, 0, "{}", io::Error::from_raw_os_error(-error));
        Self(path)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// Runs `f` in a network namespace that nobody else sees and that ends with it.
pub fn in_own_network<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            ip("link set lo up");
            f()
        });
        worker
            .join()
            .unwrap_or_else(|e| std::panic::resume_unwind(e))
    })
}

/// `ip` with these arguments, apart by spaces.
pub fn ip(line: &str) {
    let done = Command::new("ip").args(line.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {line}: {done:?}");
}
