//! What can be asked of a balancer's agent.

use std::io;
use std::path::Path;

use anyhow::anyhow;
use batchwise_bpf::balance::Balancer;
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::frame::control;

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    Status,
    /// No new connections for a backend, or again.
    Drain(Drain),
    Reload,
    /// Forward no more, leave nothing, and end.
    Remove,
}

/// Whom to drain.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[group(skip)] // the subcommand's own group has this name
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// Its name
    pub backend: String,
    /// Its service, where more than one has a backend of this name
    #[arg(long)]
    pub service: Option<String>,
    /// Give it new connections again
    #[arg(long)]
    #[serde(default)]
    pub undo: bool,
}

impl control::Request for Request {
    const USAGE: &'static str = "send one line of JSON, such as {\"command\":\"status\"}; there are status, \
                                 drain, reload and remove";
}

pub type Asked = control::Asked<Request>;
pub type Server = control::Server<Request>;

fn socket(name: &str) -> String {
    format!("balance-{name}")
}

/// Listens for requests to the balancer of this name.
pub fn listen(name: &str) -> anyhow::Result<Server> {
    Server::start(&socket(name))?.ok_or_else(|| {
        anyhow!(
            "another agent runs the balancer {name:?}: stop it first, or give this one another `name` in \
             its configuration"
        )
    })
}

/// Whether an agent of the balancer of this name listens.
pub fn runs(name: &str) -> bool {
    control::runs(&socket(name))
}

/// Asks the agent of the balancer of this name; gives its whole answer.
pub fn ask(name: &str, request: &Request) -> anyhow::Result<String> {
    control::ask(&socket(name), request, |path, error| {
        no_agent(name, path, error)
    })
}

fn no_agent(name: &str, path: &Path, error: &io::Error) -> anyhow::Error {
    let remedy = if error.kind() == io::ErrorKind::PermissionDenied {
        "run as root".to_owned()
    } else if Balancer::pinned(name) {
        format!(
            "its packets are still forwarded; start the agent again with `batchwise balance --config FILE`, \
             or end the forwarding with `batchwise balance remove --name {name}`"
        )
    } else {
        "start it with `batchwise balance --config FILE`, or give its name with --name".to_owned()
    };
    anyhow!(
        "no agent of the balancer {name:?} answers at {} ({error}): {remedy}",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_may_leave_out_what_is_usual() {
        let drain = Request::Drain(Drain {
            backend: "s1".to_owned(),
            service: None,
            undo: false,
        });
        let read = serde_json::from_str::<Request>(r#"{"command":"drain","backend":"s1"}"#);
        assert_eq!(read.expect("a request"), drain);
    }
}
