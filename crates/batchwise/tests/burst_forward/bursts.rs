//! Marked bursts through the forwarder: whole or not at all.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use batchwise_core::burst::mark::CodePoints;
use batchwise_testbed::topology::{LINK, SERVER_IP};
use socket2::SockRef;

use crate::{Place, number};

/// Bursts, each from an address of its own: more than the queue holds.
const BURSTS: u8 = 16;
/// Packets of each.
const LENGTH: u8 = 10;

fn source(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 1, number)
}

/// Packets that arrived of each burst.
fn send_all(place: &Place) -> BTreeMap<IpAddr, u8> {
    let hosts = &place.around.hosts;
    let server = hosts.server.inside(|| Ok(UdpSocket::bind((SERVER_IP, 0))?));
    let server = server.expect("a socket");
    // longer than the whole queue needs at the rate
    let quiet = Some(Duration::from_secs(3));
    server.set_read_timeout(quiet).expect("a timeout");
    let to = server.local_addr().expect("an address");
    for number in 1..=BURSTS {
        let address = format!("addr add {}/32 dev {LINK}", source(number));
        hosts.client.namespace().ip(&address).expect("an address");
    }
    let marked = CodePoints::default()
        .mark(0, LENGTH.into())
        .expect("a class");
    let sent = hosts.client.inside(|| {
        for number in 1..=BURSTS {
            let socket = UdpSocket::bind(SocketAddr::from((source(number), 0)))?;
            SockRef::from(&socket).set_tos_v4(marked.into())?;
            for _ in 0..LENGTH {
                socket.send_to(&[number; 1400], to)?;
            }
        }
        Ok(())
    });
    sent.expect("all are sent");
    let mut arrived = BTreeMap::<IpAddr, u8>::new();
    let mut buffer = [0; 2048];
    while let Ok((_, from)) = server.recv_from(&mut buffer) {
        *arrived.entry(from.ip()).or_default() += 1;
    }
    arrived
}

#[test]
fn a_marked_burst_arrives_whole_or_at_most_its_last_packet() {
    let mut place = Place::build("bf-whole", "1mbit", "100p", "bursts");
    let arrived = send_all(&place);
    let (line, sources) = place.end();
    let (admitted, refused) = (
        number(&line, "bursts_admitted"),
        number(&line, "bursts_refused"),
    );
    assert!(admitted >= 5 && refused > 0, "{line}");
    assert_eq!(admitted + refused, u64::from(BURSTS), "{line}");
    let of = |length| arrived.values().filter(|n| **n == length).count() as u64;
    assert_eq!(of(LENGTH), admitted, "{arrived:?}; {line}");
    assert_eq!(of(LENGTH) + of(1), arrived.len() as u64, "{arrived:?}");
    assert_eq!(
        number(&line, "burst_packets_dropped"),
        refused * u64::from(LENGTH) - of(1)
    );
    assert_eq!(number(&line, "reserved_bytes"), 0, "{line}");
    // and with right checksums, or they had not arrived
    let packets: u64 = arrived.values().map(|n| u64::from(*n)).sum();
    assert_eq!(number(&line, "cleared"), packets, "{line}");
    assert_eq!(sources.len(), usize::from(BURSTS), "{sources:?}");
    for of in &sources {
        let address: IpAddr = of["address"]
            .as_str()
            .expect("text")
            .parse()
            .expect("an address");
        let whole = arrived.get(&address) == Some(&LENGTH);
        assert_eq!(number(of, "admitted"), u64::from(whole), "{of}");
        assert_eq!(number(of, "refused"), u64::from(!whole), "{of}");
    }
    assert!(number(&line, "highest_packets") <= 100, "{line}");
}

#[test]
fn drop_tail_does_not_look_at_marks() {
    let mut place = Place::build("bf-cut", "1mbit", "100p", "off");
    let arrived = send_all(&place);
    let (line, _) = place.end();
    assert_eq!(
        number(&line, "bursts_admitted") + number(&line, "bursts_refused"),
        0
    );
    assert!(number(&line, "dropped") > 0, "{line}");
    let packets: u64 = arrived.values().map(|n| u64::from(*n)).sum();
    // the hosts have other packets to send, too
    assert!(
        (90..=number(&line, "forwarded")).contains(&packets),
        "{packets}; {line}"
    );
}
