//! Signals as flags that are looked at between two steps of a loop.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

/// A flag that SIGINT and SIGTERM set from now on.
pub fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    flag(&[SIGINT, SIGTERM])
}

/// A flag that SIGHUP sets from now on: read files again, open logs anew.
pub fn hangup_flag() -> anyhow::Result<Arc<AtomicBool>> {
    flag(&[SIGHUP])
}

/// A flag that SIGHUP sets from now on, where it would end the process: it means nothing else here, and whoever
/// started us does not have it ignored (nohup).
pub fn ending_hangup_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action it changes nothing, and only writes what is in force.
    let asked = unsafe { libc::sigaction(SIGHUP, ptr::null(), now.as_mut_ptr()) };
    if asked != 0 {
        return Err(io::Error::last_os_error()).context("looking at SIGHUP");
    }
    // SAFETY: the call has succeeded, and written it.
    let action = unsafe { now.assume_init() }.sa_sigaction;
    match action {
        libc::SIG_DFL => hangup_flag(),
        _ => Ok(Arc::default()),
    }
}

/// A file that may not grow any more (RLIMIT_FSIZE) is an error as a full disk is one, and not the end.
pub fn outlive_file_limit() {
    if let Err(error) = flag(&[SIGXFSZ]) {
        tracing::debug!("the limit of a file's size ends this process: {error:#}");
    }
}

/// A flag that any of these signals sets from now on.
pub fn flag(signals: &[i32]) -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register(*signal, Arc::clone(&flag)).context("catching signals")?;
    }
    Ok(flag)
}
