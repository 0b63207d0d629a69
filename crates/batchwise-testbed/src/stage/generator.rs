//! Load on a server while a test does something else.

use std::process::Command;

use crate::commands;
use crate::host::{Host, Role};
use crate::lines::Printing;
use crate::load::LoadReport;
use crate::stop::Stop;

use super::{PATIENCE, batchwise};

/// A running load generator; killed when dropped.
pub struct Load(Printing<String>);

impl Load {
    /// `batchwise load redis` at `host` with these options, written as in a shell.
    pub fn start(host: &Host, address: std::net::SocketAddr, options: &str) -> Self {
        commands::required("batchwise-load");
        let mut command = batchwise();
        command.args(["load", "redis", "--format", "json"]);
        command.arg("--addr").arg(address.to_string());
        command.args(options.split_whitespace());
        Self::spawn(host, command)
    }

    /// Any program that loads a server and ends by itself.
    pub fn spawn(host: &Host, command: Command) -> Self {
        let load = Printing::start_text(host, "the load", command, Role::Workload);
        Self(load.expect("a load generator"))
    }

    /// Fails when it has ended: it shall still load the server.
    pub fn assert_alive(&mut self) {
        self.0.check().expect("the load goes on");
    }

    /// Waits for its end; gives what it printed.
    pub fn output(mut self) -> String {
        let status = self.0.wait(&Stop::default(), 4 * PATIENCE);
        let status = status.expect("the load ends");
        assert!(status.success(), "{status}{}", self.0.quote());
        self.0.text()
    }

    /// Waits for its end; gives the report of `batchwise load`, which must be free of errors.
    pub fn report(self) -> LoadReport {
        let report = self.any_report();
        assert_eq!(report.errors, 0, "{report:?}");
        report
    }

    /// The same, errors or not.
    pub fn any_report(self) -> LoadReport {
        LoadReport::from_output(&self.output()).expect("a report")
    }
}

/// A load that outlasts what a test does meanwhile, and is killed then.
pub const LASTING: &str = "--rate 4000 --duration 300s --value-size 64";
