//! A sensor that packets are handed to.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use batchwise_bpf::passive::{Attach, Config, Counters, PassiveSensor};
use batchwise_core::passive::{Epoch, Params};

use crate::frames::{self, CLIENT_PORT, Segment, tcp_frame};
use crate::kernel::{self, XDP_PASS, need_root};

pub fn config() -> Config {
    Config {
        interface: String::new(),
        attach: Attach::Called,
        ports: Vec::new(),
        flows: 1024,
        params: Params::default(),
        udp_acks: 0,
        forget: Duration::from_secs(60),
        then: None,
    }
}

pub fn sensor(config: Config) -> PassiveSensor {
    need_root();
    PassiveSensor::attach(config).unwrap_or_else(|e| panic!("{e}"))
}

/// The packet goes its way as it came.
pub fn pass(program: BorrowedFd<'_>, frame: &[u8]) {
    let (verdict, out) = kernel::run(program, frame);
    assert_eq!(verdict, XDP_PASS);
    assert_eq!(out, frame, "a packet was changed");
}

pub fn segment(sensor: &PassiveSensor, segment: Segment) {
    pass(sensor.program(), &tcp_frame(segment));
}

/// Gaps that were not before a retransmission.
pub fn gaps(epoch: &Epoch) -> u32 {
    epoch.estimate.gaps - u32::from(epoch.gaps.resent)
}

pub fn counters(sensor: &PassiveSensor) -> Counters {
    sensor.counters().unwrap()
}

/// As [`frames::bursts`].
pub fn bursts(sensor: &PassiveSensor, count: u32) -> Option<Duration> {
    frames::bursts(count, CLIENT_PORT, |s| segment(sensor, s))
}

/// A sensor that saw bursts and nothing else, and how far apart they were.
pub fn undisturbed(config: &Config, count: u32) -> (PassiveSensor, Duration) {
    frames::undisturbed(|| {
        let sensor = sensor(config.clone());
        let apart = bursts(&sensor, count)?;
        Some((sensor, apart))
    })
}
