//! Attaching XDP programs, and one that passes every packet: on a veth it makes the driver poll.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use anyhow::{Context as _, Result};
use libbpf_rs::libbpf_sys::{
    self, BPF_ALU64, BPF_EXIT, BPF_JMP, BPF_K, BPF_MOV, BPF_PROG_TYPE_XDP, BPF_XDP, bpf_insn,
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
    // SAFETY: the strings are static and there are as many instructions as said; no options.
    let program = owned(unsafe {
        libbpf_sys::bpf_prog_load(
            BPF_PROG_TYPE_XDP,
            c"bw_pass".as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            insns.as_ptr(),
            insns.len() as _,
            std::ptr::null_mut(),
        )
    });
    let program = program.context("loading an XDP program that passes all")?;
    attach_program(interface, program.as_raw_fd())
}

/// Attaches an XDP program to `interface` of the calling thread's namespace, until what is returned is
/// dropped.
///
/// # Errors
/// There is no such interface, or the kernel does not allow it.
pub fn attach_program(interface: &str, program: RawFd) -> Result<OwnedFd> {
    let index = if_nametoindex(interface)?.try_into()?;
    // SAFETY: the descriptor is open; no options.
    let link =
        owned(unsafe { libbpf_sys::bpf_link_create(program, index, BPF_XDP, std::ptr::null()) });
    link.with_context(|| format!("attaching an XDP program to {interface}"))
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the call made this descriptor and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
