//! An HTTP/2 server whose connection carries a download that never ends, and small responses that are urgent:
//! how long until the first byte of one? By what the server's connections are wrapped in.

mod ask;
mod serve;

pub use ask::{AskConfig, AskReport, ask};
pub use serve::{ServeConfig, Wrap, serve};

/// The path of a body without an end, …
const BULK: &str = "/bulk";
/// … and of a small response.
const URGENT: &str = "/urgent";
