//! Programs that are written by hand: loading, attaching, and an XDP program that passes every packet: on a veth it
//! makes the driver poll.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use anyhow::{Context as _, Result};
use libbpf_rs::libbpf_sys::{
    self, BPF_ALU64, BPF_EXIT, BPF_JMP, BPF_K, BPF_MOV, BPF_PROG_TYPE_XDP, BPF_XDP,
    bpf_attach_type, bpf_insn, bpf_prog_type,
};
use nix::net::if_::if_nametoindex;

const XDP_PASS: i32 = 2;

/// Attaches it to `interface` of the calling thread's namespace, until what is returned is dropped.
///
/// # Errors
/// There is no such interface, or the kernel does not allow it.
pub fn attach(interface: &str) -> Result<OwnedFd> {
    let insn = |code: u32, imm: i32| bpf_insn {
        code: code as u8,
        imm,
        ..Default::default()
    };
    let insns = [
        insn(BPF_ALU64 | BPF_MOV | BPF_K, XDP_PASS),
        insn(BPF_JMP | BPF_EXIT, 0),
    ];
    let program = load(BPF_PROG_TYPE_XDP, c"bw_pass", &insns);
    let program = program.context("loading an XDP program that passes all")?;
    attach_program(interface, program.as_raw_fd())
}

/// Loads a program that was written by hand.
pub fn load(kind: bpf_prog_type, name: &CStr, insns: &[bpf_insn]) -> io::Result<OwnedFd> {
    // SAFETY: the strings end with a 0 and there are as many instructions as said; no options.
    owned(unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            name.as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            insns.as_ptr(),
            insns.len() as _,
            std::ptr::null_mut(),
        )
    })
}

/// Attaches a program to an interface, by its index, or to a cgroup, by its descriptor, until what is returned
/// is dropped.
pub fn link(program: RawFd, target: i32, kind: bpf_attach_type) -> io::Result<OwnedFd> {
    // SAFETY: the kernel looks at the descriptors; no options.
    owned(unsafe { libbpf_sys::bpf_link_create(program, target, kind, std::ptr::null()) })
}

/// Attaches an XDP program to `interface` of the calling thread's namespace, until what is returned is
/// dropped.
///
/// # Errors
/// There is no such interface, or the kernel does not allow it.
pub fn attach_program(interface: &str, program: RawFd) -> Result<OwnedFd> {
    let index = if_nametoindex(interface)?.try_into()?;
    let link = link(program, index, BPF_XDP);
    link.with_context(|| format!("attaching an XDP program to {interface}"))
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the call made this descriptor and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
