//! The C interface, declared in `include/batchwise_window.h`.

use std::ffi::{c_char, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use crate::set::{Key, Mode, Set};

/// A set, and keys that found no room in the last answer.
pub struct Handle {
    set: Set,
    pending: Mutex<Vec<Key>>,
}

/// An errno, negative.
fn failed(error: &io::Error) -> i64 {
    let errno = error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::NotFound => libc::ENOENT,
        _ => libc::EIO,
    });
    -i64::from(errno)
}

fn with<'a>(sockfd: c_int, then: impl FnOnce(BorrowedFd<'a>) -> io::Result<i64>) -> i64 {
    if sockfd < 0 {
        return -i64::from(libc::EBADF);
    }
    // SAFETY: it is not -1; the caller lends an open descriptor, and for any other the calls made on it
    // fail.
    then(unsafe { BorrowedFd::borrow_raw(sockfd) }).unwrap_or_else(|error| failed(&error))
}

/// A set, or NULL if the process may have no more descriptors.
#[unsafe(no_mangle)]
pub extern "C" fn bw_window_open() -> *mut Handle {
    let handle = |set| Handle {
        set,
        pending: Mutex::default(),
    };
    Set::new().map_or(std::ptr::null_mut(), |set| {
        Box::into_raw(Box::new(handle(set)))
    })
}

/// Its descriptor.
///
/// # Safety
/// `window` is an open set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_window_fd(window: &Handle) -> c_int {
    window.set.as_fd().as_raw_fd()
}

/// 1: the agent rings; 0: the set has fallen back, for the reason in `why`, if that is not NULL.
///
/// # Safety
/// `window` is an open set, and `why` is NULL or has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_window_mode(window: &Handle, why: *mut c_char, length: usize) -> c_int {
    let Mode::Fallback(reason) = window.set.mode() else {
        return 1;
    };
    if !why.is_null() && length > 0 {
        let bytes = &reason.as_bytes()[..reason.len().min(length - 1)];
        // SAFETY: so many bytes and one more are the caller's.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), why, bytes.len());
            why.add(bytes.len()).write(0);
        }
    }
    0
}

/// Takes in a connected TCP socket: its key, or an errno, negative.
///
/// # Safety
/// `window` is an open set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_window_add(window: &Handle, sockfd: c_int, at_least: u32) -> i64 {
    with(sockfd, |socket| {
        Ok(window.set.add(socket, at_least)?.to_number())
    })
}

/// Lets go of a socket.
///
/// # Safety
/// `window` is an open set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_window_remove(window: &Handle, key: i64) {
    window.set.remove(Key::from_number(key));
}

/// Bytes that can be written now; 0: sleep; an errno, negative.
///
/// # Safety
/// `window` is an open set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_window_wait(window: &Handle, key: i64, sockfd: c_int) -> i64 {
    with(sockfd, |socket| {
        let space = window.set.wait(Key::from_number(key), socket)?;
        Ok(space.unwrap_or(0).into())
    })
}

/// So many bytes were written of what `bw_window_wait` gave.
///
/// # Safety
/// `window` is an open set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_window_wrote(window: &Handle, key: i64, bytes: usize) {
    window.set.wrote(Key::from_number(key), bytes);
}

/// Writes keys of sockets that should be asked about again, at most `most`; how many, or an errno,
/// negative. While there are others the set's descriptor stays readable.
///
/// # Safety
/// `window` is an open set, and `keys` has room for `most`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_window_ready(window: &Handle, keys: *mut i64, most: usize) -> i64 {
    let mut pending = window
        .pending
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if pending.len() < most
        && let Err(error) = window.set.ready(&mut pending)
    {
        return failed(&error);
    }
    let count = pending.len().min(most);
    if pending.len() > most
        && let Err(error) = window.set.nudge()
    {
        return failed(&error);
    }
    for (at, key) in pending.drain(..count).enumerate() {
        // SAFETY: there is room for `most`.
        unsafe { keys.add(at).write(key.to_number()) };
    }
    count as i64
}

/// Bytes that TCP would send at once on the socket, or an errno, negative.
#[unsafe(no_mangle)]
pub extern "C" fn bw_window_space(sockfd: c_int) -> i64 {
    with(sockfd, |socket| Ok(crate::info::space(socket)?.into()))
}

/// Ends a set: no call may use it any more.
///
/// # Safety
/// `window` is NULL or an open set that no other thread is using.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_window_close(window: *mut Handle) {
    if !window.is_null() {
        // SAFETY: it came from `bw_window_open`, and is used by nobody else.
        drop(unsafe { Box::from_raw(window) });
    }
}
