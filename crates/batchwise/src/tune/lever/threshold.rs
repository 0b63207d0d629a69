//! `net.ipv4.tcp_pingpong_thresh` (Linux 6.7 and later), a network namespace's: so many answers in a row make a connection
//! one whose acknowledgments wait for data to go with (inet_csk_inc_pingpong_cnt). It goes for IPv6, too.

use std::fs;
use std::io::{self, ErrorKind};

const FILE: &str = "/proc/sys/net/ipv4/tcp_pingpong_thresh";
/// The most: it takes so many answers without a pause in between.
const NEVER: u8 = u8::MAX;

/// In the calling thread's network namespace, as is all here.
pub fn get() -> io::Result<u8> {
    let text = fs::read_to_string(FILE).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            io::Error::other("this kernel has no tcp_pingpong_thresh (Linux 6.7 and later)")
        }
        _ => error,
    })?;
    text.trim().parse().map_err(io::Error::other)
}

pub fn raise() -> io::Result<()> {
    fs::write(FILE, NEVER.to_string()).map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("writing {FILE}: {error} (a unit with ProtectKernelTunables=yes may not)"),
        )
    })
}

/// Whether nobody has changed it since.
pub fn is_raised() -> io::Result<bool> {
    Ok(get()? == NEVER)
}

/// Has again what it had.
pub fn restore(before: u8) -> io::Result<()> {
    match is_raised()? {
        true => fs::write(FILE, before.to_string()),
        false => Ok(()),
    }
}
