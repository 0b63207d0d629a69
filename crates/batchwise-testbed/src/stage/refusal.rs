//! What a user who gets something wrong is told.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::commands;

const NOBODY: u32 = 65_534;

/// Runs it to its end.
pub fn run(command: &mut Command) -> Output {
    command
        .stdin(Stdio::null())
        .output()
        .expect("the command runs")
}

/// It ended with this code and one readable error that contains each of `words`.
pub fn assert_refused(output: &Output, code: i32, words: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(!error.contains("panicked"), "{error}");
    for word in words {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

/// A user without any privilege, who may read and run this copy of `batchwise`.
pub struct Nobody {
    folder: TempDir,
}

impl Nobody {
    /// Copies the command.
    pub fn prepare() -> Self {
        let folder = TempDir::new().expect("a folder");
        let copy = folder.path().join("batchwise");
        std::fs::copy(commands::required("batchwise"), &copy).expect("a copy");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("a readable folder");
        Self { folder }
    }

    /// Runs it with these arguments.
    pub fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Output {
        let mut command = Command::new(self.folder.path().join("batchwise"));
        // std drops the supplementary groups as well
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
        run(command.args(args))
    }
}

/// Runs `batchwise` with these arguments as a user without any privilege.
pub fn run_as_nobody(args: &[&str]) -> Output {
    Nobody::prepare().run(args.iter().copied())
}
