//! What the kernel says of an interface and its queue, asked by netlink.

use std::fs::File;
use std::os::fd::AsRawFd;

use anyhow::{Context, anyhow};
use futures_util::{StreamExt, TryStreamExt};
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, Nla,
    NlasIterator,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{LinkAttribute, LinkLayerType, LinkMessage};
use rtnetlink::packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption, TcStats2};

use super::queue::{Discipline, Interface};
use crate::frame::netlink::Netlink;

/// An interface, and netlink to ask about it.
pub struct Kernel {
    netlink: Netlink,
    name: String,
}

impl Kernel {
    /// To ask about this interface of the calling thread's network namespace.
    pub fn open(name: &str) -> anyhow::Result<Self> {
        Ok(Self {
            netlink: Netlink::open()?,
            name: name.to_owned(),
        })
    }

    /// How the interface is now.
    pub fn look(&self) -> anyhow::Result<Interface> {
        let look = async {
            let link = self.link().await?;
            let index = link.header.index;
            let mut disciplines = Vec::new();
            let all = self.netlink.handle.qdisc().get();
            let mut found = all.index(index as i32).execute();
            while let Some(message) = found.try_next().await.context("reading queues")? {
                if message.header.index == index as i32 {
                    disciplines.extend(discipline(&message));
                }
            }
            let mtu = link.attributes.iter().find_map(|a| match a {
                LinkAttribute::Mtu(mtu) => Some(*mtu),
                _ => None,
            });
            let kind = link.header.link_layer_type;
            anyhow::Ok(Interface {
                name: self.name.clone(),
                ethernet: [LinkLayerType::Ether, LinkLayerType::Loopback].contains(&kind),
                mtu: mtu.unwrap_or_default(),
                speed: speed(&self.name),
                disciplines,
            })
        };
        self.netlink.wait(look)
    }
}

impl Kernel {
    /// Gives the interface this queueing discipline, until what is returned is dropped. Then it gets what the
    /// kernel gives interfaces.
    pub fn put(&self, kind: &str) -> anyhow::Result<Put<'_>> {
        let link = self.netlink.wait(self.link())?;
        let mut message = TcMessage::with_index(link.header.index.cast_signed());
        message.header.parent = TcHandle::ROOT;
        message.attributes.push(TcAttribute::Kind(kind.to_owned()));
        let message = RouteNetlinkMessage::NewQueueDiscipline(message);
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        let mut handle = self.netlink.handle.clone();
        let put = async {
            let mut answers = handle.request(request)?;
            while let Some(answer) = answers.next().await {
                if let NetlinkPayload::Error(error) = answer.payload
                    && error.code.is_some()
                {
                    return Err(anyhow!("{}", error.to_io()));
                }
            }
            anyhow::Ok(())
        };
        let put = self.netlink.wait(put);
        put.with_context(|| format!("giving {} the queue {kind}", self.name))?;
        Ok(Put {
            kernel: self,
            kind: kind.to_owned(),
        })
    }

    async fn link(&self) -> anyhow::Result<LinkMessage> {
        batchwise_bpf::check_interface(&self.name)?;
        let named = self
            .netlink
            .handle
            .link()
            .get()
            .match_name(self.name.clone());
        let link = named.execute().try_next().await;
        let link = link.map_err(|e| anyhow!("there is no interface {:?}: {e}", self.name))?;
        link.with_context(|| format!("there is no interface {:?}", self.name))
    }
}

/// An interface's queueing discipline that goes when this is dropped, unless somebody has put another one in its
/// place.
pub struct Put<'a> {
    kernel: &'a Kernel,
    kind: String,
}

impl Drop for Put<'_> {
    fn drop(&mut self) {
        let found = self.kernel.look();
        let there = found.is_ok_and(|found| found.root().is_ok_and(|root| root.kind == self.kind));
        if !there {
            return;
        }
        let take = async {
            let index = self.kernel.link().await?.header.index;
            let mut request = self.kernel.netlink.handle.qdisc().del(index.cast_signed());
            request.message_mut().header.parent = TcHandle::ROOT;
            anyhow::Ok(request.execute().await?)
        };
        if let Err(error) = self.kernel.netlink.wait(take) {
            let name = &self.kernel.name;
            tracing::warn!(
                "the queue {} stays at {name} ({error}): tc qdisc del dev {name} root",
                self.kind
            );
        }
    }
}

/// `TCA_TBF_PARMS` and `TCA_TBF_RATE64`.
const TBF_PARMS: u16 = 1;
const TBF_RATE64: u16 = 4;
/// Where `struct tc_tbf_qopt` has its rate, bytes a second, and its limit.
const TBF_RATE: usize = 8;
const TBF_LIMIT: usize = 24;

/// None: it is no queue of packets that leave.
fn discipline(message: &TcMessage) -> Option<Discipline> {
    let parent = message.header.parent;
    if parent == TcHandle::INGRESS {
        return None;
    }
    let mut found = Discipline {
        root: parent == TcHandle::ROOT,
        handle: message.header.handle.major,
        ..Discipline::default()
    };
    let mut options = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            TcAttribute::Kind(kind) => found.kind.clone_from(kind),
            TcAttribute::Options(all) => {
                for option in all {
                    if let TcOption::Other(nla) = option {
                        options = vec![0; nla.value_len()];
                        nla.emit_value(&mut options);
                    }
                }
            }
            TcAttribute::Stats2(all) => {
                for stats in all {
                    if let TcStats2::Queue(queue) = stats {
                        found.backlog = queue.backlog;
                        found.packets = queue.qlen;
                        found.drops = queue.drops;
                    }
                }
            }
            _ => {}
        }
    }
    match found.kind.as_str() {
        "bfifo" | "pfifo" => found.limit = number(&options, 0),
        "tbf" => {
            for nla in NlasIterator::new(&options[..]).flatten() {
                match nla.kind() {
                    TBF_PARMS => {
                        let bytes = number(nla.value(), TBF_RATE).map(u64::from);
                        found.rate = found.rate.or(bytes.map(|n| 8 * n));
                        found.limit = number(nla.value(), TBF_LIMIT);
                    }
                    TBF_RATE64 => {
                        let bytes = nla.value().try_into().ok().map(u64::from_ne_bytes);
                        found.rate = bytes.map(|n| n.saturating_mul(8));
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
    Some(found)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(four))
}

/// `ETHTOOL_GSET` and what is read of `struct ethtool_cmd`, which has no successor of a fixed size.
const ETHTOOL_GSET: u32 = 1;
#[repr(C)]
#[derive(Default)]
struct EthtoolCommand {
    command: u32,
    _modes: [u32; 2],
    speed_low: u16,
    _port: [u8; 6],
    _counts: [u32; 2],
    speed_high: u16,
    _rest: [u16; 7],
}

/// Bits a second.
fn speed(name: &str) -> Option<u64> {
    let socket = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    );
    let socket = File::from(socket.ok()?);
    let mut command = EthtoolCommand {
        command: ETHTOOL_GSET,
        ..EthtoolCommand::default()
    };
    // SAFETY: any bytes are a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let bytes = name.bytes().take(libc::IFNAMSIZ - 1);
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut command).cast();
    // SAFETY: the request names an `ethtool_cmd`, and both live as long as the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    let mbit = u32::from(command.speed_high) << 16 | u32::from(command.speed_low);
    // all ones: not known
    let known = done == 0 && mbit != 0 && mbit != u32::MAX && mbit != u32::from(u16::MAX);
    known.then(|| u64::from(mbit) * 1_000_000)
}

const _: () = assert!(size_of::<EthtoolCommand>() == 44);
