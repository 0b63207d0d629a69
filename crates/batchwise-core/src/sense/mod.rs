//! The paper's §3: [`wire`] is the exchange's format, [`queue`] keeps queue states, [`sample`] subtracts
//! two readings of a connection, [`estimate`] combines the differences into end-to-end latency,
//! [`service`] does so for all connections of a service, and [`report`] has the line that is
//! printed. [`hint`] reads the queue state that an application keeps of itself.

pub mod estimate;
pub mod hint;
pub mod queue;
pub mod report;
pub mod sample;
pub mod service;
pub mod wire;
