//! The agent's memory, beside a program whose stacks share nothing.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use batchwise_testbed::stage::{batchwise, turn};

/// What the agent may take, whatever runs.
const MOST_KIB: i64 = 64 << 10;

struct Hostile(Child);

impl Hostile {
    fn start(folder: &Path) -> Self {
        let (source, program) = (folder.join("hostile.c"), folder.join("hostile"));
        fs::write(&source, include_str!("hostile.c")).expect("a file");
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

/// Runs it to its end; the most memory that it had, KiB.
// wait4 is what waits
#[allow(clippy::zombie_processes)]
fn most_memory(command: &mut Command) -> i64 {
    let child = command.stdout(Stdio::null()).spawn().expect("it runs");
    let mut status = 0;
    // SAFETY: all zeros is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both are there for as long as the call takes, and nobody else waits for this child.
    let pid = unsafe { libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage) };
    assert_eq!(pid, child.id() as i32, "{}", io::Error::last_os_error());
    assert_eq!(status, 0, "it ends well");
    usage.ru_maxrss
}

#[test]
fn stacks_that_share_nothing_take_no_more_memory_than_is_allowed() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let hostile = Hostile::start(folder.path());
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
    profile.arg("--pprof").arg(path("p.pb.gz"));
    let most = most_memory(&mut profile);
    assert!(most <= MOST_KIB, "{most} KiB");
    let folded = fs::read_to_string(path("p.folded")).expect("folded stacks");
    let left_out = folded.lines().filter(|line| line.starts_with("(no room"));
    assert_eq!(left_out.count(), 1, "stacks without room are shown");
    let page = fs::metadata(path("p.html")).expect("a page");
    assert!(page.len() < 10 << 20, "{} bytes", page.len());
}
