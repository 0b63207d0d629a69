//! What happens when nobody reads the lines.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use batchwise_testbed::stage::generator::{LASTING, Load};
use batchwise_testbed::stage::{Stage, batchwise, eventually};

#[test]
fn a_reader_that_leaves_ends_the_watcher_quietly() {
    let stage = Stage::build("pipe");
    let _redis = stage.redis();
    let _load = Load::start(&stage.hosts.client, stage.redis_address(), LASTING);
    for format in ["jsonl", "text"] {
        let mut watcher = batchwise()
            .args(["watch", "--port", "6379", "--interval", "100ms"])
            .args(["--format", format])
            .arg("--cgroup")
            .arg(stage.hosts.server.cgroup())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a watcher");
        let mut output = BufReader::new(watcher.stdout.take().expect("its output"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert!(!line.is_empty());
        drop(output);
        let ended = eventually(
            "the watcher to end",
            || watcher.try_wait().expect("its state"),
            || "it runs on".to_owned(),
        );
        let mut errors = String::new();
        let mut stderr = watcher.stderr.take().expect("its errors");
        stderr.read_to_string(&mut errors).expect("text");
        assert_eq!((ended.code(), errors.as_str()), (Some(0), ""), "{format}");
    }
}
