//! Beside another program of the same kind, whose socket callbacks must go on.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use batchwise_testbed::bpf_stats::{StatsEnabled, runs_of};
use batchwise_testbed::host::Host;
use batchwise_testbed::pass;
use batchwise_testbed::redis::PORT;
use batchwise_testbed::stage::Stage;
use batchwise_testbed::stage::request::ask;
use batchwise_testbed::stage::watch::Watch;
use libbpf_rs::libbpf_sys::{
    BPF_ALU64, BPF_CALL, BPF_CGROUP_SOCK_OPS, BPF_EXIT, BPF_JMP, BPF_JNE, BPF_K, BPF_LDX, BPF_MEM,
    BPF_MOV, BPF_OR, BPF_PROG_TYPE_SOCK_OPS, BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB,
    BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG, BPF_W, bpf_insn,
};
use nix::unistd::Pid;

const REQUESTS: u64 = 200;

fn instruction(code: u32, registers: [u8; 2], off: i16, imm: i32) -> bpf_insn {
    let mut instruction = bpf_insn {
        code: code as u8,
        off,
        imm,
        ..Default::default()
    };
    instruction.set_dst_reg(registers[0]);
    instruction.set_src_reg(registers[1]);
    instruction
}

/// A program in the host's cgroup that asks for each connection's segments to be shown to it, and leaves
/// alone what others have asked for. It is there until both are dropped.
fn other(host: &Host) -> [OwnedFd; 2] {
    const OP: i16 = 0; // offsets in struct bpf_sock_ops
    const FLAGS: i16 = 84;
    const CB_FLAGS_SET: i32 = 59;
    let load = BPF_LDX | BPF_W | BPF_MEM;
    let code = [
        instruction(load, [2, 1], OP, 0),
        instruction(
            BPF_JMP | BPF_JNE | BPF_K,
            [2, 0],
            3,
            BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB as i32,
        ),
        instruction(load, [2, 1], FLAGS, 0),
        instruction(
            BPF_ALU64 | BPF_OR | BPF_K,
            [2, 0],
            0,
            BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG as i32,
        ),
        instruction(BPF_JMP | BPF_CALL, [0, 0], 0, CB_FLAGS_SET),
        instruction(BPF_ALU64 | BPF_MOV | BPF_K, [0, 0], 0, 1),
        instruction(BPF_JMP | BPF_EXIT, [0, 0], 0, 0),
    ];
    let cgroup = File::open(host.cgroup()).expect("its cgroup");
    let program = pass::load(BPF_PROG_TYPE_SOCK_OPS, c"bw_other", &code).expect("a program");
    let attached = pass::link(program.as_raw_fd(), cgroup.as_raw_fd(), BPF_CGROUP_SOCK_OPS);
    [program, attached.expect("a link")]
}

#[test]
fn what_another_program_set_on_a_socket_stays() {
    let stage = Stage::build("others");
    let _redis = stage.redis();
    let _other = other(&stage.hosts.server);
    let watch = Watch::host(&stage.hosts.server, PORT, &["--exchange"]);
    let _stats = StatsEnabled::new().expect("statistics");
    // the client has no agent: our own callbacks are of no use
    let mut connection = stage.connect(stage.redis_address());
    let runs = || {
        let runs = runs_of(&[Pid::this()]).expect("its runs");
        runs["bw_other"].count
    };
    let before = runs();
    for _ in 0..REQUESTS {
        ask(&mut connection, b"PING\r\n", b"+PONG\r\n");
    }
    let shown = runs() - before;
    assert!(shown >= REQUESTS, "{shown} segments were shown to it");
    watch.finish();
}
