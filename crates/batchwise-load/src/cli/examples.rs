//! Examples that the help of the subcommands ends with.

pub const ALL: &str = "\
Examples:
  batchwise load redis --addr 127.0.0.1:6379 --rate 5000 --duration 5s --value-size 16384
      SET of 16 KiB values, Poisson arrivals
  batchwise load redis --addr 127.0.0.1:6379 --rate 5000 --duration 5s --value-size 64 \\
      --nodelay off --format json
      the same with Nagle's algorithm at the client, for programs

Workloads that only experiments need, such as `quic`, are there where `make lab` has built this.";

pub const REDIS: &str = "\
Examples:
  Poisson arrivals, 100,000 SETs of 64 bytes a second, for 5 s:
    batchwise load redis --addr 10.0.0.1:6379 --rate 100k
  Load and value size that change under way, on the same connection, with an interim report
  every 100 ms; the report at the end has an entry for each phase:
    batchwise load redis --addr 10.0.0.1:6379 --progress 100ms --format json \\
      --schedule 5s:350k@64,5s:120k@4096,10s:100k..300k@64

Latencies run from when a request was due (`latency_ns`), so that waiting in the client counts,
and from its send (`latency_from_send_ns`).";

#[cfg(feature = "experiments")]
pub const MULTIPLEXED: &str = "\
Examples:
  64 tasks on one connection, each as soon as it has its answer:
    batchwise load multiplexed --addr 10.0.0.1:6379
  10,000 connections that are idle most of the time:
    batchwise load multiplexed --addr 10.0.0.1:6379 --connections 10000 --tasks 10000 --every 10s";

pub const WEB: &str = "\
Examples:
  A folder for nginx to serve (its keepalive_requests must be higher than what a connection will
  ask for):
    batchwise load web-site --out /srv/www
  Ten persons, each looking at a page for about a second:
    batchwise load web --addr 10.0.0.1:80 --connections 10 --duration 30s --log truth.csv
  2000 requests a second, page by page, as far as the server keeps up:
    batchwise load web --addr 10.0.0.1:80 --connections 10 --rate 2000 --format json";

pub const MEMCACHED: &str = "\
Examples:
  Ten connections, as many gets as sets, values of 40 to 10000 bytes:
    batchwise load memcached --addr 10.0.0.1:11211 --connections 10 --duration 30s --log truth.csv
  Eight requests in flight on each:
    batchwise load memcached --addr 10.0.0.1:11211 --connections 10 --in-flight 8";

#[cfg(feature = "experiments")]
pub const QUIC: &str = "\
Examples:
  batchwise load quic-server --listen 10.0.0.1:4433 --work exp:200us
  Responses that fit into a packet, and responses that do not:
    batchwise load quic --addr 10.0.0.1:4433 --response-size 30..130 --log truth.csv
    batchwise load quic --addr 10.0.0.1:4433 --response-size 1600..15100 --log truth.csv";
