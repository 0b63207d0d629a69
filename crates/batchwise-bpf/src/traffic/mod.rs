//! Counts what the network stack does, for as long as it lives: each hook costs at every packet, so that
//! is not for long.

use std::time::Instant;

use batchwise_core::profile::report::Traffic;
use libbpf_rs::Link;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::skel::{OpenSkel as _, Skel as _};

use crate::Error;
use crate::object::{load, percpu};
use crate::traffic_skel::{TrafficSkel, TrafficSkelBuilder, types};

/// The programs; attached while it counts.
pub struct Counter {
    skel: TrafficSkel<'static>,
    links: Vec<Link>,
    /// Since when, and what had been counted before.
    since: Option<(Instant, Traffic)>,
}

impl Counter {
    /// Loads those whose tracepoints this kernel has.
    pub fn load() -> Result<Self, Error> {
        let btf = Btf::from_vmlinux().map_err(|_| Error::NoBtf)?;
        let skel = load::<TrafficSkelBuilder>(|open| {
            for mut program in open.open_object_mut().progs_mut() {
                let section = program.section().to_string_lossy().into_owned();
                let tracepoint = section.trim_start_matches("tp_btf/");
                let name = format!("btf_trace_{tracepoint}");
                program.set_autoload(btf.type_by_name::<Typedef<'_>>(&name).is_some());
            }
            Ok(())
        })?;
        Ok(Self {
            skel,
            links: Vec::new(),
            since: None,
        })
    }

    pub(crate) fn object(&self) -> &libbpf_rs::Object {
        self.skel.object()
    }

    /// Begins to count.
    pub fn start(&mut self) -> Result<(), Error> {
        let before = self.read()?;
        // not the skeleton's attach(), which is for once: libbpf keeps pointers to its links
        for program in self.skel.object_mut().progs_mut() {
            if program.autoload() {
                let attached = program.attach();
                let link = attached.map_err(Error::bpf("attaching counters"))?;
                self.links.push(link);
            }
        }
        self.since = Some((Instant::now(), before));
        Ok(())
    }

    /// Stops; gives what was counted, if it was.
    pub fn stop(&mut self) -> Result<Option<Traffic>, Error> {
        let Some((begin, before)) = self.since.take() else {
            return Ok(None);
        };
        self.links.clear();
        let mut counted = self.read()?.since(&before);
        counted.ns = begin.elapsed().as_nanos() as u64;
        Ok(Some(counted))
    }

    fn read(&self) -> Result<Traffic, Error> {
        let mut sum = Traffic::default();
        for cpu in percpu::<types::traffic_counts>(&self.skel.maps.traffic, 0, "reading counters")?
        {
            sum.add(&Traffic {
                ns: 0,
                received: cpu.received,
                received_bytes: cpu.received_bytes,
                received_packets: cpu.received_packets,
                received_sizes: cpu.received_sizes.to_vec(),
                queued: cpu.queued,
                queued_bytes: cpu.queued_bytes,
                queued_packets: cpu.queued_packets,
                queued_sizes: cpu.queued_sizes.to_vec(),
                retransmissions: cpu.retransmissions,
                wakeups: cpu.wakeups,
                sends: cpu.sends,
                sent_bytes: cpu.sent_bytes,
                reads: cpu.reads,
                read_bytes: cpu.read_bytes,
            });
        }
        Ok(sum)
    }
}
