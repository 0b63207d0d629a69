//! A message with descriptors, as applications send them to agents.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

pub fn send(to: &OwnedFd, message: &[u8], fds: &[RawFd]) {
    let rights = [ControlMessage::ScmRights(fds)];
    let control = if fds.is_empty() { &[][..] } else { &rights };
    let parts = [IoSlice::new(message)];
    let flags = MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(to.as_raw_fd(), &parts, control, flags, None).expect("room");
}
