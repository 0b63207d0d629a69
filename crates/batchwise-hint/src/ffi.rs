//! The C interface, declared in `include/batchwise_hint.h`.

use std::os::fd::BorrowedFd;

use crate::Hints;
use crate::handle::from_c;

fn give(hints: Hints) -> *mut Hints {
    if hints.is_open() {
        Box::into_raw(Box::new(hints))
    } else {
        std::ptr::null_mut()
    }
}

/// A handle for a connected TCP socket, or NULL.
#[unsafe(no_mangle)]
pub extern "C" fn bw_hint_open_fd(sockfd: libc::c_int) -> *mut Hints {
    if sockfd < 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: it is not -1; the caller lends an open descriptor, and for any other the calls made
    // on it fail.
    let socket = unsafe { BorrowedFd::borrow_raw(sockfd) };
    give(Hints::for_connection(&socket))
}

/// A handle for the service at an IPv4 or IPv6 address, or NULL.
///
/// # Safety
/// `address` is NULL or points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_hint_open_service(
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> *mut Hints {
    // SAFETY: the caller's promise is the same.
    let address = unsafe { from_c(address, length) };
    address.map_or(std::ptr::null_mut(), |a| give(Hints::for_service(a)))
}

/// `n` requests were issued.
///
/// # Safety
/// `hint` is NULL or an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_hint_create(hint: *const Hints, n: u32) {
    // SAFETY: the caller's promise.
    if let Some(hints) = unsafe { hint.as_ref() } {
        hints.create(n);
    }
}

/// The responses of `n` requests are there, or are no longer waited for.
///
/// # Safety
/// `hint` is NULL or an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_hint_complete(hint: *const Hints, n: u32) {
    // SAFETY: the caller's promise.
    if let Some(hints) = unsafe { hint.as_ref() } {
        hints.complete(n);
    }
}

/// Ends a handle: no call may use it any more.
///
/// # Safety
/// `hint` is NULL or an open handle that no other thread is using.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bw_hint_close(hint: *mut Hints) {
    if !hint.is_null() {
        // SAFETY: give() made it from a Box, and the caller gives it back.
        drop(unsafe { Box::from_raw(hint) });
    }
}
