//! Tests of what the facts are taken to mean.

use super::checks::{
    ESSENTIAL_HOOKS, HEADER_OPTIONS, HOOKS, LATE_CALLBACKS, TC_LINKS, WANTED_ENUMERATORS,
    WANTED_FUNCTIONS,
};
use super::*;

fn whole() -> Facts {
    let names = HOOKS
        .iter()
        .chain(&WANTED_FUNCTIONS)
        .chain(&WANTED_ENUMERATORS);
    Facts {
        capabilities: u64::MAX,
        release: "6.18.0".to_owned(),
        btf: Ok(names.map(|name| (*name).to_owned()).collect()),
        loads: Some(Ok(())),
        loads_xdp: Some(Ok(())),
        jit: Some("1".to_owned()),
        stats: Some("0".to_owned()),
        autocorking: Some("1".to_owned()),
        congestion_control: Some("cubic".to_owned()),
        cgroup2: Some("/sys/fs/cgroup".into()),
        bpffs: true,
    }
}

fn without(name: &str) -> Facts {
    let mut facts = whole();
    if let Ok(names) = &mut facts.btf {
        names.remove(name);
    }
    facts
}

fn find<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks
        .iter()
        .find(|check| check.name == name)
        .expect("a check of this name")
}

#[test]
fn a_machine_with_everything_is_ok_and_exits_with_0() {
    let checks = judge(&whole());
    assert_eq!(overall(&checks), Status::Ok);
    assert_eq!(exit_code(overall(&checks)), 0);
    assert!(
        checks.iter().all(|check| check.remedy.is_none()),
        "{checks:?}"
    );
}

#[test]
fn every_essential_tracepoint_and_iterator_is_missed() {
    for name in ESSENTIAL_HOOKS.iter().chain(&WANTED_FUNCTIONS) {
        let checks = judge(&without(name));
        assert_eq!(exit_code(overall(&checks)), 1, "{name}");
    }
}

#[test]
fn sending_is_degraded_with_the_older_tracepoint_and_missing_without_both() {
    let mut facts = without("tcp_sendmsg_locked");
    let checks = judge(&facts);
    assert_eq!(find(&checks, "send hook").status, Status::Degraded);
    assert_eq!(exit_code(overall(&checks)), 3);
    if let Ok(names) = &mut facts.btf {
        names.remove("sock_send_length");
    }
    let checks = judge(&facts);
    assert_eq!(find(&checks, "send hook").status, Status::Missing);
    assert_eq!(exit_code(overall(&checks)), 1);
}

#[test]
fn what_only_the_exchange_needs_degrades() {
    let late = without(LATE_CALLBACKS);
    let options = without(HEADER_OPTIONS);
    let cgroup = Facts {
        cgroup2: None,
        ..whole()
    };
    for facts in [late, options, cgroup] {
        assert_eq!(exit_code(overall(&judge(&facts))), 3);
    }
}

#[test]
fn without_privileges_the_remedy_is_said_and_the_rest_is_still_checked() {
    let facts = Facts {
        capabilities: 0,
        loads: None,
        ..whole()
    };
    let checks = judge(&facts);
    assert_eq!(overall(&checks), Status::Missing);
    let privileges = find(&checks, "privileges");
    assert_eq!(privileges.found, "no CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN");
    assert!(
        privileges
            .remedy
            .as_ref()
            .is_some_and(|remedy| remedy.contains("sudo"))
    );
    assert_eq!(find(&checks, "tcp_probe").status, Status::Ok);
}

#[test]
fn a_kernel_without_btf_or_that_forbids_loading_cannot_watch() {
    let facts = Facts {
        btf: Err("No such file or directory".to_owned()),
        ..whole()
    };
    let checks = judge(&facts);
    assert_eq!(overall(&checks), Status::Missing);
    assert_eq!(find(&checks, "tcp_probe").found, "not known without BTF");
    let facts = Facts {
        loads: Some(Err("Operation not permitted".to_owned())),
        ..whole()
    };
    assert_eq!(overall(&judge(&facts)), Status::Missing);
}

#[test]
fn a_kernel_that_takes_no_xdp_programs_can_still_watch() {
    let checks = judge(&Facts {
        loads_xdp: Some(Err("the kernel takes no XDP programs".to_owned())),
        ..whole()
    });
    assert_eq!(exit_code(overall(&checks)), 3);
    let xdp = find(&checks, "XDP programs");
    assert_eq!((xdp.status, xdp.essential), (Status::Missing, false));
    assert_eq!(xdp.needed_by, "passive --iface, balance, decap");
}

#[test]
fn what_only_a_balancer_needs_degrades() {
    let checks = judge(&Facts {
        bpffs: false,
        ..whole()
    });
    assert_eq!(exit_code(overall(&checks)), 3);
    let remedy = find(&checks, "bpffs").remedy.as_deref();
    assert_eq!(remedy, Some("mount -t bpf bpf /sys/fs/bpf"));
    assert_eq!(exit_code(overall(&judge(&without(TC_LINKS)))), 3);
}

#[test]
fn an_interpreter_instead_of_the_jit_degrades() {
    let checks = judge(&Facts {
        jit: Some("0".to_owned()),
        ..whole()
    });
    assert_eq!(overall(&checks), Status::Degraded);
}

#[test]
fn a_root_that_cannot_see_the_jit_is_not_told_to_be_root() {
    let checks = judge(&Facts {
        jit: None,
        ..whole()
    });
    let remedy = find(&checks, "BPF JIT").remedy.as_deref().unwrap();
    assert!(remedy.contains("nsenter --net="), "{remedy}");
}

#[test]
fn every_check_that_is_not_ok_has_a_remedy() {
    for check in judge(&Facts::none()) {
        assert_eq!(
            check.status == Status::Ok,
            check.remedy.is_none(),
            "{check:?}"
        );
    }
}

#[test]
fn json_has_the_fields_that_programs_read() {
    let report = Report {
        status: Status::Ok,
        kernel: "6.18.0".to_owned(),
        checks: judge(&whole()),
    };
    let json = serde_json::to_value(&report).expect("a report is JSON");
    assert_eq!(json["status"], "ok");
    for field in ["name", "status", "essential", "found", "needed_by"] {
        assert!(!json["checks"][0][field].is_null(), "{field}");
    }
}

#[test]
fn text_names_the_remedy_under_its_check() {
    let facts = Facts {
        cgroup2: None,
        ..whole()
    };
    let checks = judge(&facts);
    let report = Report {
        status: overall(&checks),
        kernel: facts.release,
        checks,
    };
    let text = text(&report);
    assert!(text.contains("missing   cgroup v2"), "{text}");
    assert!(text.contains("→ mount -t cgroup2"), "{text}");
    assert!(
        text.ends_with("can run, with the limits above.\n"),
        "{text}"
    );
}
