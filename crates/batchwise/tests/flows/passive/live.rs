//! What the kernel measures on a link is what the client there measures.

use std::process::Command;
use std::time::Duration;

use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::process::Process;
use batchwise_testbed::stage::scrape::{METRICS, scrape};
use batchwise_testbed::stage::{PATIENCE, Stage, eventually};
use batchwise_testbed::stop::Stop;
use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

use crate::passive::run::{Live, over};
use crate::passive::service::{DELAY, ask, start};

const PORT: u16 = 8_080;
const SERVER: &str = "10.77.0.1:8080";
/// For so long the client asks.
const ASKING: Duration = Duration::from_secs(3);

struct Capture {
    tcpdump: Process,
    folder: TempDir,
}

impl Capture {
    fn start(host: &Host) -> Self {
        let folder = TempDir::new().expect("a folder");
        let mut command = Command::new("tcpdump");
        command.args(["-i", "bw-veth", "-n", "-U", "-Z", "root", "-w"]);
        command.arg(folder.path().join("pcap"));
        let tcpdump = host.spawn("tcpdump", command, Role::Observer);
        let tcpdump = tcpdump.expect("tcpdump is needed (Debian: apt install tcpdump)");
        let file = folder.path().join("pcap");
        eventually(
            "tcpdump to listen",
            || file.metadata().is_ok_and(|m| m.len() > 0).then_some(()),
            || tcpdump.quote(),
        );
        Self { tcpdump, folder }
    }

    fn finish(mut self) -> TempDir {
        kill(self.tcpdump.pid(), Signal::SIGINT).expect("tcpdump is there");
        let status = self.tcpdump.wait(&Stop::default(), PATIENCE);
        assert!(status.expect("tcpdump ends").success());
        self.folder
    }
}

/// Within a factor that only a broken estimate leaves, whatever else the machine does.
fn assert_like(what: &str, estimate: f64, truth: f64) {
    let ratio = estimate / truth;
    assert!(
        (0.8..1.25).contains(&ratio),
        "{what}: {estimate} instead of {truth}"
    );
}

#[test]
fn the_estimate_is_what_the_client_measures_and_a_capture_agrees() {
    let stage = Stage::build("plive");
    let (server, client) = (&stage.hosts.server, &stage.hosts.client);
    let address = stage.hosts.server_address(PORT);
    start(server, address);
    let capture = Capture::start(server);
    let live = Live::start(
        server,
        &["--port", "8080", "--per-flow", "--metrics", METRICS],
    );
    let truth = ask(client, address, ASKING);
    assert!(truth >= DELAY.as_nanos() as f64);
    live.until("epochs", |lines| lines.epochs.len() >= 3);
    let scraped = scrape(server, METRICS);
    let (status, lines) = live.end(Signal::SIGINT);
    assert!(status.success(), "{status}");

    let (batches, estimate) = lines.mean(SERVER);
    assert!(batches > 50, "{lines:#?}");
    assert_like("live", estimate, truth);
    let totals = lines.totals.expect("totals");
    assert!(totals.measured >= batches, "{totals:?}");
    assert_eq!((totals.malformed, totals.lost_events), (0, 0), "{totals:?}");
    let epoch = &lines.epochs[0];
    assert!(
        epoch
            .client
            .as_ref()
            .is_some_and(|c| c.starts_with("10.77.0.2:"))
    );
    assert!(epoch.start_ns > 1_700_000_000_000_000_000, "wall clock");
    assert!(epoch.start_ns < epoch.end_ns && epoch.end_ns <= epoch.ts_ns);

    let labels =
        format!("{{server=\"{SERVER}\",transport=\"tcp\",vantage=\"path\",estimator=\"passive\"}}");
    let count = format!("batchwise_passive_latency_seconds_count{labels}");
    assert!(scraped.contains(&count), "{scraped}");
    assert!(scraped.contains("batchwise_passive_packets_total{class=\"measured\"}"));
    assert!(scraped.trim_end().ends_with("# EOF"), "{scraped}");

    let folder = capture.finish();
    let captured = over(
        &folder.path().join("pcap"),
        &["--port", "8080", "--epoch", "300ms"],
    );
    let (_, from_capture) = captured.mean(SERVER);
    assert_like("capture", from_capture, truth);
    assert_like("capture against live", from_capture, estimate);
}

#[test]
fn tc_measures_where_it_is_asked_for() {
    let stage = Stage::build("ptc");
    let address = stage.hosts.server_address(PORT);
    start(&stage.hosts.server, address);
    let args = ["--port", "8080", "--attach", "tc"];
    let live = Live::launch(&stage.hosts.server, &args);
    // it hangs on no link that `ip` shows: its first line tells that it is there
    eventually(
        "its first line",
        || {
            ask(&stage.hosts.client, address, ASKING / 10);
            (!live.lines().servers.is_empty()).then_some(())
        },
        || format!("{:?}", live.lines()),
    );
    // what was asked until now is in the lines of these intervals
    std::thread::sleep(Duration::from_secs(1));
    let before = live.lines().servers.len();
    let truth = ask(&stage.hosts.client, address, ASKING);
    let (status, mut lines) = live.end(Signal::SIGINT);
    assert!(status.success(), "{status}");
    lines.servers.drain(..before);
    assert_like("tc", lines.mean(SERVER).1, truth);
}
