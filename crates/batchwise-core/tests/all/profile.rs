//! Samples and what they are counted as: whose function it is, and in which way the CPU came there.

use batchwise_core::profile::report::{Clock, Line, Only, Sampled};
use batchwise_core::profile::{
    Attributed, Component, Counted, Functions, Kernel, Phase, Symbol, Tally, attribute,
};

/// A kernel of these functions, each 16 bytes behind the one before, from 0x1000 on. `[module]` may follow.
fn kernel(names: &[&str]) -> Kernel {
    let line = |(at, name): (usize, &&str)| format!("{:x} t {name}", 0x1000 + 16 * at);
    let lines: Vec<_> = names.iter().enumerate().map(line).collect();
    let lines = lines.iter().map(String::as_str);
    Kernel::of(lines, &Functions::of(TABLE), |module| {
        (module == "veth").then(|| "drivers/net/veth.ko".to_owned())
    })
}

const TABLE: &str = "\
net/core/dev.c process_backlog net_rx_action dup
net/ipv4/tcp.c tcp_sendmsg tcp_poll
net/ipv4/tcp_input.c tcp_ack
mm/slub.c kfree dup
lib/list_sort.c list_sort
kernel/softirq.c handle_softirqs irq_exit_rcu
kernel/entry/common.c syscall_exit_work";

/// What a stack of these functions, the innermost first, is counted as.
fn counted(names: &[&str], by_timer: bool) -> (Component, Phase) {
    let known = kernel(names);
    let find = |name: &&str| known.symbols().iter().find(|symbol| symbol.name == *name);
    let Attributed { component, phase } = attribute(names.iter().map(find), by_timer);
    (component, phase)
}

fn symbol<'a>(kernel: &'a Kernel, name: &str) -> &'a Symbol {
    let found = kernel.symbols().iter().find(|symbol| symbol.name == name);
    found.expect("a function of this name")
}

#[test]
fn an_address_is_in_the_function_that_begins_before_it() {
    let kernel = kernel(&["tcp_sendmsg", "kfree"]);
    let name = |address| kernel.find(address).map(|symbol| symbol.name.as_str());
    assert_eq!(name(0x0fff), None);
    assert_eq!(name(0x1000), Some("tcp_sendmsg"));
    assert_eq!(name(0x100f), Some("tcp_sendmsg"));
    assert_eq!(name(0x1010), Some("kfree"));
}

#[test]
fn what_the_compiler_made_of_a_function_is_of_its_file() {
    let kernel = kernel(&["tcp_ack.isra.0", "kfree.part.0.cold"]);
    for symbol in kernel.symbols() {
        assert!(symbol.class.is_some(), "{symbol:?}");
    }
}

#[test]
fn a_function_between_two_of_a_component_is_of_that_one_and_else_of_none() {
    let kernel = kernel(&["tcp_sendmsg", "inner", "tcp_ack", "stranger", "kfree"]);
    assert_eq!(
        symbol(&kernel, "inner").class,
        symbol(&kernel, "tcp_ack").class
    );
    assert_eq!(symbol(&kernel, "stranger").class, None);
}

#[test]
fn a_name_that_files_of_two_components_have_says_nothing() {
    assert_eq!(symbol(&kernel(&["dup"]), "dup").class, None);
}

#[test]
fn a_modules_functions_are_of_its_directory() {
    let kernel = kernel(&["veth_xmit [veth]", "strange [nowhere]"]);
    assert_eq!(
        symbol(&kernel, "veth_xmit").class,
        batchwise_core::profile::of_path("drivers/net/").into()
    );
    assert_eq!(symbol(&kernel, "strange").class, None);
}

#[test]
fn a_system_call_counts_for_its_innermost_function() {
    let stack = [
        "kfree",
        "tcp_sendmsg",
        "do_syscall_64",
        "entry_SYSCALL_64_after_hwframe",
    ];
    assert_eq!(
        counted(&stack, true),
        (Component::Memory, Phase::SystemCall)
    );
}

#[test]
fn library_functions_count_for_who_calls_them() {
    let stack = [
        "memset",
        "list_sort",
        "tcp_ack",
        "entry_SYSCALL_64_after_hwframe",
    ];
    assert_eq!(counted(&stack, true), (Component::TcpIp, Phase::SystemCall));
}

#[test]
fn what_an_interrupt_interrupted_is_not_its_caller() {
    let stack = ["memset", "asm_sysvec_apic_timer_interrupt", "tcp_sendmsg"];
    assert_eq!(counted(&stack, true).1, Phase::HardIrq);
    assert_ne!(counted(&stack, true).0, Component::TcpIp);
}

#[test]
fn a_softirq_is_one_inside_an_interrupt_and_inside_a_system_call() {
    let backlog = ["process_backlog", "net_rx_action", "handle_softirqs"];
    for outer in ["asm_common_interrupt", "entry_SYSCALL_64_after_hwframe"] {
        let stack = [&backlog[..], &[outer]].concat();
        assert_eq!(counted(&stack, true), (Component::Device, Phase::SoftIrq));
    }
}

#[test]
fn a_timer_cannot_tell_what_was_done_while_interrupts_were_off() {
    let stack = ["handle_softirqs", "irq_exit_rcu", "asm_common_interrupt"];
    assert_eq!(counted(&stack, true).0, Component::Masked);
    assert_eq!(counted(&stack, false).0, Component::Other);
    // only where it is the innermost
    let stack = ["tcp_ack", "handle_softirqs", "asm_common_interrupt"];
    assert_eq!(counted(&stack, true).0, Component::TcpIp);
}

#[test]
fn without_the_kernel_it_is_the_application() {
    assert_eq!(counted(&[], true), (Component::Application, Phase::User));
}

#[test]
fn an_unknown_function_is_not_given_to_its_caller() {
    let stack = ["mystery", "tcp_ack", "entry_SYSCALL_64_after_hwframe"];
    assert_eq!(counted(&stack, true).0, Component::Unclassified);
}

fn tally(samples: &[(u32, Component, Phase)]) -> Tally {
    let mut tally = Tally::default();
    for (cpu, component, phase) in samples {
        tally.add(&Counted {
            cpu: *cpu,
            pid: 7,
            name: "server",
            at: Attributed {
                component: *component,
                phase: *phase,
            },
            function: Some("f"),
        });
    }
    tally
}

fn line(tally: &Tally) -> Line {
    Line::of(
        tally,
        Sampled {
            ts_ns: 0,
            interval_ns: 1_000_000_000,
            clock: Clock::Timer,
            hz: 4,
            only: Only::default(),
            cpus: &[0, 1, 2],
            lost: 0,
        },
    )
}

#[test]
fn shares_are_of_the_time_in_which_something_was_done_and_add_up() {
    let (copy, idle) = (Component::Copy, Component::Other);
    let line = line(&tally(&[
        (0, copy, Phase::SystemCall),
        (0, copy, Phase::SoftIrq),
        (0, Component::TcpIp, Phase::SoftIrq),
        (1, idle, Phase::Idle),
        (1, Component::Application, Phase::User),
    ]));
    assert_eq!((line.samples, line.idle, line.cpus_busy), (4, 1, 1.0));
    assert_eq!(line.share(copy), 0.5);
    let sum: f64 = line.components.iter().map(|share| share.share).sum();
    let phases: f64 = line.phases.iter().map(|phase| phase.share).sum();
    assert_eq!((sum, phases), (1.0, 1.0));
    // of the four samples that are due in a second; what is missing was slept through
    assert_eq!((line.cpus[0].busy, line.cpus[1].busy), (0.75, 0.25));
    assert_eq!((line.cpus[2].cpu, line.cpus[2].busy), (2, 0.0), "idle");
    let process = &line.processes[0];
    assert_eq!((process.share, process.interrupted), (0.5, 0.5));
}

#[test]
fn what_was_sampled_is_said() {
    let mut only = Only::default();
    assert!(only.is_everything() && only.says().is_empty());
    only.pids = vec![7, 9];
    assert_eq!(only.says(), " with processes 7, 9");
    only.ports = vec![80];
    only.cpus = vec![1];
    let all = " with processes 7, 9 and processes with sockets at port 80 on CPU 1";
    assert_eq!(only.says(), all);
    let only = Only {
        cgroup: Some("/a".into()),
        ..Only::default()
    };
    assert_eq!(only.says(), " with what is in /a");
    assert!(!only.is_everything());
}

#[test]
fn intervals_add_up_to_the_whole() {
    let copy = tally(&[(0, Component::Copy, Phase::SystemCall)]);
    let mut whole = tally(&[(0, Component::Lock, Phase::SoftIrq)]);
    whole.merge(&copy);
    assert_eq!(line(&whole).share(Component::Copy), 0.5);
    assert_eq!(line(&whole).functions[0].share, 1.0);
}

#[test]
fn there_is_no_verdict_where_too_much_is_unknown() {
    let known = [(0, Component::Copy, Phase::SystemCall); 19];
    let unknown = (0, Component::Unclassified, Phase::SystemCall);
    assert_eq!(
        line(&tally(&[&known[..], &[unknown]].concat())).doubt(),
        None
    );
    let doubt = line(&tally(&[&known[..10], &[unknown]].concat())).doubt();
    assert!(doubt.is_some_and(|why| why.contains("no verdict")));
}
