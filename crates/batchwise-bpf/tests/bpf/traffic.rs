//! The counters of `profile`, over datagrams on loopback.

use std::net::UdpSocket;

use batchwise_bpf::traffic::Counter;

use crate::kernel::need_root;

#[test]
fn counters_count_while_they_are_on_and_as_often_as_they_are_turned_on() {
    need_root();
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("another");
    let address = receiver.local_addr().expect("its address");
    let send = |count: u64| {
        for _ in 0..count {
            sender
                .send_to(&[7; 1000], address)
                .expect("a datagram sent");
            receiver.recv(&mut [0; 1000]).expect("and received");
        }
    };
    let mut counter = Counter::load().expect("counters");
    assert_eq!(counter.stop().expect("nothing to stop"), None);
    for round in 0..3 {
        counter.start().expect("a beginning");
        send(10);
        let counted = counter.stop().expect("an end").expect("counts");
        send(1_000);
        // others use loopback, too
        assert!(
            (10..1_000).contains(&counted.received),
            "{round}: {counted:?}"
        );
        assert!(counted.received_bytes >= 10_000, "{round}: {counted:?}");
    }
}
