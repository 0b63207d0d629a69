//! What is not seen is said, and never as a service that does nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use batchwise_testbed::left_out;
use batchwise_testbed::pass;
use batchwise_testbed::stage::watch::Watch;
use batchwise_testbed::stage::{Stage, connect, eventually, listen};
use libbpf_rs::libbpf_sys::{
    self, BPF_ALU64, BPF_CALL, BPF_DW, BPF_EXIT, BPF_F_INGRESS, BPF_IMM, BPF_JMP, BPF_K, BPF_LD,
    BPF_MAP_TYPE_SOCKMAP, BPF_MOV, BPF_PROG_TYPE_SK_MSG, BPF_PSEUDO_MAP_FD, BPF_SK_MSG_VERDICT,
    bpf_insn,
};
use nix::errno::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use crate::tcp::watch::whose::ask;

const PORT: u16 = 17_024;
/// Nothing listens on it.
const EMPTY: u16 = 17_025;

/// Waits until it says this on standard error.
fn until_said(watch: &Watch, what: &str) {
    let said = || watch.messages().contains(what).then_some(());
    eventually(what, said, || watch.messages());
}

#[test]
fn connections_of_mptcp_are_said_not_to_be_seen() {
    let stage = Stage::build("mptcp");
    let address = stage.hosts.server_address(PORT);
    let mptcp = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP));
    let listener = stage.hosts.server.inside(|| {
        let Ok(socket) = mptcp() else {
            return Ok(None);
        };
        socket.bind(&address.into())?;
        socket.listen(16)?;
        Ok(Some(TcpListener::from(socket)))
    });
    let Some(listener) = listener.expect("a listener") else {
        return left_out("this kernel has no MPTCP");
    };
    let watch = Watch::start(&stage.hosts.server, PORT, None, &[]);
    // another one is seen as before: the listener's side falls back to TCP
    let plain = connect(&stage.hosts.client, address);
    let mut plain = [plain, listener.accept().expect("accepted").0];
    let client = stage.hosts.client.inside(|| {
        let socket = mptcp()?;
        socket.connect(&address.into())?;
        Ok(TcpStream::from(socket))
    });
    let client = client.expect("a client");
    let mut unseen = [client, listener.accept().expect("accepted").0];
    ask(&mut unseen);
    until_said(
        &watch,
        &format!("2 connections of MPTCP on port {PORT} are not seen"),
    );
    let lines = eventually(
        "lines of the other connection",
        || {
            ask(&mut plain);
            let lines = watch.lines();
            (lines.len() > 5).then_some(lines)
        },
        || format!("{:?}", watch.lines()),
    );
    assert!(lines.iter().all(|line| line.connections == 1), "{lines:#?}");
    let said = watch.messages().matches("MPTCP").count();
    assert_eq!(said, 1, "{}", watch.messages());
    watch.finish();
}

fn instruction(code: u32, registers: [u8; 2], imm: i32) -> bpf_insn {
    let mut instruction = bpf_insn {
        code: code as u8,
        imm,
        ..Default::default()
    };
    instruction.set_dst_reg(registers[0]);
    instruction.set_src_reg(registers[1]);
    instruction
}

/// A sockmap whose program hands all that is sent on its sockets to the first of them to read.
fn sockmap() -> [OwnedFd; 2] {
    const REDIRECT: i32 = 60; // bpf_msg_redirect_map()
    // SAFETY: the name ends with a 0; no options.
    let map = unsafe {
        libbpf_sys::bpf_map_create(
            BPF_MAP_TYPE_SOCKMAP,
            c"bw_sockmap".as_ptr(),
            4,
            4,
            2,
            std::ptr::null(),
        )
    };
    let map = Errno::result(map).expect("a sockmap");
    let set = BPF_ALU64 | BPF_MOV | BPF_K;
    let code = [
        instruction(BPF_LD | BPF_DW | BPF_IMM, [2, BPF_PSEUDO_MAP_FD as u8], map),
        instruction(0, [0, 0], 0),
        instruction(set, [3, 0], 0),
        instruction(set, [4, 0], BPF_F_INGRESS as i32),
        instruction(BPF_JMP | BPF_CALL, [0, 0], REDIRECT),
        instruction(BPF_JMP | BPF_EXIT, [0, 0], 0),
    ];
    let program = pass::load(BPF_PROG_TYPE_SK_MSG, c"bw_redirect", &code).expect("a program");
    // SAFETY: the kernel looks at the descriptors.
    let attached =
        unsafe { libbpf_sys::bpf_prog_attach(program.as_raw_fd(), map, BPF_SK_MSG_VERDICT, 0) };
    Errno::result(attached).expect("attached");
    // SAFETY: it is new, so nobody else has it.
    [unsafe { OwnedFd::from_raw_fd(map) }, program]
}

fn put(map: &OwnedFd, at: u32, socket: RawFd) {
    // SAFETY: key and value have the sizes that the map was made with.
    let put = unsafe {
        libbpf_sys::bpf_map_update_elem(
            map.as_raw_fd(),
            (&raw const at).cast(),
            (&raw const socket).cast(),
            0,
        )
    };
    Errno::result(put).expect("it is in the map");
}

#[test]
fn connections_whose_data_a_sockmap_redirects_are_said_not_to_be_seen() {
    let stage = Stage::build("sockmap");
    let address = stage.hosts.server_address(PORT);
    let listener = listen(&stage.hosts.server, address);
    let watch = Watch::start(&stage.hosts.server, PORT, None, &[]);
    let mut client = connect(&stage.hosts.client, address);
    let (mut server, _) = listener.accept().expect("accepted");
    let [map, _program] = sockmap();
    put(&map, 0, server.as_raw_fd());
    put(&map, 1, client.as_raw_fd());
    client.write_all(b"ask").expect("sent");
    server.read_exact(&mut [0; 3]).expect("received");
    until_said(
        &watch,
        &format!("2 connections in a sockmap on port {PORT} are not seen"),
    );
    watch.finish();
}

#[test]
fn a_port_on_which_nothing_is_is_named_and_one_that_is_listened_on_is_not() {
    let stage = Stage::build("empty");
    let address = SocketAddr::from(([127, 0, 0, 1], PORT));
    let _listener = listen(&stage.hosts.server, address);
    let both = ["--port", &EMPTY.to_string()];
    let watch = Watch::start(&stage.hosts.server, PORT, None, &both);
    until_said(&watch, &format!("nothing listens on port {EMPTY}"));
    let messages = watch.messages();
    assert!(!messages.contains(&PORT.to_string()), "{messages}");
    assert_eq!(watch.finish(), []);
}
