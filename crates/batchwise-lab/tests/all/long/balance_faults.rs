//! What `batchwise balance` does to connections when weights change, servers and balancers die and
//! configurations are wrong: the scenarios of `lab run balance-faults`, once each. Needs root; tests
//! take turns.

use batchwise_lab::balance::faults::{Outcome, Scenario, run};
use batchwise_testbed::commands;
use batchwise_testbed::stage::turn;
use batchwise_testbed::stop::Stop;

/// Runs it; nothing may have gone wrong.
fn passes(scenario: Scenario) -> Outcome {
    let _turn = turn();
    let tag = format!("bf{}", std::process::id());
    let outcome = run(
        scenario,
        &tag,
        &commands::required("batchwise"),
        &Stop::default(),
    );
    let outcome = outcome.unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!(outcome.wrong, [""; 0], "{outcome:#?}");
    assert_eq!((outcome.broken, outcome.refused), (0, 0), "{outcome:#?}");
    // else it says little
    assert!(outcome.connections > 50, "{outcome:#?}");
    outcome
}

#[test]
fn no_connection_breaks_while_weights_change_every_100_ms() {
    let outcome = passes(Scenario::WeightsChange);
    assert!(outcome.times >= 20, "{outcome:#?}");
}

#[test]
fn no_connection_breaks_while_weights_follow_latency_and_their_configuration_changes() {
    passes(Scenario::WeightsByLatency);
}

#[test]
fn no_connection_breaks_while_the_service_is_flooded_and_weights_change() {
    passes(Scenario::WeightsFlooded);
}

#[test]
fn a_killed_backend_takes_only_its_own_connections_with_it() {
    passes(Scenario::BackendKilled);
}

#[test]
fn a_host_that_vanishes_takes_only_its_own_connections_with_it_and_is_served_when_it_is_back() {
    passes(Scenario::HostVanished);
}

#[test]
fn a_drained_backend_keeps_its_connections_and_gets_no_new_ones() {
    passes(Scenario::BackendDrained);
}

#[test]
fn a_removed_backend_ends_what_it_sends_on_connections_that_clients_have_half_closed() {
    passes(Scenario::BackendRemoved);
}

#[test]
fn a_removed_backend_keeps_connections_that_are_silent_for_more_than_a_minute() {
    passes(Scenario::BackendRemovedIdle);
}

#[test]
fn no_connection_breaks_when_the_configuration_changes_while_the_balancer_is_dead() {
    let outcome = passes(Scenario::BalancerKilledAndChanged);
    assert_eq!(outcome.times, 2, "{outcome:#?}");
}

#[test]
fn no_connection_breaks_when_the_balancer_is_killed_and_started_again() {
    passes(Scenario::BalancerKilled);
}

#[test]
fn no_connection_breaks_when_another_program_takes_the_place_of_the_first() {
    passes(Scenario::PolicyChanged);
}

#[test]
fn a_wrong_configuration_changes_nothing() {
    passes(Scenario::ConfigurationSpoiled);
}
