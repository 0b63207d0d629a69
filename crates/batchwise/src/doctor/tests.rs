//! Tests of what is said of a machine.

use std::collections::BTreeMap;

use batchwise_bpf::features::SendHook;
use batchwise_bpf::profile::Clock;

use super::*;

/// A machine that has all that the table names.
fn whole() -> Machine {
    let mut machine = Machine::look();
    machine.capabilities = u64::MAX;
    machine.release = "6.18.0".to_owned();
    let names = FEATURES.iter().filter_map(|f| match f.probe {
        Probe::InBtf(name) => Some(name),
        _ => None,
    });
    let hooks = SendHook::ALL.map(SendHook::place);
    machine.btf = Ok(names.chain(hooks).collect());
    machine.loads = Subcommand::ALL.map(|s| (s, Ok(Vec::new()))).into();
    machine.settings = BTreeMap::from([("net.core.bpf_jit_enable", "1".to_owned())]);
    machine.cgroup2 = Some("/sys/fs/cgroup".into());
    machine.bpffs = true;
    machine.clock = || Ok(Clock::Cycles);
    machine.symbols = true;
    machine.storage_iterator = || true;
    machine
}

/// The same machine without these: names of the kernel's BTF, or what the words below say.
fn lacking(what: &str) -> Machine {
    let mut m = whole();
    let refuse = |m: &mut Machine, subcommands: &[Subcommand]| {
        for s in subcommands {
            let why = "Operation not permitted".to_owned();
            m.loads.insert(*s, Err(why));
        }
    };
    for what in what.split(", ") {
        match what {
            "privileges" => {
                m.capabilities = 0;
                m.loads.clear();
            }
            "BTF" => m.btf = Err("No such file or directory".to_owned()),
            "socket programs" => refuse(&mut m, &[Subcommand::Watch, Subcommand::Tune]),
            "XDP programs" => refuse(&mut m, &[Subcommand::Balance]),
            "cgroup v2" => m.cgroup2 = None,
            "bpffs" => m.bpffs = false,
            "iter/bpf_sk_storage_map" => m.storage_iterator = || false,
            "mounts" => m.capabilities &= !(1 << 21), // CAP_SYS_ADMIN
            "CAP_SYS_RESOURCE" => m.capabilities &= !(1 << 24),
            "Linux 6.1" => m.release = "5.19.0".to_owned(),
            "its version" => m.release.clear(),
            "the JIT" => {
                m.settings.insert("net.core.bpf_jit_enable", "0".to_owned());
            }
            "settings" => m.settings.clear(),
            name => {
                let names = m.btf.as_mut().expect("names");
                let before = names.len();
                names.retain(|(kind, n)| format!("{kind} {n}") != name && *n != name);
                assert!(names.len() < before, "{name}");
            }
        }
    }
    m
}

#[test]
fn a_machine_with_everything_is_ok_for_every_subcommand() {
    for subcommand in Subcommand::ALL {
        let report = Report::of(&whole(), Some(subcommand));
        assert_eq!(report.exit_code(), 0, "{report:?}");
        assert!(report.checks.iter().all(|check| check.remedy.is_none()));
    }
    assert_eq!(Report::of(&whole(), None).checks.len(), FEATURES.len());
}

#[test]
fn what_is_missing_stops_or_degrades_those_that_use_it_and_nobody_else() {
    for (what, codes) in [
        ("tcp_probe", "watch 1, passive 0"),
        ("tcp_rcv_space_adjust", "watch 1, passive 0"),
        ("inet_sock_set_state", "watch 1, passive 0"),
        ("bpf_iter_tcp", "watch 1, passive 0"),
        ("iter/bpf_sk_storage_map", "watch 3, passive 0"),
        // the function's entry stands in, and for that the older tracepoint
        ("tracepoint tcp_sendmsg_locked", "watch 0, all 0"),
        ("tcp_sendmsg_locked", "watch 3, all 3"),
        ("tcp_sendmsg_locked, sock_send_length", "watch 1, all 1"),
        ("sockopt_lock_sock", "watch 0, tune 1"),
        // for the exchange
        ("BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG", "watch 3, tune 0"),
        ("cgroup v2", "watch 3, tune 1"),
        ("TCP_BPF_SOCK_OPS_CB_FLAGS", "watch 3, tune 0"),
        ("BTF", "watch 1, all 1"),
        ("socket programs", "watch 1, all 1"),
        // what another subcommand lacks degrades the whole
        ("XDP programs", "watch 0, balance 1, all 3"),
        // balance mounts it
        ("bpffs", "watch 0, balance 0, all 0"),
        ("bpffs, mounts", "watch 3, balance 1, all 3"),
        ("CAP_SYS_RESOURCE", "watch 0, tune 3, balance 0, all 3"),
        ("BPF_TCX_INGRESS", "passive 3, balance 3"),
        ("BPF_FUNC_xdp_get_buff_len", "passive 3, balance 3, decap 3"),
        ("Linux 6.1", "watch 0, tune 3"),
        ("the JIT", "watch 3, all 3"),
        ("privileges", "watch 1, all 1"),
    ] {
        for code in codes.split(", ") {
            let (name, code) = code.split_once(' ').expect("a subcommand and its code");
            let of = Subcommand::ALL.into_iter().find(|s| s.name() == name);
            let report = Report::of(&lacking(what), of);
            assert_eq!(report.exit_code().to_string(), code, "{what}: {report:#?}");
        }
    }
}

#[test]
fn a_check_says_what_there_is_who_needs_it_and_the_remedy() {
    for (what, name, said) in [
        (
            "privileges",
            "privileges",
            "no CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN",
        ),
        ("privileges", "privileges", "sudo"),
        // the rest is still checked
        ("privileges", "tcp_probe", "status: Ok"),
        ("tcp_sendmsg_locked", "send hook", "status: Degraded"),
        ("BTF", "tcp_probe", "not known without BTF"),
        ("XDP programs", "XDP programs", "essential: false"),
        (
            "XDP programs",
            "XDP programs",
            "passive --iface; balance; decap",
        ),
        (
            "bpffs",
            "bpffs",
            "not mounted at /sys/fs/bpf: balance mounts it",
        ),
        ("bpffs, mounts", "bpffs", "mount -t bpf bpf /sys/fs/bpf"),
        // a root that cannot see it is not told to be root
        ("settings", "BPF JIT", "nsenter --net="),
    ] {
        let report = Report::of(&lacking(what), None);
        let check = report.checks.iter().find(|check| check.name == name);
        let check = format!("{:?}", check.expect("a check of it"));
        assert!(check.contains(said), "{said} is not in {check}");
    }
    let report = Report::of(&lacking("Linux 6.1"), Some(Subcommand::Tune));
    let remedies = report.checks.iter().filter_map(|c| c.remedy.as_deref());
    assert_eq!(remedies.collect::<Vec<_>>(), ["use Linux 6.1 or newer"]);
}

#[test]
fn every_check_that_is_not_ok_has_a_remedy() {
    let nothing = "privileges, BTF, XDP programs, cgroup v2, bpffs, its version, settings";
    for check in Report::of(&lacking(nothing), None).checks {
        let is_ok = check.status == Status::Ok;
        assert_eq!(is_ok, check.remedy.is_none(), "{check:?}");
    }
}

#[test]
fn text_names_the_remedy_under_its_check() {
    let text = Report::of(&lacking("cgroup v2"), None).text();
    assert!(text.contains("missing   cgroup v2"), "{text}");
    assert!(text.contains("→ mount -t cgroup2"), "{text}");
    let end = "can run, with the limits above.\n";
    assert!(text.ends_with(end), "{text}");
}
