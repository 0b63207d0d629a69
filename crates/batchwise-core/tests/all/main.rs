//! The mathematics, a module a system. One binary, since each costs a link.

mod balance_controller;
mod burst;
mod maglev;
mod passive;
mod profile;
mod requests;
mod schema;
mod tracker;
mod tune;
mod window;
