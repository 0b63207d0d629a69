//! What outlives the process, what the next one takes over, and taking it all away.

use std::thread::sleep;
use std::time::Duration;

use batchwise_bpf::Error;
use batchwise_bpf::balance::{Balancer, Change, Options};

use super::setup::{Lb, Pinned, VIP_MAC, options, tcp, veth};
use crate::frames::{ACK, SYN};
use crate::kernel::{self, in_own_network};

fn pinned(name: &Pinned, interfaces: &[&str]) -> Options {
    Options {
        interfaces: interfaces.iter().map(|i| (*i).into()).collect(),
        attach: true,
        pin: true,
        ..options(&name.0)
    }
}

/// What has changed at interfaces, and how.
fn changes(balancer: &mut Balancer) -> Vec<String> {
    let changes = balancer.follow_interfaces().unwrap().into_iter();
    let shown = changes.map(|(interface, change)| format!("{interface}: {change:?}"));
    shown.collect()
}

/// The id of the XDP program on an interface.
fn attached(interface: &str) -> Option<u64> {
    let shown = std::process::Command::new("ip")
        .args(["-d", "link", "show", "dev", interface])
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let id = shown.split("prog/xdp id ").nth(1)?;
    id.split_whitespace().next()?.parse().ok()
}

/// Whether no XDP program is on an interface any more. What a process has that another test starts
/// just now are our descriptors, too, until it runs its own program.
fn is_let_go(interface: &str) -> bool {
    (0..3000).any(|_| {
        sleep(Duration::from_millis(10));
        attached(interface).is_none()
    })
}

#[test]
fn the_next_start_takes_over_connections_and_replaces_the_program_in_its_place() {
    let name = Pinned::new("b-test-takeover");
    in_own_network(|| {
        veth("bw-b0", VIP_MAC);
        let lb = Lb::with(pinned(&name, &["bw-b0"]));
        assert!(!lb.0.taken_over());
        lb.have(&[5, 6]);
        lb.all_to(5);
        lb.segment(tcp(1, SYN, 0));
        lb.segment(tcp(1, ACK, 0));
        lb.all_to(6);
        let before = (lb.0.services().unwrap().len(), lb.outcomes());
        let first = attached("bw-b0").unwrap();
        drop(lb); // as if killed
        assert_eq!(attached("bw-b0"), Some(first), "it goes on forwarding");
        assert!(Balancer::pinned(&name.0));

        let lb = Lb(Balancer::start(pinned(&name, &["bw-b0"])).unwrap());
        assert!(lb.0.taken_over());
        assert_ne!(attached("bw-b0").unwrap(), first);
        assert_eq!((lb.0.services().unwrap().len(), lb.outcomes()), before);
        assert_eq!(lb.0.backends().unwrap().len(), 2);
        assert!(lb.0.ring(1).unwrap().iter().all(|b| *b == 6));
        assert_eq!(lb.segment(tcp(1, ACK, 100)), 5);
        assert_eq!(lb.segment(tcp(2, SYN, 0)), 6);

        Balancer::remove(&name.0).unwrap();
        assert_eq!(attached("bw-b0"), None, "even while it runs");
        assert!(!name.folder().exists());
        assert!(!Balancer::pinned(&name.0));
        Balancer::remove(&name.0).unwrap();
    });
}

#[test]
fn interfaces_can_be_others_after_a_take_over() {
    let name = Pinned::new("b-test-links");
    in_own_network(|| {
        veth("bw-b0", VIP_MAC);
        veth("bw-b2", VIP_MAC);
        drop(Balancer::start(pinned(&name, &["bw-b0", "bw-b2"])).unwrap());
        assert!(attached("bw-b0").is_some() && attached("bw-b2").is_some());
        drop(Balancer::start(pinned(&name, &["bw-b2", "bw-b0p"])).unwrap());
        assert!(attached("bw-b0").is_none());
        assert!(attached("bw-b2").is_some() && attached("bw-b0p").is_some());
        kernel::ip("link del bw-b2");
        veth("bw-b2", VIP_MAC);
        drop(Balancer::start(pinned(&name, &["bw-b2"])).unwrap());
        assert!(
            attached("bw-b2").is_some(),
            "an interface that was made anew"
        );
    });
}

#[test]
fn an_interface_that_is_made_anew_gets_the_program_and_its_new_mac_address_while_it_runs() {
    let name = Pinned::new("b-test-anew");
    in_own_network(|| {
        veth("bw-b0", VIP_MAC);
        veth("bw-b2", VIP_MAC);
        let mut balancer = Balancer::start(pinned(&name, &["bw-b0", "bw-b2"])).unwrap();
        assert!(changes(&mut balancer).is_empty());
        for _ in 0..2 {
            kernel::ip("link del bw-b2");
            assert_eq!(changes(&mut balancer), ["bw-b2: Gone"]);
            assert!(changes(&mut balancer).is_empty());
            assert_eq!(balancer.detached(), ["bw-b2"]);
            veth("bw-b2", VIP_MAC);
            assert_eq!(changes(&mut balancer), ["bw-b2: Attached"]);
            assert!(balancer.detached().is_empty());
            assert!(attached("bw-b2").is_some() && name.folder().join("link-bw-b2").exists());
        }
    });
}

#[test]
fn an_interface_with_a_dot_in_its_name_is_taken_over_and_given_up_as_others_are() {
    let name = Pinned::new("b-test-dot");
    let dotted = "bw-b.2.7";
    in_own_network(|| {
        veth("bw-b0", VIP_MAC);
        veth(dotted, VIP_MAC);
        let both = || Balancer::start(pinned(&name, &["bw-b0", dotted]));
        drop(both().unwrap_or_else(|e| panic!("{e}")));
        let first = attached(dotted);
        assert!(first.is_some(), "it outlives us");
        drop(both().unwrap());
        assert!(attached(dotted).is_some());
        drop(Balancer::start(pinned(&name, &["bw-b0"])).unwrap());
        assert_eq!(attached(dotted), None);
        assert!(attached("bw-b0").is_some());
    });
}

#[test]
fn an_interface_that_is_gone_keeps_no_next_start_from_the_others_and_gets_the_program_when_it_returns()
 {
    let name = Pinned::new("b-test-away");
    in_own_network(|| {
        veth("bw-b0", VIP_MAC);
        let both = || pinned(&name, &["bw-b0", "bw-b2"]);
        let error = Balancer::start(both()).err().unwrap();
        assert!(matches!(error, Error::NoInterface { .. }), "{error}");
        veth("bw-b2", VIP_MAC);
        drop(Balancer::start(both()).unwrap());
        kernel::ip("link del bw-b2");
        // that it was attached to is known for more than one start
        for _ in 0..2 {
            let first = attached("bw-b0");
            let balancer = Balancer::start(both()).unwrap();
            assert_eq!(balancer.detached(), ["bw-b2"]);
            assert_ne!(attached("bw-b0"), first, "by the new program");
        }
        let mut balancer = Balancer::start(both()).unwrap();
        assert!(changes(&mut balancer).is_empty());
        veth("bw-b2", VIP_MAC);
        assert_eq!(changes(&mut balancer), ["bw-b2: Attached"]);
        assert!(attached("bw-b2").is_some() && balancer.detached().is_empty());
        // one that was never there is a mistake
        let error = Balancer::start(pinned(&name, &["bw-b0", "bw-b4"])).err();
        assert!(matches!(error, Some(Error::NoInterface { .. })));
        assert!(attached("bw-b2").is_some(), "nothing has changed");
    });
}

#[test]
fn an_interface_that_refuses_the_program_after_its_return_is_still_waited_for() {
    let name = Pinned::new("b-test-refuse");
    in_own_network(|| {
        veth("bw-b0", VIP_MAC);
        let mut balancer = Balancer::start(pinned(&name, &["bw-b0"])).unwrap();
        kernel::ip("link del bw-b0");
        assert_eq!(changes(&mut balancer), ["bw-b0: Gone"]);
        // no native XDP
        kernel::ip("link add bw-b0 type bridge");
        let changes = balancer.follow_interfaces().unwrap();
        assert!(
            matches!(&changes[..], [(_, Change::Refused(_))]),
            "{changes:?}"
        );
        kernel::ip("link del bw-b0");
        let balancer = Balancer::start(pinned(&name, &["bw-b0"])).unwrap();
        assert_eq!(balancer.detached(), ["bw-b0"]);
    });
}

#[test]
fn one_of_another_network_is_refused_while_that_forwards_and_taken_over_when_it_is_gone() {
    let name = Pinned::new("b-test-netns");
    // both have the same name and the same index
    let make = || veth("bw-b0", VIP_MAC);
    in_own_network(|| {
        make();
        drop(Balancer::start(pinned(&name, &["bw-b0"])).unwrap());
        let first = attached("bw-b0");
        assert!(first.is_some());
        in_own_network(|| {
            make();
            let error = Balancer::start(pinned(&name, &["bw-b0"])).err().unwrap();
            let e = error.to_string();
            assert!(
                e.contains("another network namespace (net:[") && e.contains("remove --name"),
                "{e}"
            );
            assert_eq!(attached("bw-b0"), None);
        });
        assert_eq!(attached("bw-b0"), first, "it goes on as it was");
        // again in its own
        drop(Balancer::start(pinned(&name, &["bw-b0"])).unwrap());
        kernel::ip("link del bw-b0");
        in_own_network(|| {
            make();
            let balancer = Balancer::start(pinned(&name, &["bw-b0"])).unwrap();
            assert!(balancer.taken_over());
            assert!(attached("bw-b0").is_some());
        });
    });
}

#[test]
fn what_does_not_fit_is_said_with_its_remedy_and_leaves_nothing() {
    let name = Pinned::new("b-test-errors");
    let error = |options: Options| Balancer::start(options).err().unwrap().to_string();
    in_own_network(|| {
        veth("bw-b0", VIP_MAC);
        let e = error(pinned(&name, &["bw-none"]));
        assert!(e.contains("bw-none") && e.contains("bw-b0"), "{e}");
        let e = error(pinned(&name, &["lo"]));
        assert!(e.contains("native XDP"), "{e}");
        assert!(!name.folder().exists());
        let mut unnamed = pinned(&name, &["bw-b0"]);
        unnamed.name = "No/Name".into();
        let e = error(unnamed);
        assert!(e.contains("dashes"), "{e}");

        let lb = Balancer::start(pinned(&name, &["bw-b0"])).unwrap();
        let mut more = pinned(&name, &["bw-b0"]);
        more.flows *= 2;
        let e = error(more);
        assert!(e.contains("flows = 8192") && e.contains("remove"), "{e}");
        let mut many = pinned(&name, &["bw-b0"; 65]);
        many.attach = false;
        let e = error(many);
        assert!(e.contains("64 interfaces"), "{e}");
        let other = Pinned::new("b-test-errors-2");
        let e = Balancer::start(pinned(&other, &["bw-b0"])).err().unwrap();
        assert!(matches!(e, Error::XdpTaken { .. }), "{e}");
        drop(lb);
    });
}

#[test]
fn what_is_not_pinned_ends_with_the_balancer() {
    let name = Pinned::new("b-test-unpinned");
    in_own_network(|| {
        veth("bw-b0", VIP_MAC);
        let mut options = pinned(&name, &["bw-b0"]);
        options.pin = false;
        let lb = Balancer::start(options).unwrap();
        assert!(attached("bw-b0").is_some());
        drop(lb);
        assert!(is_let_go("bw-b0"));
        assert!(!name.folder().exists());
    });
}
