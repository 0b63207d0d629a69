//! `batchwise watch` as its users meet it: the built command on real servers in network namespaces,
//! judged by the lines it prints. Needs root. One binary, so that the tests can take turns: each has
//! the machine's few CPUs to itself.

#[path = "../stage/closeness.rs"]
mod closeness;
#[path = "../stage/generator.rs"]
mod generator;
#[path = "../stage/programs.rs"]
mod programs;
#[path = "../stage/refusal.rs"]
mod refusal;
#[path = "../stage/request.rs"]
mod request;
#[path = "../stage/scrape.rs"]
mod scrape;
#[path = "../stage/stage.rs"]
mod stage;

mod agreement;
mod capture;
mod echo;
mod nft;
mod watch;

mod alone;
mod exchange;
mod faults;
mod kill;
mod memcached;
mod packets;
mod pause;
mod scale;
mod usage;
