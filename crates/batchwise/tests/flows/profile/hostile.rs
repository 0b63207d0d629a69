//! The agent beside programs that mean harm: its memory, and its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use batchwise_testbed::stage::{batchwise, eventually, turn};

/// What the agent may take, whatever runs.
const MOST_KIB: u64 = 64 << 10;

struct Hostile(Child);

impl Hostile {
    fn start(folder: &Path, text: &str) -> Self {
        let (source, program) = (folder.join("hostile.c"), folder.join("hostile"));
        fs::write(&source, text).expect("a file");
        let mut compiler = Command::new("cc");
        // by frame pointers the kernel walks stacks
        compiler.args([
            "-O1",
            "-fno-omit-frame-pointer",
            "-fno-optimize-sibling-calls",
        ]);
        let built = compiler.arg("-o").arg(&program).arg(&source).status();
        assert!(
            built.is_ok_and(|status| status.success()),
            "a C compiler is needed"
        );
        Self(Command::new(program).spawn().expect("the program runs"))
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs it to its end; the most memory that it had, KiB. What wait4 says also counts what this process had when it
/// started the other.
fn most_memory(command: &mut Command) -> u64 {
    let mut child = command.stdout(Stdio::null()).spawn().expect("it runs");
    let file = format!("/proc/{}/status", child.id());
    let mut most = 0;
    loop {
        if let Some(status) = child.try_wait().expect("its state") {
            assert!(status.success() && most > 0, "{status}");
            return most;
        }
        // none at its end
        let status = fs::read_to_string(&file).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.trim_end_matches("kB").trim().parse().ok());
        most = peak.unwrap_or(most);
        thread::sleep(Duration::from_millis(5));
    }
}

/// Removes the pipe that the program made.
struct Map(PathBuf);

impl Drop for Map {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_perf_map_that_is_a_pipe_does_not_hold_up_the_end() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let hostile = Hostile::start(folder.path(), include_str!("jit.c"));
    let pid = hostile.0.id().to_string();
    let map = Map(format!("/tmp/perf-{pid}.map").into());
    let made = || map.0.exists().then_some(());
    eventually("the pipe", made, String::new);
    let folded = folder.path().join("p.folded");
    let mut profile = batchwise();
    profile.args([
        "profile",
        "--duration",
        "1s",
        "--format",
        "text",
        "--pid",
        &pid,
    ]);
    let mut profile = profile
        .arg("--folded")
        .arg(&folded)
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs");
    let ended = || profile.try_wait().expect("its state");
    let status = eventually("its end", ended, String::new);
    assert!(status.success(), "{status}");
    let text = fs::read_to_string(&folded).expect("folded stacks");
    assert!(!text.is_empty(), "the program was sampled");
}

mod long {
    use super::*;

    #[test]
    fn stacks_that_share_nothing_take_no_more_memory_than_is_allowed() {
        let _turn = turn();
        let folder = tempfile::tempdir().expect("a folder");
        let hostile = Hostile::start(folder.path(), include_str!("deep.c"));
        let path = |name: &str| folder.path().join(name);
        let mut profile = batchwise();
        profile.args([
            "profile",
            "--hz",
            "9973",
            "--duration",
            "8s",
            "--format",
            "text",
        ]);
        profile.args(["--pid", &hostile.0.id().to_string()]);
        profile.arg("--report").arg(path("p.html"));
        profile.arg("--folded").arg(path("p.folded"));
        let most = most_memory(&mut profile);
        assert!(most <= MOST_KIB, "{most} KiB");
        let folded = fs::read_to_string(path("p.folded")).expect("folded stacks");
        let left_out = folded.lines().filter(|line| line.starts_with("(no room"));
        assert_eq!(left_out.count(), 1, "stacks without room are shown");
        let page = fs::metadata(path("p.html")).expect("a page");
        assert!(page.len() < 10 << 20, "{} bytes", page.len());
    }
}
