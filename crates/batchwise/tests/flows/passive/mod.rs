//! `batchwise passive` as its users meet it: the built command on captures with known latencies, and
//! on a link between two network namespaces. What is live needs root. One binary, so that the tests
//! can take turns: each has the machine's few CPUs to itself.

mod run;
mod service;
mod synthetic;

mod captures;
mod endings;
mod live;
