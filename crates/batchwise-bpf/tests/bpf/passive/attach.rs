//! Where the program can be attached, and other programs before and behind it.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use batchwise_bpf::Error;
use batchwise_bpf::passive::{Attach, Config, PassiveSensor};

use super::setup::{config, counters, pass, sensor};
use crate::frames::{Segment, tcp_frame};
use crate::kernel::{self, XDP_DROP, in_own_network, need_root};

#[test]
fn another_program_decides_when_it_is_chained() {
    need_root();
    let drops = kernel::verdict(XDP_DROP);
    let pin = kernel::Pin::new(&drops, "bw-test-then");
    let sensor = sensor(Config {
        then: Some(pin.0.clone()),
        ..config()
    });
    let frame = tcp_frame(Segment::default());
    let (verdict, out) = kernel::run(sensor.program(), &frame);
    assert_eq!((verdict, out), (XDP_DROP, frame));
    assert_eq!(counters(&sensor).measured, 1);
}

#[test]
fn another_program_can_call_ours() {
    let sensor = sensor(config());
    let programs = kernel::prog_array(sensor.program());
    let dispatcher = kernel::dispatcher(programs.as_fd());
    pass(dispatcher.as_fd(), &tcp_frame(Segment::default()));
    assert_eq!(counters(&sensor).measured, 1);
}

#[test]
fn what_cannot_be_chained_is_said() {
    need_root();
    let attach = |then: &str, attach| {
        let then = Some(then.into());
        refused(Config {
            then,
            ..on("lo", attach)
        })
        .to_string()
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

fn refused(config: Config) -> Error {
    PassiveSensor::attach(config).err().unwrap()
}

#[test]
fn an_interface_that_is_not_there_is_said_with_those_that_are() {
    need_root();
    in_own_network(|| {
        let error = refused(on("bw-none", Attach::Auto)).to_string();
        let named = error.contains("\"bw-none\"") && error.contains("lo");
        assert!(named, "{error}");
    });
}

#[test]
fn native_xdp_is_taken_where_there_is_some_and_ends_with_the_sensor() {
    need_root();
    in_own_network(|| {
        kernel::ip("link add bw-b0 type veth peer name bw-b1");
        let sensor = sensor(on("bw-b0", Attach::Auto));
        assert_eq!(sensor.attached(), Attach::Native);
        let second = refused(on("bw-b0", Attach::Native));
        assert!(matches!(second, Error::OtherXdp { .. }), "{second}");
        assert!(second.to_string().contains("--then"), "{second}");
        drop(sensor);
        drop(super::setup::sensor(on("bw-b0", Attach::Native)));
    });
}

#[test]
fn tc_is_taken_where_there_is_no_native_xdp_and_sees_traffic() {
    need_root();
    in_own_network(|| {
        let error = refused(on("lo", Attach::Native)).to_string();
        assert!(error.contains("--attach tc"), "{error}");
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
