//! The C interface, declared in `include/batchwise_window.h`.

use std::collections::HashSet;
use std::ffi::{c_char, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::agent::Mode;
use crate::key::Key;
use crate::set::Set;

/// A set, and keys that found no room in the last answer.
pub struct Handle {
    set: Set,
    pending: Mutex<Vec<Key>>,
}

impl Handle {
    fn pending(&self) -> MutexGuard<'_, Vec<Key>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An errno, negative.
fn failed(error: &io::Error) -> i64 {
    let errno = error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::NotConnected => libc::ENOTCONN,
        io::ErrorKind::StorageFull => libc::ENOSPC,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
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
    // SAFETY: as the caller promises.
    unsafe { said(&window.set.mode(), why, length) }
}

/// The same of the socket with this key: the agent may be there, and not be able to.
///
/// # Safety
/// As [`bw_window_mode`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_window_mode_of(
    window: &Handle,
    key: i64,
    why: *mut c_char,
    length: usize,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { said(&window.set.mode_of(Key::from_number(key)), why, length) }
}

/// # Safety
/// `why` is NULL or has room for `length` bytes.
unsafe fn said(mode: &Mode, why: *mut c_char, length: usize) -> c_int {
    let (Mode::Fallback(reason) | Mode::Unwindowed(reason)) = mode else {
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
    let key = Key::from_number(key);
    window.set.remove(key);
    window.pending().retain(|other| *other != key);
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
    let mut pending = window.pending();
    if let Err(error) = window.set.ready(&mut pending) {
        return failed(&error);
    }
    // one that was left over may have waited again, and have rung again
    let mut once = HashSet::new();
    pending.retain(|key| once.insert(*key));
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// A connection that its peer resets while its application waits.
    fn reset_in_wait(window: &Handle) -> (TcpStream, Key) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        while (&client).write(&[7; 65_536]).is_ok() {}
        let key = window.set.add(client.as_fd(), 1).unwrap();
        assert_eq!(window.set.wait(key, client.as_fd()).unwrap(), None);
        drop(server); // with data that was not read
        (client, key)
    }

    fn window() -> Handle {
        // SAFETY: tests set it to the same value, and nothing else reads the environment meanwhile.
        unsafe { std::env::set_var("BATCHWISE_WINDOW_SOCKET", "/nonexistent/window.sock") };
        Handle {
            set: Set::new().unwrap(),
            pending: Mutex::default(),
        }
    }

    fn ready(window: &Handle, most: usize) -> Vec<Key> {
        let mut keys = [0; 8];
        // SAFETY: there is room for 8.
        let count = unsafe { bw_window_ready(window, keys.as_mut_ptr(), most) };
        let count = usize::try_from(count).unwrap();
        keys[..count]
            .iter()
            .copied()
            .map(Key::from_number)
            .collect()
    }

    #[test]
    fn a_key_that_was_left_over_is_given_once_although_it_rings_again() {
        let window = window();
        let (_client, key) = reset_in_wait(&window);
        window.pending().push(key);
        assert_eq!(ready(&window, 8), [key]);
        assert_eq!(ready(&window, 8), []);
    }

    #[test]
    fn a_key_that_was_left_over_is_not_given_after_its_removal() {
        let window = window();
        let (first, second) = (reset_in_wait(&window), reset_in_wait(&window));
        let given = ready(&window, 1);
        let left = if given == [first.1] {
            second.1
        } else {
            first.1
        };
        // SAFETY: it is open.
        unsafe { bw_window_remove(&window, left.to_number()) };
        assert_eq!(ready(&window, 8), []);
    }

    #[test]
    fn an_error_has_the_number_that_c_knows_it_by() {
        for (kind, errno) in [
            (io::ErrorKind::NotConnected, libc::ENOTCONN),
            (io::ErrorKind::StorageFull, libc::ENOSPC),
            (io::ErrorKind::Unsupported, libc::EOPNOTSUPP),
        ] {
            assert_eq!(failed(&kind.into()), -i64::from(errno));
        }
    }
}
