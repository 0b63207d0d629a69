//! The table of flows, when it is full and when it is not.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use batchwise_bpf::passive::{Config, PassiveSensor};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::setup::{config, counters, gaps, pass, sensor};
use crate::frames::{ACK, FIN, SYN, Segment, TCP, ethernet, tcp, v4_from, with};
use crate::kernel::{self, patient};

/// A flow's packet; there are 2^32 of them.
fn flow(number: u32, seq: u32) -> Vec<u8> {
    segment(
        number,
        Segment {
            seq,
            ..Segment::default()
        },
    )
}

/// The same, whatever it is.
fn segment(number: u32, segment: Segment) -> Vec<u8> {
    let [a, b, c, d] = number.to_be_bytes();
    let segment = Segment {
        sport: u16::from_be_bytes([c, d]),
        ..segment
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

const WAYS: usize = 16;
const TAG: usize = 4;

/// The buckets of a sensor's table, as they are in the kernel: tags, then slots.
struct Buckets(MapHandle);

impl Buckets {
    fn of(sensor: &PassiveSensor) -> Self {
        Self(kernel::map(sensor.program(), "flows"))
    }

    fn read(&self, index: u32) -> Bucket {
        let bytes = self.0.lookup(&index.to_ne_bytes(), MapFlags::ANY);
        Bucket(bytes.unwrap().unwrap())
    }

    fn write(&self, index: u32, bucket: &Bucket) {
        let key = index.to_ne_bytes();
        self.0.update(&key, &bucket.0, MapFlags::ANY).unwrap();
    }

    fn all(&self) -> impl Iterator<Item = Bucket> {
        (0..self.0.max_entries()).map(|index| self.read(index))
    }
}

struct Bucket(Vec<u8>);

impl Bucket {
    fn tag(&self, way: usize) -> u32 {
        let tag = &self.0[way * TAG..][..TAG];
        u32::from_ne_bytes(tag.try_into().unwrap())
    }

    fn slot(&self, way: usize) -> &[u8] {
        let slots = &self.0[WAYS * TAG..];
        let len = slots.len() / WAYS;
        &slots[way * len..][..len]
    }

    fn set(&mut self, way: usize, tag: u32, slot: &[u8]) {
        self.0[way * TAG..][..TAG].copy_from_slice(&tag.to_ne_bytes());
        self.0[WAYS * TAG + way * slot.len()..][..slot.len()].copy_from_slice(slot);
    }
}

#[test]
fn a_flow_that_two_cpus_inserted_at_once_has_the_first_of_the_two_slots() {
    for two in [[13, 14], [0, 15], [1, 2], [5, 10], [14, 15]] {
        let sensor = sensor(Config {
            flows: 1,
            params: patient(),
            ..config()
        });
        let buckets = Buckets::of(&sensor);
        pass(sensor.program(), &flow(1, 1));
        let inserted = (0..).zip(buckets.all()).find(|(_, b)| b.tag(15) != 0);
        let (index, mut bucket) = inserted.unwrap();
        let (tag, slot) = (bucket.tag(15), bucket.slot(15).to_vec());
        let mut other = slot.clone();
        let rest = other.len() - TAG..;
        other[rest].iter_mut().for_each(|byte| *byte ^= 0x55);
        for way in 0..WAYS {
            match two.contains(&way) {
                true => bucket.set(way, tag, &slot),
                false => bucket.set(way, tag ^ (way as u32 + 1), &other),
            }
        }
        buckets.write(index, &bucket);

        for seq in [101, 201, 301] {
            pass(sensor.program(), &flow(1, seq));
        }
        let after = buckets.read(index);
        let changed = |way: &usize| {
            after.tag(*way) != bucket.tag(*way) || after.slot(*way) != bucket.slot(*way)
        };
        let changed: Vec<_> = (0..WAYS).filter(changed).collect();
        assert_eq!(changed, two[..1], "{two:?}");
        let c = counters(&sensor);
        assert_eq!((c.measured, c.born, c.evicted), (4, 1, 0), "{two:?}");

        // what begins the connection anew ends the first, and then the second
        for left in [&two[1..], &[]] {
            pass(sensor.program(), &segment(1, tcp(0, SYN, 0)));
            let bucket = buckets.read(index);
            let ways: Vec<_> = (0..WAYS).filter(|way| bucket.tag(*way) == tag).collect();
            assert_eq!(ways, left, "{two:?}");
        }
    }
}

#[test]
fn a_flow_that_two_cpus_see_first_at_once_gets_one_slot() {
    const FLOWS: u32 = 20_000;
    let sensor = sensor(Config {
        flows: 65_536,
        params: patient(),
        ..config()
    });
    let program = sensor.program();
    let ready = [const { AtomicU32::new(0) }; 2];
    let see = |own: usize| {
        for number in 0..FLOWS {
            let frame = flow(number, 1);
            ready[own].store(number + 1, Ordering::SeqCst);
            while ready[1 - own].load(Ordering::SeqCst) <= number {
                std::hint::spin_loop();
            }
            pass(program, &frame);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| see(0));
        scope.spawn(|| see(1));
    });
    let taken = |bucket: Bucket| (0..WAYS).filter(|way| bucket.tag(*way) != 0).count();
    let slots: usize = Buckets::of(&sensor).all().map(taken).sum();
    assert_eq!(slots, FLOWS as usize, "{:?}", counters(&sensor));
}
