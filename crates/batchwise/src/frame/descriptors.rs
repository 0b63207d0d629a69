//! As many descriptors as the process may have. The 1,024 that a shell or systemd gives are for programs that use
//! select(2): applications at `window` and `hints` bring more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to what the administrator allows. It stays as it is where that fails: what needs more says so.
pub fn allow_all() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("this process may have no more descriptors than before: {error}");
    }
}
