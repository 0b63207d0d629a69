//! What happens around the watcher: servers restart, namespaces go.

use batchwise_core::sense::report::Side;
use batchwise_testbed::redis::PORT;
use batchwise_testbed::stage::Stage;
use batchwise_testbed::stage::generator::{LASTING, Load};
use batchwise_testbed::stage::watch::{Watch, now_ns};
use batchwise_testbed::topology::TwoHosts;
use batchwise_testbed::{redis::RedisServer, stop::Stop};

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
        batchwise_testbed::stage::eventually(
            "the service's line to go",
            || {
                let before = std::mem::replace(&mut seen, watch.lines().len());
                std::thread::sleep(batchwise_testbed::stage::watch::INTERVAL * 3);
                (before == seen).then_some(())
            },
            || format!("{:?}", watch.lines().last()),
        );
    }
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
