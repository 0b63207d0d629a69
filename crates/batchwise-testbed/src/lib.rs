//! Where tests and experiments play: hosts made of network namespaces, links between them, CPUs and
//! shares of CPUs, real servers, and the project's own commands as a user starts them. It knows no
//! experiment. What it creates is named `bw-*` and goes when it is dropped.

pub mod bpf_stats;
pub mod cgroup;
pub mod commands;
pub mod cpu_share;
pub mod host;
mod left_out;
pub mod lines;
pub mod live_views;
pub mod load;
pub mod memcached;
pub mod metrics;
pub mod nginx;
pub mod pass;
pub mod preload;
pub mod process;
pub mod redis;
pub mod segment;
pub mod server;
pub mod sockets;
pub mod speed;
pub mod stage;
pub mod stop;
pub mod terminal;
pub mod topology;
pub mod triangle;
pub mod watcher;
pub mod window;
pub mod wire;

pub use left_out::left_out;
