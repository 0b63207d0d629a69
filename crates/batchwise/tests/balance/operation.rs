//! Start, status, drain, reload, remove.

use nix::sys::signal::Signal;

use crate::balancer::Balancer;
use crate::refusal::assert_refused;
use crate::site::Site;

#[test]
fn connections_reach_backends_which_answer_themselves_and_status_shows_them() {
    let site = Site::build("fwd");
    let mut balancer = Balancer::new(&site.segment.balancer, "fwd");
    balancer.write(&balancer.text(&[1, 2]));
    balancer.start(2);
    let answers = site.answers(40);
    assert!(
        answers.iter().any(|a| a == "s1") && answers.iter().any(|a| a == "s2"),
        "{answers:?}"
    );
    balancer.until("packets to be counted", |status| {
        let totals = status.iter().find(|l| l["kind"] == "totals");
        totals.is_some_and(|l| l["forwarded"].as_u64() > Some(100))
    });
    let shares = balancer
        .status()
        .iter()
        .filter_map(|l| l["share"].as_f64())
        .sum::<f64>();
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
    let mut balancer = Balancer::new(&site.segment.balancer, "drn");
    balancer.write(&balancer.text(&[1, 2]));
    balancer.start(2);
    let mut kept = std::iter::repeat_with(|| site.connect())
        .find_map(|mut c| (c.ask() == "s1").then_some(c))
        .expect("one to s1");
    let said = balancer.must(&["drain", "s1"]);
    assert!(said.contains("web/s1 gets no new connections"), "{said}");
    assert_eq!(site.answers(20), ["s2"; 20]);
    assert_eq!(kept.ask(), "s1");
    let unknown = balancer.tell(&["drain", "s9"]);
    assert_refused(&unknown, 1, &["no backend \"s9\"", "web: s1, s2"]);
    balancer.must(&["drain", "s1", "--undo"]);
    balancer.until("s1 to have slots again", |status| {
        let s1 = status
            .iter()
            .find(|l| l["backend"] == "s1" && l["kind"] == "backend");
        s1.is_some_and(|l| l["share"].as_f64() > Some(0.0))
    });
}

#[test]
fn a_wrong_configuration_is_refused_everywhere_and_the_old_one_stays() {
    let site = Site::build("bad");
    let mut balancer = Balancer::new(&site.segment.balancer, "bad");
    balancer.write(&balancer.text(&[1]));
    balancer.start(1);
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
fn a_backend_that_is_taken_out_keeps_its_connections_until_they_end() {
    let site = Site::build("out");
    let mut balancer = Balancer::new(&site.segment.balancer, "out");
    balancer.write(&balancer.text(&[1]));
    balancer.start(1);
    let mut kept = site.connect();
    assert_eq!(kept.ask(), "s1");
    balancer.write(&balancer.text(&[2]));
    balancer.must(&["reload"]);
    assert_eq!(site.answers(5), ["s2"; 5]);
    assert_eq!(kept.ask(), "s1");
    drop(kept);
    balancer.until("it to be gone", |status| {
        let mut events = status.iter().filter(|l| l["what"] == "removed");
        events.any(|l| {
            l["detail"]
                .as_str()
                .is_some_and(|d| d.starts_with("gone, with 0"))
        })
    });
}
