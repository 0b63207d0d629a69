//! Start, status, drain, reload, remove.

use std::fs;

use batchwise_bpf::balance::BPFFS;
use batchwise_testbed::host::ip;
use batchwise_testbed::segment::{LINK, VIP, client, server};
use batchwise_testbed::stage::refusal::assert_refused;
use libbpf_rs::MapHandle;
use nix::net::if_::if_nametoindex;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::balance::balancer::{Balancer, backend};
use crate::balance::site::Site;

#[test]
fn connections_reach_backends_which_answer_themselves_and_status_shows_them() {
    let site = Site::build("fwd");
    let balancer = Balancer::running(&site.segment.balancer, "fwd", &[1, 2]);
    let answers = site.answers(40);
    assert!(
        answers.iter().any(|a| a == "s1") && answers.iter().any(|a| a == "s2"),
        "{answers:?}"
    );
    balancer.until("packets to be counted", |status| {
        let totals = status.iter().find(|l| l["kind"] == "totals");
        totals.is_some_and(|l| l["forwarded"].as_u64() > Some(100))
    });
    let shares = balancer.status();
    let shares: f64 = shares.iter().filter_map(|l| l["share"].as_f64()).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{shares}");
    let table = balancer.must(&["status", "--format", "text"]);
    assert!(
        table.contains("serving") && table.contains("10.79.0.22"),
        "{table}"
    );
    balancer.must(&["remove"]);
    assert_refused(
        &balancer.tell(&["status"]),
        1,
        &["no agent", "--config FILE"],
    );
}

#[test]
fn a_drained_backend_keeps_its_connections_gets_no_new_ones_and_can_be_given_back() {
    let site = Site::build("drn");
    let balancer = Balancer::running(&site.segment.balancer, "drn", &[1, 2]);
    let mut kept = site.connect_to_server("s1");
    let said = balancer.must(&["drain", "s1"]);
    assert!(said.contains("web/s1 gets no new connections"), "{said}");
    assert!(!said.contains("dropped"), "{said}");
    assert_eq!(site.answers(20), ["s2"; 20]);
    assert_eq!(kept.ask(), "s1");
    let unknown = balancer.tell(&["drain", "s9"]);
    assert_refused(&unknown, 1, &["no backend \"s9\"", "web: s1, s2"]);
    let outage = "no backend of web serves now: new connections are dropped";
    let last = balancer.must(&["drain", "s2"]);
    assert!(last.contains(outage), "{last}");
    let again = balancer.must(&["drain", "s1", "--undo"]);
    assert!(!again.contains(outage), "{again}");
    balancer.until_backend("s1", "back", |s1| s1["share"].as_f64() > Some(0.0));
}

#[test]
fn a_backend_that_is_not_drained_any_more_and_still_gets_nothing_is_told_why() {
    let site = Site::build("und");
    let mut balancer = Balancer::new(&site.segment.balancer, "und");
    // a host that takes packets to the virtual address and drops them
    let silent = backend("silent", client(1).0.into());
    balancer.write(&(balancer.text(&[1, 2]) + "weight = 0\n" + &silent));
    balancer.start(2);
    balancer.until_health("silent", "down");
    let given_back = |name: &str| {
        balancer.must(&["drain", name]);
        balancer.must(&["drain", name, "--undo"])
    };
    let said = given_back("s1");
    assert!(said.contains("web/s1 gets new connections again"), "{said}");
    for (name, why) in [
        ("s2", "its weight in the configuration is 0"),
        ("silent", "it is down: "),
    ] {
        let said = given_back(name);
        let not = format!("web/{name} is not drained any more, but gets no new connections: {why}");
        assert!(said.contains(&not), "{said}");
    }
    let said = balancer.events("drain").pop().expect("an event");
    assert!(
        said["detail"].to_string().contains("it is down: "),
        "{said}"
    );
}

#[test]
fn a_wrong_configuration_is_refused_everywhere_and_the_old_one_stays() {
    let site = Site::build("bad");
    let balancer = Balancer::running(&site.segment.balancer, "bad", &[1]);
    balancer.write(&balancer.text(&[1]).replace("rise = 1", "rise = 0"));
    let refused = balancer.tell(&["reload"]);
    assert_refused(&refused, 1, &["lb.toml:", "rise = 0 is out of bounds"]);
    assert_eq!(site.answers(3), ["s1"; 3]);
    let table = balancer.must(&["status", "--format", "text"]);
    assert!(
        table.contains("REFUSED") && table.contains("rise = 0"),
        "{table}"
    );
    balancer.write(&balancer.text(&[2]));
    balancer.signal(Signal::SIGHUP);
    balancer.until("the next one to be in force", |status| {
        let agent = status.first();
        agent.is_some_and(|l| l["generation"] == 2 && l["config_error"].is_null())
    });
    assert_eq!(site.answers(3), ["s2"; 3]);
}

#[test]
fn a_log_that_was_moved_away_goes_on_at_its_name_after_sighup() {
    let site = Site::build("log");
    let mut balancer = Balancer::new(&site.segment.balancer, "log");
    balancer.write(&balancer.text(&[1]));
    let log = balancer.file().with_file_name("log.jsonl");
    let (away, path) = (log.with_extension("1"), log.to_string_lossy().into_owned());
    balancer.start_with(&["--log", &path], 1);
    fs::rename(&log, &away).expect("moved");
    balancer.signal(Signal::SIGHUP);
    balancer.until("it to be read again", |status| {
        status.first().is_some_and(|l| l["generation"] == 2)
    });
    let (before, after) = (fs::read_to_string(&away), fs::read_to_string(&log));
    let (before, after) = (before.expect("a log"), after.expect("a log"));
    assert!(!before.contains("\"what\":\"reload\""), "{before}");
    assert!(after.contains("\"what\":\"reload\""), "{after}");
}

#[test]
fn a_reload_for_which_the_kernel_has_no_room_changes_nothing() {
    let site = Site::build("nor");
    let mut balancer = Balancer::new(&site.segment.balancer, "nor");
    let text = balancer.text(&[1]);
    balancer.write(&text);
    balancer.start(1);
    let open = balancer.open_files();
    balancer.limit_files(open + 30);
    let more = (1..=60).map(|n| {
        let service = format!("[[service]]\nname = \"w{n}\"\naddress = \"{VIP}\"\nport = {n}\n");
        service + &backend("s2", server(1).0.into())
    });
    let changed = balancer.text(&[2]) + &more.collect::<String>();
    let changed = format!("policy = \"static\"\n{changed}");
    balancer.write(&changed);
    assert_refused(&balancer.tell(&["reload"]), 1, &["making a ring"]);
    let status = balancer.status();
    let agent = &status[0];
    assert_eq!(
        (&agent["generation"], &agent["policy"]),
        (&1.into(), &"latency".into())
    );
    let detail = balancer.events("config_error")[0]["detail"].to_string();
    assert!(
        detail.contains("the configuration before it stays in force"),
        "{detail}"
    );
    assert_eq!(status.iter().filter(|l| l["kind"] == "backend").count(), 1);
    assert_eq!(site.answers(5), ["s1"; 5]);
    balancer.limit_files(1024);
    balancer.must(&["reload"]);
    assert_eq!(site.answers(5), ["s2"; 5]);
}

#[test]
fn a_reload_that_the_kernel_refuses_amid_the_change_is_said_to_be_partly_in_force() {
    let site = Site::build("par");
    let balancer = Balancer::running(&site.segment.balancer, "par", &[1]);
    let services = format!("{BPFFS}/batchwise/balance/c-par/services");
    let services = MapHandle::from_pinned_path(services).expect("it is pinned");
    services.freeze().expect("the kernel knows it");
    balancer.write(&balancer.text(&[2]));
    let refused = balancer.tell(&["reload"]);
    let words = [
        "partly in force: ",
        "writing a service",
        "; reload or restart",
    ];
    assert_refused(&refused, 1, &words);
    let status = balancer.status();
    let event = &balancer.events("config_error")[0];
    for text in [&status[0]["config_error"], &event["detail"]] {
        let text = text.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(!text.contains("stays in force"), "{text}");
    }
    assert_eq!(status[0]["generation"], 1);
}

#[test]
fn a_backend_that_is_taken_out_keeps_its_connections_for_their_time() {
    let site = Site::build("out");
    let mut balancer = Balancer::new(&site.segment.balancer, "out");
    // whom nobody has seen serves at once where its MAC address is known and no check has failed
    let s2 = server(1).0.to_string();
    let mac = ["lladdr", "02:00:00:00:79:16", "dev", LINK];
    let of = ["-n", site.segment.balancer.namespace().name()];
    ip(&[&of[..], &["neigh", "replace", &s2], &mac].concat()).expect("an entry");
    let text = |time: &str, servers: &[u8]| {
        let text = balancer.text(servers).replace("fall = 2", "fall = 100");
        format!("drain_timeout = \"{time}\"\n{text}")
    };
    let long = "10m";
    let (before, after) = (text(long, &[1]), text(long, &[2]));
    let (both, soon) = (text(long, &[1, 2]), text("100ms", &[2]));
    balancer.write(&before);
    balancer.start(1);
    let mut kept = site.connect();
    assert_eq!(kept.ask(), "s1");
    // the client has said all, and what it is told still arrives
    let ending = site.connect();
    ending.shut_down();
    balancer.reload(&after);
    assert_eq!(site.answers(5), ["s2"; 5]);
    assert_eq!(kept.ask(), "s1");
    // out once more, and with less time
    for text in [both, soon] {
        balancer.reload(&text);
    }
    balancer.until("it to be gone", |status| {
        let mut events = status.iter().filter(|l| l["what"] == "removed");
        events.any(|l| l["detail"] == "gone, with 2 connections left")
    });
    let status = balancer.status();
    let totals = status.last().expect("totals");
    assert_eq!(totals["no_backend"], 0, "{status:#?}");
}

#[test]
fn a_backend_that_is_taken_out_is_shown_until_it_is_gone_and_has_its_weight_when_it_is_taken_back()
{
    let site = Site::build("bak");
    let mut balancer = Balancer::running(&site.segment.balancer, "bak", &[1, 2]);
    // a service that has begun: who comes to it starts low
    balancer.end(Signal::SIGKILL);
    balancer.start(2);
    let mut kept = site.connect_to_server("s1");
    balancer.reload(&balancer.text(&[2]));
    balancer.until_backend("s1", "counted", |s1| s1["connections"].as_u64() > Some(0));
    let draining = json!({"state": "draining", "why": "drained", "share": 0.0});
    let line = balancer.expect("s1", draining);
    assert!(line["leaves_ns"].as_u64() > Some(0), "{line}");
    let table = balancer.must(&["status", "--format", "text"]);
    assert!(table.contains("web/s1: taken out of the conf"), "{table}");
    assert!(balancer.backend("s2")["leaves_ns"].is_null());

    balancer.reload(&balancer.text(&[1, 2]));
    let serving = json!({"state": "serving", "weight": 100_000});
    let line = balancer.expect("s1", serving);
    assert!(
        line["leaves_ns"].is_null() && line["connections"].as_u64() > Some(0),
        "{line}"
    );
    assert_eq!(kept.ask(), "s1");
}

#[test]
fn a_reload_may_change_the_policy_and_weights_under_open_connections() {
    let site = Site::build("pol");
    let mut balancer = Balancer::new(&site.segment.balancer, "pol");
    let text = balancer.text(&[1, 2]);
    let with = |policy: &str| format!("policy = \"{policy}\"\n{text}");
    balancer.write(&with("static"));
    balancer.start(2);
    let mut kept: Vec<_> = (0..4).map(|_| site.connect()).collect();
    let before: Vec<String> = kept.iter_mut().map(|c| c.ask()).collect();
    for (generation, policy) in [(2, "latency"), (3, "static")] {
        balancer.reload(&(with(policy) + &format!("weight = {generation}00\n")));
        let agent = balancer.status().swap_remove(0);
        assert_eq!(agent["policy"], policy);
        assert_eq!(agent["generation"], generation);
        assert_eq!(agent["taken_over"], false);
        let after: Vec<String> = kept.iter_mut().map(|c| c.ask()).collect();
        assert_eq!(after, before);
        assert_eq!(site.answers(8).len(), 8);
    }
    balancer.expect("s1", json!({"weight": 100_000}));
    let s2 = balancer.expect("s2", json!({"weight": 300_000}));
    assert!(
        (s2["share"].as_f64().expect("a share") - 0.75).abs() < 1e-3,
        "{s2}"
    );
}

#[test]
fn a_way_out_that_does_not_transmit_for_others_is_refused_before_packets_vanish_there() {
    let site = Site::build("xmt");
    let host = &site.segment.balancer;
    let namespace = host.namespace().name();
    for line in [
        "link add bw-x type veth peer name bw-y",
        "addr add 10.80.0.1/24 dev bw-x",
        "link set bw-x up",
        "link set bw-y up",
    ] {
        let words = line.split(' ');
        ip(&["-n", namespace]
            .into_iter()
            .chain(words)
            .collect::<Vec<_>>())
        .expect("a link");
    }
    let balancer = Balancer::new(host, "xmt");
    let far = "10.80.0.2".parse().expect("an address");
    balancer.write(&(balancer.text(&[]) + &backend("far", far)));
    let refused = balancer.refused();
    assert_refused(&refused, 1, &["leave by bw-x", "10.80.0.2", "gro on"]);
    let transmits = || {
        let features = host.inside(|| Ok(batchwise_bpf::xdp::features(if_nametoindex("bw-x")?)));
        let features = features.expect("a thread").expect("the kernel tells");
        (features.transmits, features.transmits_parts)
    };
    assert_eq!(transmits(), (false, false));
    host.namespace()
        .set_offloads("bw-y", &["gro"], true)
        .expect("ethtool");
    assert_eq!(transmits(), (true, true));
}
