//! Whether bursts can be admitted to an interface's queue: it must have one, and only one, that says in one
//! place how long it is. What it may hold and how fast it empties, it says itself.

use batchwise_bpf::burst::OWN_KIND;

use super::limit::Limit;

/// Bytes that a frame has before its packet.
const ETHERNET: u32 = 14;

/// What the kernel says of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    /// Its packets have Ethernet headers.
    pub ethernet: bool,
    /// Bytes.
    pub mtu: u32,
    /// Bits a second; none: it does not say.
    pub speed: Option<u64>,
    /// What packets that leave wait in, those inside others included.
    pub disciplines: Vec<Discipline>,
}

/// A queueing discipline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discipline {
    pub kind: String,
    /// It is not inside another one.
    pub root: bool,
    /// Another each time that somebody puts one there. 0: the kernel did, and does so again when another one is taken
    /// away.
    pub handle: u16,
    /// Bytes of `bfifo` and `tbf`, packets of `pfifo`.
    pub limit: Option<u32>,
    /// Bits a second, of `tbf`.
    pub rate: Option<u64>,
    /// Bytes that wait now.
    pub backlog: u32,
    /// Packets that wait now.
    pub packets: u32,
    /// Packets that it dropped itself, since it is there.
    pub drops: u32,
}

/// A queue that bursts can be admitted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    pub limit: Limit,
    /// Bits a second.
    pub rate: u64,
    /// The longest packet with its header, bytes.
    pub longest: u32,
}

impl Queue {
    /// What it holds, bytes, a packet being as long as any can be.
    pub fn bytes(&self) -> u32 {
        match self.limit {
            Limit::Bytes(bytes) => bytes,
            Limit::Packets(packets) => packets.saturating_mul(self.longest),
        }
    }
}

/// Bursts of a few packets must be a part of what the queue holds.
const FEWEST: u32 = 20;

impl Interface {
    /// The queue, if bursts can be admitted to it; otherwise what is wrong, and the remedy.
    pub fn queue(&self, limit: Option<Limit>, rate: Option<u64>) -> Result<Queue, String> {
        let name = &self.name;
        self.has_headers()?;
        let root = self.root()?;
        let inside = self.disciplines.iter().find(|d| !d.root);
        let (holds, own_rate) = match (root.kind.as_str(), inside) {
            ("bfifo" | "pfifo", None) => (root.holds(), None),
            ("tbf", None) => (root.limit.map(Limit::Bytes), root.rate),
            ("tbf", Some(fifo)) if ["bfifo", "pfifo"].contains(&&*fifo.kind) => {
                (fifo.holds(), root.rate)
            }
            (kind, inside) => {
                let inside = inside.map(|d| format!(" with {}", d.kind));
                let inside = inside.unwrap_or_default();
                return Err(format!(
                    "the queue of {name} is {kind}{inside}, which is none that is first in, first out, and says how long it is: {}",
                    self.remedy()
                ));
            }
        };
        self.checked(
            self.smaller(holds, limit)?,
            rate.or(own_rate).or(self.speed),
        )
    }

    fn checked(&self, limit: Limit, rate: Option<u64>) -> Result<Queue, String> {
        let name = &self.name;
        let rate = rate.ok_or_else(|| {
            format!("{name} does not say how fast it is: give --rate, such as --rate 1gbit")
        })?;
        let queue = Queue {
            limit,
            rate,
            longest: self.mtu + ETHERNET,
        };
        match queue.bytes() / queue.longest {
            FEWEST.. => Ok(queue),
            packets => Err(format!(
                "a queue of {packets} packets of {} bytes has no room for bursts: make it at least {FEWEST} \
                 packets long, e.g. {}",
                self.mtu,
                self.remedy()
            )),
        }
    }

    /// A queue of our own in the place of what is there.
    pub fn own_queue(&self, limit: Option<Limit>, rate: Option<u64>) -> Result<Queue, String> {
        let name = &self.name;
        self.has_headers()?;
        let root = self.disciplines.iter().find(|d| d.root);
        if let Some(root) = root.filter(|root| root.handle != 0 && !root.kind.starts_with(OWN_KIND))
        {
            return Err(format!(
                "somebody gave {name} the queue {}, which would be lost: take it away first (tc qdisc del dev {name} root)",
                root.kind
            ));
        }
        let limit = limit.ok_or(
            "a queue of our own must be told what it holds: give --limit, such as --limit 100p",
        )?;
        self.checked(limit, rate.or(self.speed))
    }

    fn has_headers(&self) -> Result<(), String> {
        let name = &self.name;
        if !self.ethernet {
            return Err(format!(
                "packets at {name} have no Ethernet header: use the interface below it"
            ));
        }
        Ok(())
    }

    /// What packets wait in.
    pub fn root(&self) -> Result<&Discipline, String> {
        let name = &self.name;
        let root = self.disciplines.iter().find(|d| d.root);
        let root = root.ok_or_else(|| format!("{name} is gone"))?;
        match root.kind.as_str() {
            "noqueue" => Err(format!(
                "{name} has no queue of its own, packets wait elsewhere: {}",
                self.remedy()
            )),
            "mq" | "mqprio" => Err(format!(
                "{name} has several queues, which do not know of each other: {}",
                self.remedy()
            )),
            _ => Ok(root),
        }
    }

    /// The queue may hold more than bursts are admitted to, not less.
    fn smaller(&self, holds: Option<Limit>, asked: Option<Limit>) -> Result<Limit, String> {
        let name = &self.name;
        match (holds, asked) {
            (Some(holds), None) => Ok(holds),
            (None, None) => Err(format!(
                "the queue of {name} does not say what it holds: give --limit, such as --limit 150kb"
            )),
            (Some(Limit::Bytes(holds)), Some(Limit::Bytes(asked))) if asked > holds => {
                Err(format!("--limit: the queue of {name} holds {holds} bytes"))
            }
            (Some(Limit::Packets(holds)), Some(Limit::Packets(asked))) if asked > holds => Err(
                format!("--limit: the queue of {name} holds {holds} packets"),
            ),
            (Some(Limit::Bytes(_)), Some(Limit::Packets(_))) => Err(format!(
                "--limit: the queue of {name} is limited in bytes, and so must this be"
            )),
            (Some(Limit::Packets(_)), Some(Limit::Bytes(_))) => Err(format!(
                "--limit: the queue of {name} is limited in packets, and so must this be"
            )),
            (_, Some(asked)) => Ok(asked),
        }
    }

    /// The command that gives it a queue that fits.
    fn remedy(&self) -> String {
        let name = &self.name;
        // as many bytes as the usual 100 packets
        let bytes = 100 * (self.mtu + ETHERNET);
        match self.speed {
            Some(_) => format!("tc qdisc replace dev {name} root bfifo limit {bytes}"),
            None => format!(
                "tc qdisc replace dev {name} root tbf rate 1gbit burst 64kb limit {bytes} (with the rate of what \
                 is behind it)"
            ),
        }
    }
}

impl Discipline {
    /// Of a `bfifo` or `pfifo`.
    fn holds(&self) -> Option<Limit> {
        let limit = if self.kind == "pfifo" {
            Limit::Packets
        } else {
            Limit::Bytes
        };
        self.limit.map(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(disciplines: &[(&str, bool, u32)]) -> Interface {
        let discipline = |(kind, root, limit): &(&str, bool, u32)| Discipline {
            kind: (*kind).to_owned(),
            root: *root,
            limit: (*limit > 0).then_some(*limit),
            rate: (*kind == "tbf").then_some(100_000_000),
            ..Discipline::default()
        };
        Interface {
            name: "eth1".to_owned(),
            ethernet: true,
            mtu: 1500,
            speed: Some(10_000_000_000),
            disciplines: disciplines.iter().map(discipline).collect(),
        }
    }

    #[test]
    fn a_plain_queue_says_itself_what_it_holds_and_how_fast_it_empties() {
        let queue = with(&[("tbf", true, 150_000)]).queue(None, None);
        let queue = queue.expect("a queue");
        assert_eq!(queue.limit, Limit::Bytes(150_000));
        assert_eq!(queue.rate, 100_000_000);
        let inside = [("tbf", true, 150_000), ("pfifo", false, 100)];
        let queue = with(&inside).queue(None, None).expect("a queue");
        assert_eq!(queue.limit, Limit::Packets(100));
        assert_eq!(queue.bytes(), 151_400);
        let queue = with(&[("bfifo", true, 150_000)]).queue(None, None);
        assert_eq!(queue.expect("a queue").rate, 10_000_000_000);
        let told = (Some(Limit::Bytes(100_000)), Some(1_000_000));
        let queue = with(&[("tbf", true, 150_000)]).queue(told.0, told.1);
        assert_eq!(queue.expect("a queue").limit, Limit::Bytes(100_000));
    }

    #[test]
    fn a_queue_of_our_own_takes_no_place_that_somebody_chose() {
        let mut eth = with(&[("fq_codel", true, 10_240)]);
        let limit = Some(Limit::Packets(100));
        let queue = eth.own_queue(limit, None).expect("a queue");
        assert_eq!((queue.bytes(), queue.rate), (151_400, 10_000_000_000));
        for (limit, word) in [(None, "--limit 100p"), (Some(Limit::Packets(9)), "no room")] {
            let refused = eth.own_queue(limit, None).expect_err(word);
            assert!(refused.contains(word), "{refused}");
        }
        eth.disciplines[0].handle = 0x8001;
        let refused = eth.own_queue(limit, None).expect_err("somebody gave it");
        assert!(refused.contains("tc qdisc del dev eth1 root"), "{refused}");
        eth.disciplines[0].kind = format!("{OWN_KIND}1");
        assert!(eth.own_queue(limit, None).is_ok());
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_command_that_helps() {
        for (disciplines, word) in [
            (&[("noqueue", true, 0)][..], "no queue of its own"),
            (
                &[("mq", true, 0), ("pfifo_fast", false, 0)],
                "several queues",
            ),
            (&[("fq_codel", true, 10_240)], "fq_codel"),
            (&[("pfifo_fast", true, 0)], "pfifo_fast"),
            (
                &[("tbf", true, 9), ("fq_codel", false, 9)],
                "tbf with fq_codel",
            ),
            (&[("bfifo", true, 15_000)], "no room for bursts"),
        ] {
            let refused = with(disciplines).queue(None, None).expect_err(word);
            assert!(refused.contains(word), "{refused}");
            let command = "tc qdisc replace dev eth1 root bfifo limit 151400";
            assert!(refused.contains(command), "{refused}");
        }
        let bfifo = with(&[("bfifo", true, 150_000)]);
        for (limit, word) in [
            (Limit::Bytes(200_000), "holds 150000 bytes"),
            (Limit::Packets(100), "in bytes"),
        ] {
            let refused = bfifo.queue(Some(limit), None).expect_err(word);
            assert!(refused.contains(word), "{refused}");
        }
        let silent = Interface {
            speed: None,
            ..with(&[("bfifo", true, 150_000)])
        };
        let refused = silent.queue(None, None).expect_err("no rate");
        assert!(refused.contains("--rate 1gbit"), "{refused}");
        let tun = Interface {
            ethernet: false,
            ..bfifo
        };
        assert!(tun.queue(None, None).is_err_and(|e| e.contains("Ethernet")));
    }
}
