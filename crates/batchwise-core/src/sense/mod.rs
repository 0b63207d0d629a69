//! Latency from the queues of both ends (the paper's §3), in the order of the data's way:
//!
//! [`wire`] is the exchange's format, [`queue`] keeps queue states, [`sample`] subtracts two readings
//! of a connection. A [`connection`] is what a reading holds, [`tracker`] follows connections from
//! reading to reading. [`estimate`] combines differences into end-to-end latency, [`confidence`]
//! says how far to trust it, [`spread`] how far it may be off by chance, [`service`] does so for all
//! connections of a service. [`hint`] reads the queue state that an application keeps of itself. [`process`]
//! names whose sockets they are. [`advice`] says what is wrong. [`report`] has the line that is printed, [`tails`] the percentiles of single requests.

pub mod advice;
pub mod confidence;
pub mod connection;
pub mod estimate;
pub mod governor;
pub mod hint;
pub mod process;
pub mod queue;
pub mod report;
pub mod sample;
pub mod service;
pub mod spread;
pub mod tails;
pub mod tracker;
pub mod turns;
pub mod wire;
