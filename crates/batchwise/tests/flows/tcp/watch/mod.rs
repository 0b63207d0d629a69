//! `batchwise watch` as its users meet it: the built command on real servers in network namespaces,
//! judged by the lines it prints. Needs root. Tests take turns: each has
//! the machine's few CPUs to itself.

mod agreement;
mod echo;
mod nft;
mod others;

mod advice;
mod all;
mod alone;
mod exchange;
mod faults;
mod kill;
mod memcached;
mod packets;
mod record;
mod turns;
mod unseen;
pub mod whose;

mod long {
    mod pause;
    mod scale;
}
