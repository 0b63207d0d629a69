//! What epochs say, and when they close.

use std::thread::sleep;
use std::time::Duration;

use batchwise_bpf::passive::Config;
use batchwise_core::passive::{Algorithm, Params, Transport};

use super::setup::{bursts, config, counters, gaps, segment, sensor, undisturbed};
use crate::frames::{ACK, AT_ONCE, CLIENT_PORT, FIN, RST, SYN, Segment, tcp};
use crate::kernel::patient;

#[test]
fn an_epoch_says_what_core_makes_of_the_same_gaps() {
    let params = patient();
    let config = Config { params, ..config() };
    for (name, end) in [("SYN", SYN), ("FIN", ACK | FIN), ("RST", RST)] {
        let (mut sensor, apart) = undisturbed(&config, 20);
        segment(&sensor, tcp(CLIENT_PORT, end, 0));
        let epochs = sensor.poll().unwrap();
        let [epoch] = &epochs[..] else {
            panic!("{name}: {epochs:?}");
        };
        let tuple = epoch.tuple.unwrap();
        assert_eq!(tuple.client.to_string(), "10.0.0.2:40000");
        assert_eq!(tuple.server.to_string(), "10.0.0.1:80");
        assert_eq!(tuple.transport, Transport::Tcp);
        assert_eq!(gaps(epoch), 59, "{name}: {epoch:?}");
        assert_eq!(epoch.estimate, epoch.gaps.estimate(&params));
        // three at a time are answered together; the last three are still in flight
        assert_eq!(epoch.estimate.batches, 57, "{epoch:?}");
        let latency = Duration::from_nanos(epoch.estimate.latency.unwrap());
        assert!(latency.abs_diff(apart) < AT_ONCE, "{latency:?} {apart:?}");
        assert!(epoch.start < epoch.gaps.last && epoch.gaps.last <= epoch.end);
        sensor.sweep().unwrap();
        assert_eq!(sensor.flows_live(), 0, "{name} ends the flow");
    }
}

#[test]
fn an_epoch_closes_with_the_first_packet_after_its_time() {
    let mut sensor = sensor(Config {
        params: Params {
            epoch_ns: 20_000_000,
            min_gaps: 1,
            ..Params::default()
        },
        ..config()
    });
    bursts(&sensor, 30);
    let epochs = sensor.poll().unwrap();
    assert!(!epochs.is_empty());
    for epoch in &epochs {
        assert!(epoch.end - epoch.start >= 20_000_000);
        assert!(epoch.tuple.is_some());
    }
    let c = counters(&sensor);
    assert_eq!((c.born, c.measured, c.lost_events), (1, 90, 0));
}

#[test]
fn fixed_thresholds_are_kept_to() {
    let params = Params {
        algorithm: Algorithm::Fixed(1_000_000),
        ..patient()
    };
    let (mut sensor, _) = undisturbed(&Config { params, ..config() }, 10);
    segment(&sensor, tcp(CLIENT_PORT, RST, 0));
    let epochs = sensor.poll().unwrap();
    assert_eq!(epochs.len(), 1);
    assert_eq!(epochs[0].estimate.batches, 9, "{epochs:?}");
    assert_eq!(epochs[0].estimate, epochs[0].gaps.estimate(&params));
}

#[test]
fn retransmissions_are_apart_and_pure_acks_do_not_count() {
    let mut sensor = sensor(config());
    let at = |seq, payload| Segment {
        seq,
        payload,
        ..Segment::default()
    };
    for seq in [1, 101, 201, 101, 301] {
        segment(&sensor, at(seq, 100));
        segment(&sensor, at(seq + 100, 0));
    }
    segment(&sensor, tcp(CLIENT_PORT, SYN, 0));
    let epochs = sensor.poll().unwrap();
    assert_eq!(epochs.len(), 1);
    let counted = (gaps(&epochs[0]), epochs[0].gaps.resent);
    assert_eq!(counted, (3, 1), "{epochs:?}");
}

#[test]
fn the_sweep_closes_epochs_of_idle_flows_by_name_and_forgets_them_later() {
    let idle_soon = Config {
        params: Params {
            idle_ns: 5_000_000,
            ..patient()
        },
        ..config()
    };
    let mut keeps = sensor(idle_soon.clone());
    bursts(&keeps, 5);
    sleep(Duration::from_millis(10));
    let epochs = keeps.sweep().unwrap();
    assert_eq!(epochs.len(), 1);
    assert!(epochs[0].tuple.is_some());
    assert_eq!(gaps(&epochs[0]), 14);
    assert_eq!(keeps.flows_live(), 1);
    assert_eq!(keeps.sweep().unwrap().len(), 0, "nothing new");

    let mut forgets = sensor(Config {
        forget: Duration::from_millis(100),
        ..idle_soon
    });
    bursts(&forgets, 5);
    sleep(Duration::from_millis(10));
    assert_eq!(forgets.sweep().unwrap().len(), 1);
    sleep(Duration::from_millis(110));
    assert_eq!(forgets.sweep().unwrap().len(), 0);
    assert_eq!(forgets.flows_live(), 0);
}

#[test]
fn the_sweep_lets_flows_alone_that_are_not_idle_and_the_end_closes_their_epochs_too() {
    let mut sensor = sensor(Config {
        params: patient(),
        ..config()
    });
    bursts(&sensor, 5);
    assert_eq!(sensor.sweep().unwrap().len(), 0);
    assert_eq!(sensor.flows_live(), 1);
    let epochs = sensor.close_all().unwrap();
    assert_eq!(epochs.len(), 1);
    assert_eq!(gaps(&epochs[0]), 14);
    assert_eq!(sensor.close_all().unwrap().len(), 0);
}
