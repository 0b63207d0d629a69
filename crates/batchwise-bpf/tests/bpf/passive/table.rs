//! The table of flows, when it is full and when it is not.

use batchwise_bpf::passive::Config;

use super::setup::{config, counters, gaps, pass, sensor};
use crate::frames::{ACK, FIN, Segment, TCP, ethernet, v4_from, with};
use crate::kernel::patient;

/// A flow's packet; there are 2^32 of them.
fn flow(number: u32, seq: u32) -> Vec<u8> {
    let [a, b, c, d] = number.to_be_bytes();
    let segment = Segment {
        sport: u16::from_be_bytes([c, d]),
        seq,
        ..Segment::default()
    };
    ethernet(&[], &v4_from([10, 1, a, b], TCP, 0, 0, &segment.bytes()))
}

#[test]
fn as_many_flows_as_asked_for_live_without_pushing_each_other_out() {
    let mut sensor = sensor(Config {
        flows: 65_536,
        ..config()
    });
    for seq in [1, 101] {
        for number in 0..65_536 {
            pass(sensor.program(), &flow(number, seq));
        }
        sensor.poll().unwrap();
    }
    sensor.sweep().unwrap();
    let c = counters(&sensor);
    assert_eq!((c.evicted, c.contended, c.lost_events), (0, 0, 0));
    assert_eq!((c.measured, c.born), (131_072, 65_536));
    assert_eq!(sensor.flows_live(), 65_536);
}

#[test]
fn a_scan_pushes_out_itself_and_not_a_flow_that_lives() {
    let mut sensor = sensor(Config {
        params: patient(),
        ..config()
    });
    for round in 0..20 {
        pass(sensor.program(), &flow(u32::MAX, 1 + round * 100));
        for number in 0..1_000 {
            pass(sensor.program(), &flow(round * 1_000 + number, 1));
        }
    }
    let c = counters(&sensor);
    assert!(c.evicted > 10_000, "{c:?}");
    let end = with(flow(u32::MAX, 2_001), 14 + 20 + 13, ACK | FIN);
    pass(sensor.program(), &end);
    let epochs = sensor.poll().unwrap();
    assert_eq!(epochs.len(), 1);
    assert_eq!(gaps(&epochs[0]), 20);
}
