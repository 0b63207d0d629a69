//! A sensor that packets are handed to.

use std::os::fd::BorrowedFd;
use std::thread::sleep;
use std::time::Duration;

use batchwise_bpf::passive::{Attach, Config, Counters, PassiveSensor};
use batchwise_core::passive::{Epoch, Params};

use crate::frames::{Segment, tcp_frame};
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

/// `bursts` of three segments each, 2 ms apart, each answered before the next.
pub fn bursts(sensor: &PassiveSensor, bursts: u32) {
    for i in 0..bursts {
        for j in 0..3 {
            segment(
                sensor,
                Segment {
                    seq: 1 + (i * 3 + j) * 100,
                    ack: 1 + i * 1000,
                    ..Segment::default()
                },
            );
        }
        sleep(Duration::from_millis(2));
    }
}
