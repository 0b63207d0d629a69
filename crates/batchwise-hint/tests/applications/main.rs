//! Hints as applications use them, held against an agent of the tests' own and against what the
//! applications measure themselves. One binary, whose tests take turns: a process has one link.

mod support;

mod grpc;
mod handles;
mod redis;

use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use batchwise_hint::SOCKET_VARIABLE;
use tempfile::TempDir;

/// The socket that this process's hints look for, and the turn at it.
struct HintSocket {
    path: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

fn hint_socket() -> HintSocket {
    static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
        let folder = TempDir::new().expect("a folder");
        // SAFETY: nothing else in these tests writes the environment, and the hints' link, which
        // reads it, does not run yet.
        unsafe { std::env::set_var(SOCKET_VARIABLE, folder.path().join("hint.sock")) };
        folder
    });
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let path = FOLDER.path().join("hint.sock");
    HintSocket { path, _turn }
}
