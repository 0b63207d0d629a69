//! What happens around the watcher: servers restart, namespaces go, readers leave.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};

use batchwise_core::sense::report::Side;
use batchwise_testbed::redis::PORT;
use batchwise_testbed::stage::generator::{LASTING, Load};
use batchwise_testbed::stage::request::ask;
use batchwise_testbed::stage::watch::{INTERVAL, Watch, now_ns};
use batchwise_testbed::stage::{Stage, batchwise, eventually, programs_of};
use batchwise_testbed::topology::TwoHosts;
use batchwise_testbed::{redis::RedisServer, stop::Stop};
use nix::unistd::Pid;

#[test]
fn a_connection_that_the_kernel_refused_memory_for_is_found_as_soon_as_there_is_some() {
    let stage = Stage::build("refused");
    let _redis = stage.redis();
    let watch = Watch::host(&stage.hosts.server, PORT, &[]);
    let allow = |bytes: &str| {
        let written = || Ok(fs::write("/proc/sys/net/core/optmem_max", bytes)?);
        stage
            .hosts
            .server
            .inside(written)
            .expect("the limit is set");
    };
    allow("2048");
    let mut connection = stage.connect(stage.redis_address());
    for _ in 0..5 {
        ask(&mut connection, b"PING\r\n", b"+PONG\r\n");
        std::thread::sleep(INTERVAL);
    }
    assert!(watch.lines().is_empty(), "{:?}", watch.lines());
    allow("131072");
    eventually(
        "the connection",
        || {
            ask(&mut connection, b"PING\r\n", b"+PONG\r\n");
            let lines = watch.lines();
            lines.iter().any(|l| l.connections == 1).then_some(())
        },
        || format!("{:?}", watch.lines()),
    );
    watch.finish();
}

#[test]
fn a_namespace_that_is_deleted_does_not_disturb_the_watcher() {
    let stage = Stage::build("gone");
    let _redis = stage.redis();
    let all = stage
        .hosts
        .server
        .cgroup()
        .parent()
        .and_then(|p| p.parent());
    let mut watch = Watch::start(&stage.hosts.server, PORT, all, &["--exchange"]);
    {
        let others = TwoHosts::build("w-gone-too").expect("two more hosts");
        let _redis = RedisServer::start(&others.server, &Stop::default()).expect("Redis");
        let _load = Load::start(&others.client, others.server_address(PORT), LASTING);
        watch.until("the other hosts' service", now_ns(), |lines| {
            lines
                .iter()
                .any(|l| l.side == Side::Client && l.throughput_per_s > 1000.0)
        });
    }
    watch.assert_alive();
    let _load = Load::start(&stage.hosts.client, stage.redis_address(), LASTING);
    watch.until("the service that stays", now_ns(), |lines| {
        lines
            .iter()
            .any(|l| l.side == Side::Server && l.throughput_per_s > 1000.0)
    });
    watch.finish();
}

/// A watcher whose output the test has in hand.
fn watcher(cgroup: &Path, format: &str, output: Stdio) -> Child {
    let mut command = batchwise();
    command
        .args(["watch", "--port", "6379", "--interval", "100ms"])
        .args(["--format", format, "--cgroup"])
        .arg(cgroup)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(Stdio::piped());
    command.spawn().expect("a watcher")
}

/// Its exit code, and what it wrote to its standard error.
fn end_of(watcher: &mut Child) -> (Option<i32>, String) {
    let ended = eventually(
        "the watcher to end",
        || watcher.try_wait().expect("its state"),
        || "it runs on".to_owned(),
    );
    let mut errors = String::new();
    let mut stderr = watcher.stderr.take().expect("its errors");
    stderr.read_to_string(&mut errors).expect("text");
    (ended.code(), errors)
}

#[test]
fn a_cgroup_that_is_made_anew_ends_the_watcher_which_would_see_nothing() {
    let stage = Stage::build("anew");
    let folder = stage.hosts.server.cgroup().join("service");
    fs::create_dir(&folder).expect("a cgroup");
    let mut watcher = watcher(&folder, "jsonl", Stdio::null());
    let watched = || {
        let programs = programs_of(Pid::from_raw(watcher.id().cast_signed()));
        (!programs.is_empty()).then_some(())
    };
    eventually("the watcher to begin", watched, String::new);
    fs::remove_dir(&folder).expect("an empty cgroup");
    fs::create_dir(&folder).expect("the same, and another one");
    let (code, errors) = end_of(&mut watcher);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("start again"), "{errors}");
}

#[test]
fn a_reader_that_leaves_ends_the_watcher_quietly() {
    let stage = Stage::build("pipe");
    let _redis = stage.redis();
    let _load = Load::start(&stage.hosts.client, stage.redis_address(), LASTING);
    for format in ["jsonl", "text"] {
        let mut watcher = watcher(stage.hosts.server.cgroup(), format, Stdio::piped());
        let mut output = BufReader::new(watcher.stdout.take().expect("its output"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert!(!line.is_empty());
        drop(output);
        let (code, errors) = end_of(&mut watcher);
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{format}");
    }
}

mod long {
    use super::*;

    #[test]
    fn a_restart_of_the_server_makes_its_line_go_and_come_back() {
        let stage = Stage::build("restart");
        let watch = Watch::host(&stage.hosts.server, PORT, &["--exchange"]);
        for _ in 0..2 {
            let redis = stage.redis();
            let load = Load::start(&stage.hosts.client, stage.redis_address(), LASTING);
            watch.until("the service", now_ns(), |lines| {
                lines
                    .iter()
                    .any(|l| l.service == "10.77.0.1:6379" && l.throughput_per_s > 1000.0)
            });
            drop((redis, load));
            // what closed in an interval is still in its line: the next has none
            let mut seen = usize::MAX;
            eventually(
                "the service's line to go",
                || {
                    let before = std::mem::replace(&mut seen, watch.lines().len());
                    std::thread::sleep(INTERVAL * 3);
                    (before == seen).then_some(())
                },
                || format!("{:?}", watch.lines().last()),
            );
        }
        watch.finish();
    }
}
