//! What users get wrong, and what they are told. Needs root. The tests take turns: one copies the command,
//! which cannot be started while another starts a process.

use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use batchwise_testbed::stage::refusal::{Nobody, assert_refused, run, run_as_nobody};
use batchwise_testbed::stage::{batchwise, turn};
use pcap_file::pcap::PcapWriter;
use tempfile::TempDir;

/// A port that nobody serves.
const WATCH: &str = "watch --port 17099 --duration 1s";
const TUNE: &str = "tune --port 17098 --duration 1s";

/// Runs it with arguments that are written as in a shell.
fn with(args: &str) -> Output {
    run(batchwise().args(args.split_whitespace()))
}

/// Arguments, and words of the answer.
const WRONG: &str = "\
watch --port=7010-7000 => --port, 7010-7000
watch --port=0 => --port, 0
watch --port=70000 => --port, 70000
watch --port=abc => --port, abc
watch --port=-1 => --port, -1
watch --port 17099 --interval 1ms => --interval, 1ms
watch --port 17099 --interval 0s => --interval, 0s
watch --port 17099 --interval soon => --interval, soon
watch --port 17099 --exchange --exchange-period 0s => --exchange-period
watch --port 17099 --hints-uid 1000 => --hints
tune => --port
tune --port 17098 --policy fast => --policy, slo:500us
tune --port 17098 --policy slo => --policy, slo:500us
tune --port 17098 --policy slo:5 => --policy, slo:500us
tune --port 17098 --policy slo:0us => --policy, slo:500us
tune --port 17098 --policy= => --policy, slo:500us
tune --port 17098 --budget=-1 => --budget, 0 to 1
tune --port 17098 --budget=1.5 => --budget, 0 to 1
tune --port 17098 --budget=much => --budget, 0 to 1
passive => --iface, --pcap
passive --iface lo --pcap - => --iface, --pcap, cannot be used with
passive --pcap - --attach tc => --pcap, --attach
passive --pcap - --then /sys/fs/bpf/x => --pcap, --then
passive --iface lo --port 0 => --port, 1
passive --iface lo --interval 1ms => --interval, 10ms
passive --iface lo --epoch 1m => --epoch, 30s
passive --iface lo --idle 5s => --idle, 3s
passive --iface lo --flows 0 => --flows, 1
passive --iface lo --estimator magic => --estimator, fixed:1ms
passive --iface lo --estimator fixed => --estimator, fixed:1ms";

/// What cannot be done. TAKEN is an address in use, EMPTY an empty capture, CGROUPS where cgroups are, RIGHT.toml a
/// configuration, WRONG.toml one with a key that is none.
const IMPOSSIBLE: &str = "\
watch --port 17099 --duration 1s --cgroup /tmp => /tmp, CGROUPS
watch --port 17099 --duration 1s --cgroup /no/such/directory => /no/such/directory, CGROUPS
watch --port 17099 --duration 1s --metrics TAKEN => TAKEN, in use
watch --port 17099 --duration 1s --hints /proc/none/hint.sock => --hints /proc/none/hint.sock
watch --port 17099 --duration 1s --format live => --format text
tune --port 17098 --duration 1s --cgroup /tmp => /tmp, CGROUPS
tune --port 17098 --duration 1s --cgroup /no/such/directory => /no/such/directory, CGROUPS
tune --port 17098 --duration 1s --metrics nowhere => --metrics nowhere, 127.0.0.1:9464
tune --port 17098 --duration 1s --log /no/such/folder/log => /no/such/folder/log, --log
tune --port 17098 --duration 1s --hints /proc/none/hint.sock => --hints /proc/none/hint.sock
tune --port 17098 --duration 1s --format live => --format text
passive --iface lo --estimator paper => --estimator paper, --pcap
passive --iface nosuch0 --duration 1s => nosuch0, no interface
passive --iface lo --duration 1s --metrics TAKEN => TAKEN, in use
passive --iface lo --duration 1s --report /no/such/folder/r.html => /no/such/folder/r.html
passive --iface lo --duration 1s --then /no/such/program => /no/such/program, bpftool
passive --iface lo --duration 1s --format live => --format text
passive --pcap /no/such/file => /no/such/file, No such file
passive --pcap EMPTY --metrics TAKEN => TAKEN, in use
passive --pcap EMPTY --report /no/such/folder/r.html => /no/such/folder/r.html
passive --pcap EMPTY --format live => --format text
balance --config WRONG.toml => WRONG.toml, nosuch
balance --config RIGHT.toml --metrics TAKEN => TAKEN, in use
balance --config RIGHT.toml --log /no/such/folder/log => /no/such/folder/log, --log
balance --config RIGHT.toml --format live => --format text
decap --iface nosuch0 --from 10.0.0.1 --duration 1s => nosuch0, no interface
decap --iface lo --from 10.0.0.1 --duration 1s --metrics TAKEN => TAKEN, in use
decap --iface lo --from 10.0.0.1 --duration 1s --format live => --format text
window --duration 1s --cgroup /tmp => /tmp, CGROUPS
window --duration 1s --metrics TAKEN => TAKEN, in use
window --duration 1s --socket /proc/none/window.sock => --socket /proc/none/window.sock
window --duration 1s --format live => --format text
profile --duration 1s --cgroup /tmp => /tmp, CGROUPS
profile --duration 1s --cpu 4000 => CPU 4000
profile --duration 1s --metrics TAKEN => TAKEN, in use
profile --duration 1s --report /no/such/folder/r.html => /no/such/folder/r.html
profile --duration 1s --folded /no/such/folder/f => /no/such/folder/f
profile --duration 1s --format live => --format text
burst mark --interface nosuch0 --duration 1s => nosuch0, no interface
burst mark --interface lo --duration 1s --metrics TAKEN => TAKEN, in use
burst mark --interface lo --duration 1s --format live => --format text
burst admit --interface nosuch0 --duration 1s => nosuch0, no interface
burst admit --interface lo --duration 1s --metrics TAKEN => TAKEN, in use
burst admit --interface lo --duration 1s --format live => --format text";

/// Each command of a table is refused with this code and its words.
fn assert_all_refused(table: &str, code: i32, run: impl Fn(&str) -> Output) {
    for line in table.lines() {
        let (args, words) = line.split_once(" => ").expect("arguments and words");
        let words: Vec<&str> = words.split(", ").collect();
        println!("batchwise {args}");
        assert_refused(&run(args), code, &words);
    }
}

#[test]
fn wrong_arguments_are_usage_errors_that_say_what_is_right() {
    let _turn = turn();
    assert_all_refused(WRONG, 2, with);
}

/// A user who may do nothing is told the same: all arguments are looked at before anything is loaded or attached,
/// which is refused such a user.
#[test]
fn what_cannot_be_done_is_named_with_the_remedy_before_anything_is_begun() {
    let _turn = turn();
    let mount = batchwise_testbed::cgroup::mount_point().expect("cgroup v2");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address");
    let folder = TempDir::new().expect("a folder");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("it is ours");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let capture = path("empty.pcap");
    let file = File::create(&capture).expect("a file");
    PcapWriter::new(file).expect("a capture");
    let right =
        "interfaces = [\"lo\"]\n[[service]]\nname = \"w\"\naddress = \"10.9.0.1\"\nport = 80\n";
    fs::write(path("right.toml"), right).expect("a file");
    fs::write(path("wrong.toml"), format!("nosuch = 1\n{right}")).expect("a file");
    let table = IMPOSSIBLE
        .replace("TAKEN", &address.to_string())
        .replace("EMPTY", &capture)
        .replace("RIGHT.toml", &path("right.toml"))
        .replace("WRONG.toml", &path("wrong.toml"))
        .replace("CGROUPS", mount.to_str().expect("text"));
    assert_all_refused(&table, 1, with);
    let nobody = Nobody::prepare();
    let as_nobody = |args: &str| nobody.run(args.split_whitespace());
    assert_all_refused(&table, 1, as_nobody);
}

#[test]
fn a_path_that_cannot_be_the_socket_of_hints_is_refused() {
    let _turn = turn();
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "something").expect("a file");
    let long = folder.path().join("x".repeat(200));
    for path in [&file, &file.join("below"), &long] {
        let path = path.to_str().expect("text");
        let output = with(&format!("{WATCH} --format jsonl --hints {path}"));
        assert_refused(&output, 1, &[&path[..path.len().min(60)]]);
    }
    assert_eq!(fs::read(&file).expect("untouched"), b"something");
}

#[test]
fn a_user_who_may_not_is_told_to_be_root() {
    let _turn = turn();
    let passive = "passive --iface lo --duration 1s";
    for args in [WATCH, &format!("{WATCH} --exchange"), TUNE, passive] {
        let args: Vec<&str> = args.split(' ').collect();
        assert_refused(&run_as_nobody(&args), 1, &["run as root"]);
    }
}

#[test]
fn a_port_that_nobody_serves_is_named_and_gives_no_line_and_no_error_and_no_socket_of_hints_is_left()
 {
    let _turn = turn();
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("hint.sock");
    for hints in [String::new(), format!("--hints {}", path.display())] {
        let output = with(&format!("{WATCH} --interval 200ms --format jsonl {hints}"));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        let named = "nothing listens on port 17099, and nobody is connected to it\n";
        assert!(
            said.ends_with(named) && said.lines().count() == 1,
            "{output:?}"
        );
    }
    assert!(!path.exists());
}
