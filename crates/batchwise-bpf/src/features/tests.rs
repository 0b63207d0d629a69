//! Tests of the table.

use super::*;

#[test]
fn names_are_unique_and_everything_but_information_has_a_user() {
    for (i, feature) in FEATURES.iter().enumerate() {
        let others = &FEATURES[i + 1..];
        assert!(others.iter().all(|f| f.name != feature.name), "{feature:?}");
        let information = matches!(feature.probe, Probe::Setting { .. });
        assert_eq!(feature.users.is_empty(), information, "{feature:?}");
    }
}

#[test]
fn the_smallest_kernel_is_that_of_the_youngest_essential_feature_or_its_stand_in() {
    assert_eq!(Subcommand::Watch.smallest_kernel(), (5, 15));
    assert_eq!(Subcommand::Tune.smallest_kernel(), (6, 1));
    assert_eq!(Subcommand::Passive.smallest_kernel(), (5, 15));
    assert_eq!(Subcommand::Balance.smallest_kernel(), (5, 15));
    assert_eq!(Subcommand::Decap.smallest_kernel(), (5, 15));
}

#[test]
fn a_loader_is_refused_with_the_feature_and_the_kernel_that_has_it() {
    let mut machine = Machine::look();
    let some = ["tcp_probe", "tcp_rcv_space_adjust"].map(|name| ("tracepoint", name));
    machine.btf = Ok(some.into());
    let refused = require(&machine, Subcommand::Watch).expect_err("something is missing");
    let text = refused.to_string();
    let said = match refused {
        Error::MissingFeature {
            subcommand,
            feature,
            since,
            ..
        } => (subcommand, feature, since),
        other => panic!("{other}"),
    };
    let wanted = (Subcommand::Watch, "inet_sock_set_state", Some((5, 5)));
    assert_eq!(said, wanted);
    assert!(text.contains("no tracepoint inet_sock_set_state"), "{text}");
    assert!(text.contains("use Linux 5.5 or newer"), "{text}");
    let text = require(&machine, Subcommand::Tune).unwrap_err().to_string();
    let lacks = "no tracepoint inet_sock_set_state";
    assert!(text.contains(lacks), "{text}");
    require(&machine, Subcommand::Decap).expect("it needs nothing of BTF");
    machine.btf = Err("gone".to_owned());
    assert!(matches!(
        require(&machine, Subcommand::Watch),
        Err(Error::NoBtf)
    ));
    require(&machine, Subcommand::Balance).expect("what is not known is tried");
}
