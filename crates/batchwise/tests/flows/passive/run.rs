//! A run of `batchwise passive` and the lines that it printed.

use std::path::Path;
use std::process::{Command, ExitStatus};

use batchwise_core::passive::report::{EpochLine, Line, ServerLine, TotalsLine};
use batchwise_testbed::bpf_stats::wait_attached;
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::lines::Printing;
use batchwise_testbed::stage::refusal::run;
use batchwise_testbed::stage::{PATIENCE, batchwise, eventually};
use batchwise_testbed::stop::Stop;
use nix::sys::signal::Signal;

/// What a run printed.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    pub servers: Vec<ServerLine>,
    pub epochs: Vec<EpochLine>,
    pub totals: Option<TotalsLine>,
}

impl Lines {
    pub fn read(text: &str) -> Self {
        let read = |text: &str| {
            assert!(text.starts_with("{\"kind\":"), "{text}");
            serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
        };
        Self::of(&text.lines().map(read).collect::<Vec<_>>())
    }

    /// Sorts them by kind.
    pub fn of(all: &[Line]) -> Self {
        let mut lines = Self::default();
        for line in all {
            match line {
                Line::Server(line) => lines.servers.push(line.clone()),
                Line::Epoch(line) => lines.epochs.push(line.clone()),
                Line::Totals(line) => lines.totals = Some(*line),
            }
        }
        lines
    }

    /// Batches of a server, and the mean of their latencies, ns.
    pub fn mean(&self, server: &str) -> (u64, f64) {
        let of = self.servers.iter().filter(|l| l.server == server);
        let weighted = of.filter_map(|l| Some((l.batches, l.latency_ns.mean? as f64)));
        let (batches, sum) = weighted.fold((0, 0.0), |(n, sum), (batches, mean)| {
            (n + batches, sum + batches as f64 * mean)
        });
        (batches, sum / batches as f64)
    }
}

/// Runs it over a capture to its end; it must succeed.
pub fn over(capture: &Path, args: &[&str]) -> Lines {
    let mut command = batchwise();
    command.args(["passive", "--format", "jsonl", "--pcap"]);
    let output = run(command.arg(capture).args(args));
    assert!(output.status.success(), "{output:?}");
    Lines::read(&String::from_utf8_lossy(&output.stdout))
}

/// One that runs; killed when dropped.
pub struct Live(Printing<Line>);

impl Live {
    /// Measures what arrives at the host's link.
    pub fn launch(host: &Host, args: &[&str]) -> Self {
        Self::launch_at(host, "bw-veth", args)
    }

    /// The same at another interface.
    pub fn launch_at(host: &Host, interface: &str, args: &[&str]) -> Self {
        let mut command = batchwise();
        command.args(["passive", "--iface", interface, "--format", "jsonl"]);
        command.args(["--interval", "300ms", "--epoch", "300ms"]);
        command.args(args);
        let live = Printing::start(host, "batchwise passive", command, Role::Observer);
        Self(live.expect("it starts"))
    }

    /// The same, attached.
    pub fn start(host: &Host, args: &[&str]) -> Self {
        let mut live = Self::launch(host, args);
        eventually(
            "the program to be attached",
            || {
                live.0.check().expect("it runs");
                is_attached(host).then_some(())
            },
            String::new,
        );
        live
    }

    pub fn lines(&self) -> Lines {
        self.0.with_lines(Lines::of)
    }

    /// Waits until `enough` holds for the lines so far.
    pub fn until(&self, what: &str, enough: impl Fn(&Lines) -> bool) {
        eventually(
            what,
            || enough(&self.lines()).then_some(()),
            || format!("its lines: {:#?}{}", self.lines(), self.0.quote()),
        );
    }

    /// Waits until it has attached its program to whatever interface.
    pub fn await_attached(&mut self) {
        let attached = wait_attached(self.0.process(), "batchwise passive", &Stop::default());
        attached.expect("it attaches");
    }

    /// Waits for its end by itself; how, and what it said on standard error.
    pub fn await_end(mut self) -> (ExitStatus, String) {
        let status = self.0.wait(&Stop::default(), PATIENCE).expect("it ends");
        (status, self.0.quote())
    }

    /// Ends it with a signal.
    pub fn end(mut self, signal: Signal) -> (ExitStatus, Lines) {
        let status = self.0.end(signal, PATIENCE).expect("it ends");
        (status, self.lines())
    }
}

/// Whether an XDP program hangs on the host's link.
pub fn is_attached(host: &Host) -> bool {
    let shown = host.inside(|| {
        let output = Command::new("ip")
            .args(["-details", "link", "show", "bw-veth"])
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    });
    shown.expect("the link").contains("xdp")
}
