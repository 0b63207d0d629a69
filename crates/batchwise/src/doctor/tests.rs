//! Tests of what is said of a machine.

use std::collections::BTreeMap;

use super::*;

/// A machine that has all that the table names.
fn whole() -> Machine {
    let mut machine = Machine::look();
    machine.capabilities = u64::MAX;
    machine.release = "6.18.0".to_owned();
    let names = FEATURES.iter().flat_map(|f| match f.probe {
        Probe::Tracepoint { name, stand_in } => vec![Some(name), stand_in.map(|s| s.0)],
        Probe::Function(name) | Probe::Iterator(name) | Probe::Enumerator { name, .. } => {
            vec![Some(name)]
        }
        _ => Vec::new(),
    });
    machine.btf = Ok(names.flatten().collect());
    machine.loads_socket_programs = Some(Ok(()));
    machine.loads_packet_programs = Some(Ok(()));
    machine.settings = BTreeMap::from([("net.core.bpf_jit_enable", "1".to_owned())]);
    machine.cgroup2 = Some("/sys/fs/cgroup".into());
    machine.bpffs = true;
    machine
}

fn without(name: &str) -> Machine {
    let mut machine = whole();
    if let Ok(names) = &mut machine.btf {
        assert!(names.remove(name), "{name}");
    }
    machine
}

fn exit_code(machine: &Machine, subcommand: Subcommand) -> u8 {
    Report::of(machine, Some(subcommand)).exit_code()
}

fn find<'a>(report: &'a Report, name: &str) -> &'a Check {
    let mut checks = report.checks.iter();
    checks.find(|c| c.name == name).expect("a check of it")
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
fn every_essential_tracepoint_and_iterator_is_missed() {
    for name in [
        "tcp_probe",
        "tcp_rcv_space_adjust",
        "inet_sock_set_state",
        "bpf_iter_tcp",
        "bpf_iter_bpf_sk_storage_map",
    ] {
        let machine = without(name);
        assert_eq!(exit_code(&machine, Subcommand::Watch), 1, "{name}");
        assert_eq!(exit_code(&machine, Subcommand::Passive), 0, "{name}");
    }
}

#[test]
fn sending_is_degraded_with_the_older_tracepoint_and_missing_without_both() {
    let mut machine = without("tcp_sendmsg_locked");
    let report = Report::of(&machine, None);
    assert_eq!(find(&report, "send hook").status, Status::Degraded);
    assert_eq!(report.exit_code(), 3);
    if let Ok(names) = &mut machine.btf {
        names.remove("sock_send_length");
    }
    let report = Report::of(&machine, None);
    assert_eq!(find(&report, "send hook").status, Status::Missing);
    assert_eq!(report.exit_code(), 1);
}

#[test]
fn what_only_the_exchange_needs_degrades_watch_and_stops_tune() {
    let options = without("BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG");
    let mut cgroup = whole();
    cgroup.cgroup2 = None;
    for machine in [options, cgroup] {
        assert_eq!(exit_code(&machine, Subcommand::Watch), 3);
        assert_eq!(exit_code(&machine, Subcommand::Tune), 1);
    }
    let late = without("TCP_BPF_SOCK_OPS_CB_FLAGS");
    assert_eq!(exit_code(&late, Subcommand::Watch), 3);
    assert_eq!(exit_code(&late, Subcommand::Tune), 3);
}

#[test]
fn without_privileges_the_remedy_is_said_and_the_rest_is_still_checked() {
    let mut machine = whole();
    machine.capabilities = 0;
    machine.loads_socket_programs = None;
    let report = Report::of(&machine, None);
    assert_eq!(report.status, Status::Missing);
    let privileges = find(&report, "privileges");
    assert_eq!(privileges.found, "no CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN");
    let remedy = privileges.remedy.as_deref();
    assert!(remedy.is_some_and(|remedy| remedy.contains("sudo")));
    assert_eq!(find(&report, "tcp_probe").status, Status::Ok);
}

#[test]
fn a_kernel_without_btf_or_that_forbids_loading_cannot_watch() {
    let mut machine = whole();
    machine.btf = Err("No such file or directory".to_owned());
    let report = Report::of(&machine, None);
    assert_eq!(report.status, Status::Missing);
    assert_eq!(find(&report, "tcp_probe").found, "not known without BTF");
    let mut machine = whole();
    machine.loads_socket_programs = Some(Err("Operation not permitted".to_owned()));
    assert_eq!(Report::of(&machine, None).status, Status::Missing);
}

#[test]
fn a_kernel_that_takes_no_xdp_programs_can_still_watch_but_not_balance() {
    let mut machine = whole();
    machine.loads_packet_programs = Some(Err("the kernel takes no XDP programs".to_owned()));
    let report = Report::of(&machine, None);
    assert_eq!(report.exit_code(), 3);
    let xdp = find(&report, "XDP programs");
    assert_eq!((xdp.status, xdp.essential), (Status::Missing, false));
    assert_eq!(xdp.needed_by, "passive --iface; balance; decap");
    assert_eq!(exit_code(&machine, Subcommand::Watch), 0);
    assert_eq!(exit_code(&machine, Subcommand::Balance), 1);
}

#[test]
fn what_only_a_balancer_needs_degrades_the_whole_and_stops_the_balancer() {
    let mut machine = whole();
    machine.bpffs = false;
    let report = Report::of(&machine, None);
    assert_eq!(report.exit_code(), 3);
    let remedy = find(&report, "bpffs").remedy.as_deref();
    assert_eq!(remedy, Some("mount -t bpf bpf /sys/fs/bpf"));
    assert_eq!(exit_code(&machine, Subcommand::Balance), 1);
    let tcx = without("BPF_TCX_INGRESS");
    assert_eq!(exit_code(&tcx, Subcommand::Balance), 1);
    assert_eq!(exit_code(&tcx, Subcommand::Passive), 3);
}

#[test]
fn a_kernel_is_judged_by_what_the_subcommand_needs() {
    let mut machine = whole();
    machine.release = "6.4.0".to_owned();
    assert_eq!(exit_code(&machine, Subcommand::Watch), 0);
    let report = Report::of(&machine, Some(Subcommand::Balance));
    let kernel = find(&report, "kernel");
    assert_eq!(kernel.status, Status::Missing);
    let remedy = kernel.remedy.as_deref();
    assert_eq!(remedy, Some("use Linux 6.6 or newer"));
}

#[test]
fn an_interpreter_instead_of_the_jit_degrades() {
    let mut machine = whole();
    machine.settings = BTreeMap::from([("net.core.bpf_jit_enable", "0".to_owned())]);
    assert_eq!(Report::of(&machine, None).status, Status::Degraded);
}

#[test]
fn a_root_that_cannot_see_the_jit_is_not_told_to_be_root() {
    let mut machine = whole();
    machine.settings.clear();
    let report = Report::of(&machine, None);
    let remedy = find(&report, "BPF JIT").remedy.as_deref().expect("one");
    assert!(remedy.contains("nsenter --net="), "{remedy}");
}

#[test]
fn every_check_that_is_not_ok_has_a_remedy() {
    let mut nothing = whole();
    nothing.capabilities = 0;
    nothing.release.clear();
    nothing.btf = Err("gone".to_owned());
    nothing.loads_socket_programs = None;
    nothing.loads_packet_programs = None;
    nothing.settings.clear();
    nothing.cgroup2 = None;
    nothing.bpffs = false;
    for check in Report::of(&nothing, None).checks {
        assert_eq!(
            check.status == Status::Ok,
            check.remedy.is_none(),
            "{check:?}"
        );
    }
}

#[test]
fn json_has_the_fields_that_programs_read() {
    let json = serde_json::to_value(Report::of(&whole(), None)).expect("a report is JSON");
    assert_eq!(
        (&json["status"], &json["for"]),
        (&"ok".into(), &"watch".into())
    );
    for field in ["name", "status", "essential", "found", "needed_by"] {
        assert!(!json["checks"][0][field].is_null(), "{field}");
    }
}

#[test]
fn text_names_the_remedy_under_its_check() {
    let mut machine = whole();
    machine.cgroup2 = None;
    let text = Report::of(&machine, None).text();
    assert!(text.contains("missing   cgroup v2"), "{text}");
    assert!(text.contains("→ mount -t cgroup2"), "{text}");
    assert!(
        text.ends_with("can run, with the limits above.\n"),
        "{text}"
    );
}
