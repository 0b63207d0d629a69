//! The lines of `batchwise balance`, its log, its control socket and its metrics.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::MutexGuard;
use std::time::Duration;

use batchwise_testbed::host::Host;
use batchwise_testbed::segment::{LINK as LAN, Segment, SegmentSpec, VIP, server};
use batchwise_testbed::stage::{eventually, scrape::METRICS, turn};
use serde_json::Value;
use tempfile::TempDir;

use crate::metrics::hold_metrics;
use crate::shape::{hold, hold_now};
use crate::site::{Asking, Running, at, batchwise, json};

const PORT: u16 = 8_080;
const NAME: &str = "ct-balance";

/// Servers that answer lines, and a folder for the balancer's files.
struct Site {
    segment: Segment,
    folder: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Site {
    fn build() -> Self {
        let turn = turn();
        let segment = Segment::build("ct-lan", SegmentSpec::default()).expect("hosts");
        // the last one does not answer
        segment.servers[..3].iter().for_each(serve);
        Self {
            segment,
            folder: TempDir::new().expect("a folder"),
            _turn: turn,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a configuration with these servers.
    fn configure(&self, servers: &[u8]) {
        let backend = |n: &u8| {
            let address = server(n - 1).0;
            format!("[[service.backend]]\nname = \"s{n}\"\naddress = \"{address}\"\n")
        };
        let backends: String = servers.iter().map(backend).collect();
        let text = format!(
            "name = \"{NAME}\"\ninterfaces = [\"{LAN}\"]\ninterval = \"100ms\"\nflows = 4096\n\
             [[service]]\nname = \"web\"\naddress = \"{VIP}\"\nport = {PORT}\n\
             [service.health]\ncheck = \"tcp\"\ninterval = \"100ms\"\nrise = 1\nfall = 2\n{backends}"
        );
        fs::write(self.file("lb.toml"), text).expect("a file");
    }

    fn command(&self, args: &str) -> Command {
        let mut command = batchwise(&format!("balance {args}"));
        command.env("BATCHWISE_RUN_DIR", self.folder.path());
        command
    }

    /// Runs a subcommand of it.
    fn run(&self, args: &str) -> Output {
        let mut command = self.command(&format!("{args} --name {NAME}"));
        let output = self.segment.balancer.inside(|| Ok(command.output()?));
        output.expect("the command runs")
    }

    /// Asks the control socket, as programs do.
    fn ask(&self, request: &str) -> Vec<Value> {
        let socket = self.file(&format!("balance-{NAME}.sock"));
        let mut stream = UnixStream::connect(socket).expect("it listens");
        let request = format!("{request}\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        json(&answer)
    }

    /// A client's connection to the service.
    fn connect(&self) -> TcpStream {
        at(&self.segment.clients[0], || TcpStream::connect((VIP, PORT)))
    }

    /// Clients that ask and ask, each on a connection that lasts.
    fn clients(&self) -> Vec<Asking> {
        let client = |_| {
            let stream = self.connect();
            Asking::start(move || {
                // it fails when the balancer is gone
                let _ = ask(&stream);
                std::thread::sleep(Duration::from_millis(2));
            })
        };
        (0..8).map(client).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // in the end nothing is left to remove
        self.run("remove");
    }
}

fn serve(host: &Host) {
    let listener = at(host, || TcpListener::bind((VIP, PORT)));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut question = [0; 100];
                while stream.read_exact(&mut question).is_ok() {
                    std::thread::sleep(Duration::from_millis(2));
                    if stream.write_all(&question).is_err() {
                        break;
                    }
                }
            });
        }
    });
}

fn ask(mut stream: &TcpStream) -> std::io::Result<()> {
    stream.write_all(&[0; 100])?;
    stream.read_exact(&mut [0; 100])
}

#[test]
fn lines_log_control_and_metrics() {
    let site = Site::build();
    site.configure(&[1, 2, 4]);
    let (file, log) = (site.file("lb.toml"), site.file("log"));
    let files = format!("--config {} --log {}", file.display(), log.display());
    let command = site.command(&format!("{files} --format jsonl --metrics {METRICS}"));
    let balancer = Running::start(&site.segment.balancer, command);
    let healthy = |l: &Value| l["kind"] == "backend" && l["health"] == "up";
    eventually(
        "two healthy backends",
        || (balancer.lines().iter().filter(|l| healthy(l)).count() >= 2).then_some(()),
        || format!("{:#?}", balancer.lines()),
    );
    let clients = site.clients();
    let new_connections = || {
        for _ in 0..4 {
            // one to a server that is not there yet known to be may fail
            let _ = ask(&site.connect());
        }
    };
    hold("balance", || {
        new_connections();
        balancer.lines()
    });
    hold_metrics("balance-metrics", &site.segment.balancer);
    hold("balance-status", || {
        let output = site.run("status --format jsonl");
        json(&String::from_utf8_lossy(&output.stdout))
    });

    let answers = [
        r#"{"command": "drain", "backend": "s2", "service": null, "undo": false}"#,
        r#"{"command": "drain", "backend": "s2", "service": "web", "undo": true}"#,
        r#"{"command": "drain", "backend": "nosuch", "service": null, "undo": false}"#,
        r#"{"command": "reload"}"#,
        r#"{"command": "nosuch"}"#,
        "no JSON",
    ]
    .map(|request| site.ask(request));
    let done = answers.each_ref().map(|a| a[0]["ok"].as_bool());
    assert_eq!(
        done.map(|d| d == Some(true)),
        [true, true, false, true, false, false]
    );
    hold_now("balance-answers", &answers.concat());
    hold_now(
        "balance-control-status",
        &site.ask(r#"{"command": "status"}"#),
    );
    for args in ["drain s1", "drain s1 --undo", "reload"] {
        assert_eq!(site.run(args).status.code(), Some(0), "{args}");
    }
    let before = balancer.lines().len();
    fs::write(&file, "nosuch = 1\n").expect("a file");
    assert_eq!(site.run("reload").status.code(), Some(1));

    site.configure(&[1, 3]);
    assert_eq!(site.run("reload").status.code(), Some(0));
    hold("balance-leaving", || {
        new_connections();
        balancer.lines().split_off(before)
    });
    drop(clients);
    let removed = site.ask(r#"{"command": "remove"}"#);
    assert_eq!(removed[0]["ok"], true, "{removed:?}");
    balancer.finish();
    hold_now(
        "balance-log",
        &json(&fs::read_to_string(log).expect("a log")),
    );
}
