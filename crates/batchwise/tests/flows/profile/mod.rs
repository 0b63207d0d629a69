//! `batchwise profile` as its users meet it, over traffic of this process. Needs root.

mod hostile;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{self, Command, Output, Stdio};
use std::thread::{self, JoinHandle};

use batchwise_core::profile::report::Line;
use batchwise_core::profile::{Component, Phase};
use batchwise_testbed::commands;
use batchwise_testbed::stage::refusal::{assert_refused, run, run_as_nobody};
use batchwise_testbed::stage::{batchwise, turn};

fn profile(args: &[&str]) -> Output {
    run(batchwise().arg("profile").args(args))
}

/// A long flow over loopback between two threads, until dropped.
struct Flow {
    port: u16,
    end: TcpStream,
    threads: Vec<JoinHandle<()>>,
}

impl Flow {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("its address");
        let mut sender = TcpStream::connect(address).expect("a connection");
        let (mut receiver, _) = listener.accept().expect("its other end");
        let end = sender.try_clone().expect("another descriptor of it");
        let send = move || while sender.write_all(&[7; 128 << 10]).is_ok() {};
        let receive = move || {
            let mut buffer = vec![0; 128 << 10];
            while receiver.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
        };
        Self {
            port: address.port(),
            end,
            threads: vec![thread::spawn(send), thread::spawn(receive)],
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let _ = self.end.shutdown(Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn lines(output: &Output) -> Vec<Line> {
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let parse = |line| serde_json::from_str(line).expect("a line of JSON");
    text.lines().map(parse).collect()
}

fn shares(line: &Line) -> BTreeMap<Component, f64> {
    let shares = line.components.iter().map(|s| (s.component, s.share));
    shares.collect()
}

#[test]
fn a_long_flow_copies_more_than_it_locks_and_almost_nothing_is_unknown() {
    let _turn = turn();
    let flow = Flow::start();
    // what other tests do meanwhile is no part of it
    let port = flow.port.to_string();
    let only = ["--port", &port, "--format", "jsonl"];
    let output = profile(&[&only[..], &["--duration", "2s", "--interval", "1s"]].concat());
    let lines = lines(&output);
    assert_eq!(lines.len(), 2, "a line each second");
    for line in &lines {
        let shares = shares(line);
        assert!(line.samples > 0 && line.lost == 0, "{line:?}");
        assert!(
            shares[&Component::Copy] > shares[&Component::Lock],
            "{shares:?}"
        );
        assert!(shares[&Component::TcpIp] > 0.0, "{shares:?}");
        assert!(line.doubt().is_none(), "{shares:?} {:?}", line.functions);
        let sum: f64 = shares.values().sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        assert!(line.phases.iter().any(|p| p.phase == Phase::SystemCall));
    }
    let traffic = lines.iter().find_map(|line| line.traffic.as_ref());
    let traffic = traffic.expect("packets are counted in the first interval");
    assert!(
        traffic.queued_bytes > 0 && traffic.received_bytes > 0,
        "{traffic:?}"
    );
    assert_eq!(traffic.received_sizes.iter().sum::<u64>(), traffic.received);
}

#[test]
fn only_what_was_asked_for_is_sampled() {
    let _turn = turn();
    let flow = Flow::start();
    let (own, port) = (process::id(), flow.port.to_string());
    let pid = own.to_string();
    for filter in [["--pid", &pid], ["--port", &port]] {
        let all = ["--format", "jsonl", "--duration", "1s"];
        let lines = lines(&profile(&[&filter[..], &all].concat()));
        let line = lines.last().expect("a line");
        assert!(line.samples > 0, "{filter:?}");
        let others = line.processes.iter().filter(|p| p.pid != own);
        assert_eq!(others.count(), 0, "{filter:?}: {:?}", line.processes);
    }
    let nobody = profile(&["--cpu", "0", "--format", "jsonl", "--duration", "1s"]);
    let cpus = lines(&nobody).pop().expect("a line").cpus;
    assert!(cpus.iter().all(|c| c.cpu == 0), "{cpus:?}");
}

#[test]
fn files_for_other_tools_have_the_stacks() {
    let _turn = turn();
    let _flow = Flow::start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (page, folded) = (path("p.html"), path("p.folded"));
    let files = ["--report", &page, "--folded", &folded];
    let output = profile(&[&["--duration", "1s", "--format", "text"], &files[..]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for part in ["data copy", "unclassified", "phases", "processes"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let folded = fs::read_to_string(folded).expect("folded stacks");
    let sends = |line: &str| line.contains("tcp_sendmsg_locked_[k]");
    assert!(folded.lines().any(sends), "{folded}");
    for line in folded.lines() {
        let (stack, count) = line.rsplit_once(' ').expect("a count");
        assert!(!stack.is_empty() && count.parse::<u64>().is_ok(), "{line}");
    }
    let page = fs::read_to_string(page).expect("a page");
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's");
    let about = format!(", Linux {}, until 20", release.trim());
    assert!(page.contains(&about), "{about}");
    assert!(page.contains("width: 100%"), "the flame graph's width");
    assert!(page.contains("<svg") && page.contains("tcp_sendmsg_locked"));
}

#[test]
fn a_file_that_cannot_be_written_is_told_at_once_and_loses_no_other() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let folded = folder.path().join("p.folded");
    let folded = folded.to_string_lossy();
    let with = |report| {
        let args = ["--duration", "1s", "--format", "text", "--report", report];
        profile(&[&args[..], &["--folded", &folded]].concat())
    };
    let nowhere = with("/nosuch/p.html");
    assert_refused(&nowhere, 1, &["cannot write /nosuch/p.html"]);
    let full = with("/dev/full");
    let said = String::from_utf8_lossy(&full.stderr);
    assert!(said.contains("cannot write /dev/full") && !full.status.success());
    let stacks = fs::read_to_string(&*folded).expect("folded stacks");
    assert!(stacks.contains("_[k]"), "{stacks}");
}

#[test]
fn files_are_written_also_where_nobody_reads_the_text() {
    let _turn = turn();
    let _flow = Flow::start();
    let folder = tempfile::tempdir().expect("a folder");
    let folded = folder.path().join("p.folded");
    let mut command = batchwise();
    command.args([
        "profile",
        "--duration",
        "1s",
        "--format",
        "text",
        "--folded",
    ]);
    command.arg(&folded);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    let stacks = fs::read_to_string(&folded).expect("folded stacks");
    assert!(stacks.contains("tcp_sendmsg"), "{stacks}");
}

#[test]
fn two_profiles_are_compared() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str| {
        let args = [
            "--format",
            "jsonl",
            "--duration",
            "1s",
            "--interval",
            "200ms",
        ];
        let path = folder.path().join(name);
        fs::write(&path, profile(&args).stdout).expect("a file");
        path.to_string_lossy().into_owned()
    };
    let before = write("before");
    let flow = Flow::start();
    let after = write("after");
    drop(flow);
    let output = profile(&["diff", &before, &after, "--json"]);
    let changes: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let copy = changes.as_array().into_iter().flatten();
    let copy = copy
        .clone()
        .find(|c| c["component"] == "copy")
        .expect("copying");
    assert!(copy["low"].as_f64() > Some(0.0), "the flow copies: {copy}");
    let same = profile(&["diff", &before, &before]);
    let text = String::from_utf8_lossy(&same.stdout);
    assert!(text.contains("within noise"), "{text}");
}

#[test]
fn a_container_where_processes_have_other_numbers_is_told_so() {
    let _turn = turn();
    let contained = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc"]);
        command.arg(commands::required("batchwise"));
        run(command.args(["profile", "--duration", "1s"]).args(args))
    };
    assert_refused(&contained(&["--pid", "1"]), 1, &["--pid=host", "hostPID"]);
    let _flow = Flow::start();
    let folder = tempfile::tempdir().expect("a folder");
    let folded = folder.path().join("p.folded");
    let whole = contained(&["--format", "text", "--folded", &folded.to_string_lossy()]);
    let said = String::from_utf8_lossy(&whole.stderr);
    assert!(whole.status.success(), "{said}");
    assert_eq!(said.matches("--pid=host").count(), 1, "{said}");
    let stacks = fs::read_to_string(&folded).expect("folded stacks");
    for line in stacks.lines() {
        let (stack, _) = line.rsplit_once(' ').expect("a count");
        let mut functions = stack.split(';').skip(1);
        let of_kernel = |f: &str| f.ends_with("_[k]") || f == "interrupts off";
        let known = functions.find(|f| *f != "[unknown]" && !of_kernel(f));
        assert_eq!(known, None, "somebody else's function: {line}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_remedy() {
    assert_refused(&profile(&["--hz", "0"]), 2, &["--hz"]);
    assert_refused(&profile(&["--port", "0"]), 2, &["--port"]);
    assert_refused(&profile(&["diff", "nosuch", "nosuch"]), 1, &["nosuch"]);
    for file in ["--report", "--folded", "--metrics"] {
        let args = ["--compare", "nagle", "--port", "1", file, "x"];
        assert_refused(&profile(&args), 2, &[file, "--compare"]);
    }
    let _turn = turn();
    let cpu = profile(&["--cpu", "4000", "--duration", "1s"]);
    assert_refused(&cpu, 1, &["CPU 4000 is not online"]);
    let cgroup = profile(&["--cgroup", "/tmp", "--duration", "1s"]);
    assert_refused(&cgroup, 1, &["/tmp is not a cgroup v2 directory"]);
    let pid = profile(&["--pid", "4194304", "--duration", "1s"]);
    assert_refused(&pid, 1, &["--pid 4194304: there is no such process"]);
    // SAFETY: it reads a number.
    let thread = unsafe { libc::gettid() }.to_string();
    let pid = profile(&["--pid", &thread, "--duration", "1s"]);
    let process = format!("a thread of process {}", process::id());
    assert_refused(&pid, 1, &[&process]);
    let port = profile(&["--port", "1", "--duration", "1s"]);
    assert_refused(&port, 1, &["no process has a socket at port 1"]);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"]);
    command.arg(commands::required("batchwise"));
    let blind = run(command.args(["profile", "--port", "1", "--duration", "1s"]));
    assert_refused(&blind, 1, &["could not be looked into: CAP_SYS_PTRACE"]);
    let nobody = run_as_nobody(&["profile", "--duration", "1s"]);
    assert_refused(&nobody, 1, &["CAP_PERFMON"]);
}
