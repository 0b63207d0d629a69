//! The dashboard of the load balancer, before servers of which one does not answer.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::lines::Printing;
use batchwise_testbed::segment::{LINK, Segment, SegmentSpec, VIP, server};
use batchwise_testbed::stage::{batchwise, scrape::METRICS, turn};
use serde_json::Value;
use tempfile::TempDir;

use crate::panels::until_all_answer;
use crate::server::Prometheus;
use crate::until_alerts;

const PORT: u16 = 8_080;
const NAME: &str = "pr-balance";

/// Answers every question of a connection after a while.
fn serve(host: &Host) {
    let listener = host.inside(|| Ok(TcpListener::bind((VIP, PORT))?));
    let listener = listener.expect("a listener");
    let answer = |mut stream: TcpStream| -> std::io::Result<()> {
        let mut question = [0; 100];
        loop {
            stream.read_exact(&mut question)?;
            std::thread::sleep(Duration::from_millis(2));
            stream.write_all(&question)?;
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
}

/// Asks on connections that end after a while, until it is over.
fn ask(host: &Host, over: &AtomicBool) -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(1);
    host.inside(|| {
        while !over.load(Ordering::Relaxed) {
            let mut stream = TcpStream::connect_timeout(&(VIP, PORT).into(), LIMIT)?;
            stream.set_read_timeout(Some(LIMIT))?;
            for _ in 0..500 {
                stream.write_all(&[0; 100])?;
                stream.read_exact(&mut [0; 100])?;
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(())
    })
}

/// What ends with the test, however it ends: the clients, and what the agent has pinned.
struct End<'a> {
    over: &'a AtomicBool,
    folder: &'a TempDir,
    balancer: &'a Host,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let mut command = batchwise();
        command.args(["balance", "remove", "--name", NAME]);
        command.env("BATCHWISE_RUN_DIR", self.folder.path());
        let removed = self.balancer.inside(|| Ok(command.output()?));
        println!("removed: {removed:?}");
    }
}

#[test]
fn balance() {
    let _turn = turn();
    let segment = Segment::build("pr-lan", SegmentSpec::default()).expect("hosts");
    let (client, balancer) = (&segment.clients[0], &segment.balancer);
    // the third one does not answer
    segment.servers[..2].iter().for_each(serve);
    let folder = TempDir::new().expect("a folder");
    let backend = |n: u8| {
        let address = server(n - 1).0;
        format!("[[service.backend]]\nname = \"s{n}\"\naddress = \"{address}\"\n")
    };
    let backends: String = (1..=3).map(backend).collect();
    let file = folder.path().join("lb.toml");
    let text = format!(
        "name = \"{NAME}\"\ninterfaces = [\"{LINK}\"]\nflows = 4096\n\
         [[service]]\nname = \"web\"\naddress = \"{VIP}\"\nport = {PORT}\n\
         [service.health]\ncheck = \"tcp\"\ninterval = \"100ms\"\nrise = 1\nfall = 2\n{backends}"
    );
    std::fs::write(&file, text).expect("a file");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = End {
            over: &over,
            folder: &folder,
            balancer,
        };
        let mut command = batchwise();
        command.env("BATCHWISE_RUN_DIR", folder.path());
        command.args(["balance", "--format", "jsonl", "--metrics", METRICS]);
        command.arg("--config").arg(&file);
        let agent = Printing::<Value>::start(balancer, "balance", command, Role::Observer);
        let _agent = agent.expect("it starts");
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // before the first health checks it fails
                    let _ = ask(client, &over);
                }
            });
        }
        let prometheus = Prometheus::start(balancer, None);
        until_all_answer(&prometheus, "balance");
        until_alerts(&prometheus, &["BatchwiseBackendDown"]);
    });
}
