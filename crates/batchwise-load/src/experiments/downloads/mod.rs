//! Downloads whose records say when their server decided about them: how old data is when it arrives, and
//! what a server's way of writing does to that. The server and its clients run on one machine, whose
//! monotonic clock they share.

mod fetch;
mod policy;
mod serve;

pub use fetch::{FetchConfig, FetchReport, fetch};
pub use policy::Policy;
pub use serve::{ServeConfig, ServeReport, serve};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::time::{ClockId, clock_gettime};

/// Bytes of a record; it begins with when it was written, ns, CLOCK_MONOTONIC.
const RECORD: u64 = 1024;
/// Bytes of the stamp, and of a request: how many bytes are wanted.
const WORD: usize = 8;

/// ns, CLOCK_MONOTONIC.
pub(crate) fn now() -> u64 {
    // it takes no arguments that could be wrong
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |t| {
        t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64
    })
}

/// As many descriptors as the process may have.
fn allow_descriptors() -> nix::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)
}
