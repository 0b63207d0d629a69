//! The passive vantage's programs in the kernel: what becomes of packets, flows and epochs. Needs
//! root.

mod frames;
mod kernel;

use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::sleep;
use std::time::Duration;

use batchwise_bpf::Error;
use batchwise_bpf::passive::{Attach, Config, Counters, PassiveSensor};
use batchwise_core::passive::{Algorithm, Epoch, Params, Transport};

use frames::{ACK, FIN, QINQ, RST, SYN, Segment, TCP, UDP, VLAN, ethernet, ethernet_of, v4, v6};
use kernel::{XDP_DROP, XDP_PASS, in_own_network, need_root};

fn config() -> Config {
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

fn sensor(config: Config) -> PassiveSensor {
    need_root();
    PassiveSensor::attach(config).unwrap_or_else(|e| panic!("{e}"))
}

/// The packet goes its way as it came.
fn pass(program: BorrowedFd<'_>, frame: &[u8]) {
    let (verdict, out) = kernel::run(program, frame);
    assert_eq!(verdict, XDP_PASS);
    assert_eq!(out, frame, "a packet was changed");
}

fn segment(sensor: &PassiveSensor, segment: Segment) {
    pass(sensor.program(), &frames::tcp_frame(segment));
}

/// Gaps that were not before a retransmission.
fn gaps(epoch: &Epoch) -> u32 {
    epoch.estimate.gaps - u32::from(epoch.gaps.resent)
}

fn counters(sensor: &PassiveSensor) -> Counters {
    sensor.counters().unwrap()
}

#[test]
fn each_packet_meets_its_fate_and_passes_unchanged() {
    let data = Segment::default();
    let tcp = data.bytes();
    let with = |change: fn(&mut Segment)| {
        let mut s = data;
        change(&mut s);
        s.bytes()
    };
    let frame = |l4: &[u8]| ethernet(&[], &v4(TCP, 0, 0, l4));
    let edit = |at: usize, to: u8| {
        let mut f = frame(&tcp);
        f[at] = to;
        f
    };
    let udp = frames::udp(30);
    type Fate = fn(&Counters) -> u64;
    let measured: Fate = |c| c.measured;
    let acks: Fate = |c| c.acks;
    let fragments: Fate = |c| c.fragments;
    let other: Fate = |c| c.other;
    let malformed: Fate = |c| c.malformed;
    let table: Vec<(&str, Vec<u8>, Fate)> = vec![
        ("TCP over IPv4", frame(&tcp), measured),
        (
            "with IP options",
            ethernet(&[], &v4(TCP, 40, 0, &tcp)),
            measured,
        ),
        (
            "with padding",
            [frame(&tcp), vec![0; 30]].concat(),
            measured,
        ),
        (
            "don't fragment",
            ethernet(&[], &v4(TCP, 0, 0x4000, &tcp)),
            measured,
        ),
        (
            "UDP over IPv4",
            ethernet(&[], &v4(UDP, 0, 0, &udp)),
            measured,
        ),
        (
            "TCP over IPv6",
            ethernet(&[], &v6(&[], TCP, &tcp)),
            measured,
        ),
        (
            "UDP over IPv6",
            ethernet(&[], &v6(&[], UDP, &udp)),
            measured,
        ),
        (
            "a VLAN tag",
            ethernet(&[VLAN], &v4(TCP, 0, 0, &tcp)),
            measured,
        ),
        (
            "two VLAN tags",
            ethernet(&[QINQ, VLAN], &v6(&[], TCP, &tcp)),
            measured,
        ),
        (
            "extension headers",
            ethernet(&[], &v6(&[(0, 8), (60, 24), (43, 8)], TCP, &tcp)),
            measured,
        ),
        (
            "an authentication header",
            ethernet(&[], &v6(&[(51, 24)], TCP, &tcp)),
            measured,
        ),
        (
            "a fragment header of a whole",
            ethernet(&[], &v6(&[(44, 8)], TCP, &tcp)),
            measured,
        ),
        (
            "data with FIN",
            frame(&with(|s| s.flags = ACK | FIN)),
            measured,
        ),
        ("data with SYN", frame(&with(|s| s.flags = SYN)), measured),
        ("a pure ACK", frame(&with(|s| s.payload = 0)), acks),
        (
            "a SYN",
            frame(&with(|s| (s.flags, s.payload) = (SYN, 0))),
            acks,
        ),
        (
            "a FIN",
            frame(&with(|s| (s.flags, s.payload) = (ACK | FIN, 0))),
            acks,
        ),
        (
            "a RST",
            frame(&with(|s| (s.flags, s.payload) = (RST, 0))),
            acks,
        ),
        (
            "an empty datagram",
            ethernet(&[], &v4(UDP, 0, 0, &frames::udp(0))),
            acks,
        ),
        (
            "a SYN-ACK",
            frame(&with(|s| (s.flags, s.payload) = (SYN | ACK, 0))),
            other,
        ),
        (
            "a first fragment",
            ethernet(&[], &v4(TCP, 0, 0x2000, &tcp)),
            fragments,
        ),
        (
            "a last fragment",
            ethernet(&[], &v4(TCP, 0, 0x0010, &tcp)),
            fragments,
        ),
        (
            "an IPv6 fragment",
            {
                let mut f = ethernet(&[], &v6(&[(44, 8)], TCP, &tcp));
                f[14 + 40 + 3] = 1;
                f
            },
            fragments,
        ),
        ("ICMP", ethernet(&[], &v4(1, 0, 0, &tcp)), other),
        ("ARP", ethernet_of(&[], 0x0806, &[0; 28]), other),
        (
            "three VLAN tags",
            ethernet(&[QINQ, VLAN, VLAN], &v4(TCP, 0, 0, &tcp)),
            other,
        ),
        (
            "seven extension headers",
            ethernet(&[], &v6(&[(60, 8); 7], TCP, &tcp)),
            other,
        ),
        (
            "encrypted",
            ethernet(&[], &v6(&[(50, 16)], TCP, &tcp)),
            other,
        ),
        ("IPv4 of another version", edit(14, 0x55), malformed),
        ("a header that is too short", edit(14, 0x44), malformed),
        ("longer than the frame", edit(16, 0x10), malformed),
        (
            "a TCP header that is too short",
            edit(14 + 20 + 12, 0x40),
            malformed,
        ),
        (
            "a TCP header longer than the packet",
            {
                let mut s = data;
                s.payload = 0;
                let mut f = frame(&s.bytes());
                f[14 + 20 + 12] = 0xf0;
                f
            },
            malformed,
        ),
        (
            "a datagram longer than its packet",
            {
                let mut f = ethernet(&[], &v4(UDP, 0, 0, &udp));
                f[14 + 20 + 4] = 1;
                f
            },
            malformed,
        ),
    ];
    let sensor = sensor(config());
    for (name, frame, fate) in table {
        let before = counters(&sensor);
        pass(sensor.program(), &frame);
        let after = counters(&sensor);
        assert_eq!(after.packets, before.packets + 1, "{name}");
        assert_eq!(fate(&after), fate(&before) + 1, "{name}: {after:?}");
    }
}

#[test]
fn a_packet_that_was_cut_anywhere_is_malformed_and_passes_unchanged() {
    let sensor = sensor(config());
    let mut cut = 0;
    for frame in frames::kinds() {
        for len in 14..frame.len() {
            pass(sensor.program(), &frame[..len]);
            cut += 1;
        }
    }
    let c = counters(&sensor);
    assert_eq!((c.measured, c.acks), (0, 0), "{c:?}");
    assert_eq!(c.packets, cut);
}

#[test]
fn only_packets_to_the_ports_asked_for_count() {
    let sensor = sensor(Config {
        ports: vec![443, 65_535],
        ..config()
    });
    for (port, measured) in [(80_u16, 0), (443, 1), (442, 1), (65_535, 2), (0, 2)] {
        let mut frame = ethernet(&[], &v4(UDP, 0, 0, &frames::udp(30)));
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        pass(sensor.program(), &frame);
        assert_eq!(counters(&sensor).measured, measured, "port {port}");
    }
    assert_eq!(counters(&sensor).other, 3);
}

#[test]
fn small_datagrams_can_be_taken_for_acknowledgments() {
    let sensor = sensor(Config {
        udp_acks: 50,
        ..config()
    });
    for payload in [50, 51] {
        pass(
            sensor.program(),
            &ethernet(&[], &v4(UDP, 0, 0, &frames::udp(payload))),
        );
    }
    let c = counters(&sensor);
    assert_eq!((c.acks, c.measured), (1, 1));
}

/// `bursts` of three segments each, 2 ms apart, each answered before the next.
fn bursts(sensor: &PassiveSensor, bursts: u32) {
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

#[test]
fn an_epoch_says_what_core_makes_of_the_same_gaps() {
    for (name, end) in [("SYN", SYN), ("FIN", ACK | FIN), ("RST", RST)] {
        let mut sensor = sensor(config());
        bursts(&sensor, 20);
        segment(
            &sensor,
            Segment {
                flags: end,
                payload: 0,
                ..Segment::default()
            },
        );
        let epochs = sensor.poll().unwrap();
        let [epoch] = &epochs[..] else {
            panic!("{name}: {epochs:?}");
        };
        let tuple = epoch.tuple.unwrap();
        assert_eq!(tuple.client.to_string(), "10.0.0.2:40000");
        assert_eq!(tuple.server.to_string(), "10.0.0.1:80");
        assert_eq!(tuple.transport, Transport::Tcp);
        assert_eq!(gaps(epoch), 59, "{name}: {epoch:?}");
        assert_eq!(epoch.estimate, epoch.gaps.estimate(&Params::default()));
        // three at a time are answered together; the last three are still in flight
        assert_eq!(epoch.estimate.batches, 57, "{epoch:?}");
        let latency = epoch.estimate.latency.unwrap();
        assert!((2_000_000..20_000_000).contains(&latency), "{latency}");
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
        ..Params::default()
    };
    let mut sensor = sensor(Config { params, ..config() });
    bursts(&sensor, 10);
    segment(
        &sensor,
        Segment {
            flags: RST,
            payload: 0,
            ..Segment::default()
        },
    );
    let epochs = sensor.poll().unwrap();
    assert_eq!(epochs.len(), 1);
    assert_eq!(epochs[0].estimate.batches, 9, "{epochs:?}");
    assert_eq!(epochs[0].estimate, epochs[0].gaps.estimate(&params));
}

#[test]
fn retransmissions_are_apart_and_pure_acks_do_not_count() {
    let mut sensor = sensor(config());
    let at = |seq| Segment {
        seq,
        ..Segment::default()
    };
    for seq in [1, 101, 201, 101, 301] {
        segment(&sensor, at(seq));
        segment(
            &sensor,
            Segment {
                payload: 0,
                seq: seq + 100,
                ..Segment::default()
            },
        );
    }
    segment(
        &sensor,
        Segment {
            flags: SYN,
            payload: 0,
            ..Segment::default()
        },
    );
    let epochs = sensor.poll().unwrap();
    assert_eq!(epochs.len(), 1);
    assert_eq!(
        (gaps(&epochs[0]), epochs[0].gaps.resent),
        (3, 1),
        "{epochs:?}"
    );
}

#[test]
fn the_sweep_closes_epochs_of_idle_flows_by_name_and_forgets_them_later() {
    let mut sensor = sensor(Config {
        params: Params {
            idle_ns: 5_000_000,
            ..Params::default()
        },
        forget: Duration::from_millis(500),
        ..config()
    });
    bursts(&sensor, 5);
    sleep(Duration::from_millis(10));
    let epochs = sensor.sweep().unwrap();
    assert_eq!(epochs.len(), 1);
    assert!(epochs[0].tuple.is_some());
    assert_eq!(gaps(&epochs[0]), 14);
    assert_eq!(sensor.flows_live(), 1);
    assert_eq!(sensor.sweep().unwrap().len(), 0, "nothing new");
    sleep(Duration::from_millis(510));
    assert_eq!(sensor.sweep().unwrap().len(), 0);
    assert_eq!(sensor.flows_live(), 0);
}

#[test]
fn at_the_end_epochs_of_flows_that_are_not_idle_are_closed_too() {
    let mut sensor = sensor(config());
    bursts(&sensor, 5);
    assert_eq!(sensor.sweep().unwrap().len(), 0);
    let epochs = sensor.close_all().unwrap();
    assert_eq!(epochs.len(), 1);
    assert_eq!(gaps(&epochs[0]), 14);
    assert_eq!(sensor.close_all().unwrap().len(), 0);
}

#[test]
fn the_sweep_lets_flows_alone_that_are_not_idle() {
    let mut sensor = sensor(Config {
        params: Params {
            idle_ns: 3_000_000_000,
            ..Params::default()
        },
        ..config()
    });
    bursts(&sensor, 2);
    assert_eq!(sensor.sweep().unwrap().len(), 0);
    assert_eq!(sensor.flows_live(), 1);
}

/// A flow's packet; there are 2^32 of them.
fn flow(number: u32, seq: u32) -> Vec<u8> {
    let [a, b, c, d] = number.to_be_bytes();
    let segment = Segment {
        sport: u16::from_be_bytes([c, d]),
        seq,
        ..Segment::default()
    };
    ethernet(
        &[],
        &frames::v4_from([10, 1, a, b], TCP, 0, 0, &segment.bytes()),
    )
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
    let mut sensor = sensor(config());
    for round in 0..20 {
        pass(sensor.program(), &flow(u32::MAX, 1 + round * 100));
        for number in 0..1_000 {
            pass(sensor.program(), &flow(round * 1_000 + number, 1));
        }
    }
    let c = counters(&sensor);
    assert!(c.evicted > 10_000, "{c:?}");
    pass(sensor.program(), &{
        let mut end = flow(u32::MAX, 2_001);
        end[14 + 20 + 13] = ACK | FIN;
        end
    });
    let epochs = sensor.poll().unwrap();
    assert_eq!(epochs.len(), 1);
    assert_eq!(gaps(&epochs[0]), 20);
}

#[test]
fn another_program_decides_when_it_is_chained() {
    need_root();
    let drops = kernel::verdict(XDP_DROP);
    let pin = kernel::Pin::new(&drops, "bw-test-then");
    let sensor = sensor(Config {
        then: Some(pin.0.clone()),
        ..config()
    });
    let frame = frames::tcp_frame(Segment::default());
    let (verdict, out) = kernel::run(sensor.program(), &frame);
    assert_eq!((verdict, out), (XDP_DROP, frame));
    assert_eq!(counters(&sensor).measured, 1);
}

#[test]
fn another_program_can_call_ours() {
    let sensor = sensor(config());
    let programs = kernel::prog_array(sensor.program());
    let dispatcher = kernel::dispatcher(programs.as_fd());
    pass(dispatcher.as_fd(), &frames::tcp_frame(Segment::default()));
    assert_eq!(counters(&sensor).measured, 1);
}

#[test]
fn what_cannot_be_chained_is_said() {
    need_root();
    let attach = |then: &str, attach| {
        let interface = "lo".into();
        let then = Some(then.into());
        let config = Config {
            interface,
            attach,
            then,
            ..config()
        };
        PassiveSensor::attach(config).err().unwrap().to_string()
    };
    let error = attach("/sys/fs/bpf/bw-nothing", Attach::Called);
    assert!(error.contains("bpftool prog load"), "{error}");
    let error = attach("/sys/fs/bpf/bw-nothing", Attach::Tc);
    assert!(error.contains("--attach native"), "{error}");
}

fn on(interface: &str, attach: Attach) -> Config {
    Config {
        interface: interface.into(),
        attach,
        ..config()
    }
}

#[test]
fn an_interface_that_is_not_there_is_said_with_those_that_are() {
    need_root();
    in_own_network(|| {
        let error = PassiveSensor::attach(on("bw-none", Attach::Auto))
            .err()
            .unwrap();
        let error = error.to_string();
        assert!(
            error.contains("\"bw-none\"") && error.contains("lo"),
            "{error}"
        );
    });
}

#[test]
fn native_xdp_is_taken_where_there_is_some_and_ends_with_the_sensor() {
    need_root();
    in_own_network(|| {
        kernel::ip(&[
            "link", "add", "bw-b0", "type", "veth", "peer", "name", "bw-b1",
        ]);
        let sensor = sensor(on("bw-b0", Attach::Auto));
        assert_eq!(sensor.attached(), Attach::Native);
        let second = PassiveSensor::attach(on("bw-b0", Attach::Native))
            .err()
            .unwrap();
        assert!(matches!(second, Error::OtherXdp { .. }), "{second}");
        assert!(second.to_string().contains("--then"), "{second}");
        drop(sensor);
        drop(self::sensor(on("bw-b0", Attach::Native)));
    });
}

#[test]
fn tc_is_taken_where_there_is_no_native_xdp_and_sees_traffic() {
    need_root();
    in_own_network(|| {
        let error = PassiveSensor::attach(on("lo", Attach::Native))
            .err()
            .unwrap();
        assert!(error.to_string().contains("--attach tc"), "{error}");
        let sensor = sensor(on("lo", Attach::Auto));
        assert_eq!(sensor.attached(), Attach::Tc);
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        for len in 1..=100 {
            let sent = vec![len as u8; len];
            from.send_to(&sent, to.local_addr().unwrap()).unwrap();
            let mut got = [0; 200];
            let n = to.recv(&mut got).unwrap();
            assert_eq!(got[..n], sent);
        }
        assert_eq!(counters(&sensor).measured, 100);
    });
}
