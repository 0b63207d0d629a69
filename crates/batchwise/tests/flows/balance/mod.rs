//! `batchwise balance` as its operators meet it: clients, a balancer and servers in namespaces of
//! their own. Needs root. One binary, so that the tests can take turns.

mod balancer;
mod site;

mod checks;
mod health;
mod interfaces;
mod neighbours;
mod operation;
mod protocols;
mod takeover;
mod usage;
