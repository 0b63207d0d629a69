//! Floods at the service: ACKs of connections that there are not, and UDP.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use batchwise_testbed::host::Host;
use batchwise_testbed::nginx::PORT;
use batchwise_testbed::segment::{VIP, client};
use etherparse::TcpHeader;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};
use rand::Rng as _;

use super::clients::while_clients_work;
use super::outcome::{Outcome, unharmed};
use super::stage::{Stage, settings};

/// Packets between two pauses, and a pause: some ten thousand a second.
const TOGETHER: u64 = 16;
const PAUSE: Duration = Duration::from_micros(300);
/// In all, at most.
const MOST: u64 = 5_000_000;
/// Less is no flood.
const LEAST: u64 = 5_000;
/// So often the weights change meanwhile.
const CHANGES: u64 = 20;

/// Sends from a client's host until it is over; how many packets.
fn flood(host: &Host, over: &AtomicBool) -> Result<u64> {
    let (source, _) = client(0);
    let raw = (AddressFamily::Inet, SockType::Raw, SockProtocol::Tcp);
    host.inside(|| {
        let acks = socket(raw.0, raw.1, SockFlag::SOCK_CLOEXEC, raw.2);
        let acks = acks.context("a raw socket (it needs CAP_NET_RAW)")?;
        let datagrams = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let [a, b, c, d] = VIP.octets();
        let to = SockaddrIn::new(a, b, c, d, 0);
        let mut random = rand::rng();
        let mut sent = 0;
        while !over.load(Ordering::Relaxed) && sent < MOST {
            for _ in 0..TOGETHER {
                let mut head = TcpHeader::new(
                    random.random_range(1024..=65_535),
                    PORT,
                    random.random(),
                    64,
                );
                head.ack = true;
                head.acknowledgment_number = random.random();
                head.checksum = head.calc_checksum_ipv4_raw(source.octets(), VIP.octets(), &[])?;
                // what finds no room in a queue is lost, as floods are
                let _ = sendto(acks.as_raw_fd(), &head.to_bytes(), &to, MsgFlags::empty());
                let _ = datagrams.send_to(b"flood", (VIP, PORT));
                sent += 2;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(sent)
    })
}

impl Stage<'_> {
    pub(super) fn weights_flooded(&mut self) -> Result<Outcome> {
        let over = AtomicBool::new(false);
        let host = &self.segment.clients[0];
        let (sent, connections) = std::thread::scope(|threads| {
            let flood = threads.spawn(|| flood(host, &over));
            let worked =
                while_clients_work(self.segment, |_| self.change_weights(&settings(), CHANGES));
            over.store(true, Ordering::Relaxed);
            let sent = flood.join().map_err(|_| anyhow!("the flood panicked"))??;
            let ((), connections) = worked?;
            anyhow::Ok((sent, connections))
        })?;
        let mut outcome = unharmed(&connections);
        outcome.times = CHANGES;
        outcome.flood_packets = sent;
        outcome.expect(sent > LEAST, || format!("only {sent} packets were a flood"));
        Ok(outcome)
    }
}
