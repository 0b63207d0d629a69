//! Loading the data path: afresh, or onto the maps that an earlier one has pinned.

use std::path::Path;
use std::time::Duration;

use libbpf_rs::{MapCore, MapHandle};

use super::{Balancer, FlowCounts, INTERFACES, Options, macs, pins};
use crate::Error;
use crate::attach::interface::Interface;
use crate::balance_skel::{BalanceSkel, BalanceSkelBuilder, OpenBalanceSkel, types};
use crate::features::{self, Machine, Subcommand, XDP_FRAGS};
use crate::flows;
use crate::flows::events::{Events, buckets, event_bytes};
use crate::object::{self, rodata};

/// Flows of which one packet was seen have a quarter of the settled ones' room, and at least this.
const LEAST_YOUNG: u32 = 1024;
/// New flows may choose for so long before [`Balancer::let_choose`] was called.
const FIRST_CHOICES: Duration = Duration::from_secs(5);

pub(super) fn start(options: &Options) -> Result<Balancer, Error> {
    if options.interfaces.len() > INTERFACES {
        return Err(Error::TooMany {
            what: "interfaces can be balanced on",
            given: options.interfaces.len(),
            most: INTERFACES,
        });
    }
    let machine = Machine::look();
    features::require(&machine, Subcommand::Balance)?;
    let frags = machine.takes_frags();
    if options.attach {
        let waits = |interface: &str| options.pin && Balancer::pinned_at(&options.name, interface);
        for interface in options.interfaces.iter().filter(|name| !waits(name)) {
            Interface::find(interface)?;
        }
    }
    if !options.pin {
        return begin(options, None, false, frags);
    }
    let taken_over = pins::exist(&options.name);
    let folder = pins::make_folder(&options.name)?;
    if let Some(network) = pins::foreign(&folder)?.filter(|_| options.attach) {
        let name = options.name.clone();
        return Err(Error::RunsElsewhere { name, network });
    }
    pins::claim(&folder)?;
    let begun = begin(options, Some(&folder), taken_over, frags);
    if begun.is_err() && !taken_over {
        // the error is what matters; what cannot be removed now is taken over by the next start
        drop(pins::remove(&options.name));
    }
    begun
}

fn begin(
    options: &Options,
    folder: Option<&Path>,
    taken_over: bool,
    frags: bool,
) -> Result<Balancer, Error> {
    if let Some(folder) = folder.filter(|_| taken_over) {
        check_flows(options, folder)?;
    }
    let skel = load(options, folder, frags).map_err(|e| {
        if taken_over {
            other_version(options, e)
        } else {
            e
        }
    })?;
    let events = match &options.measure {
        Some(measure) => Some(Events::open(&skel.maps.events, buckets(measure.flows))?),
        None => None,
    };
    let mut balancer = Balancer {
        links: Vec::new(),
        events,
        skel,
        interfaces: options.interfaces.clone(),
        folder: folder.map(Path::to_owned),
        taken_over,
        flow_counts: FlowCounts::default(),
    };
    balancer.let_choose(Some(FIRST_CHOICES))?;
    if options.attach {
        balancer.attach()?;
    }
    Ok(balancer)
}

fn check_flows(options: &Options, folder: &Path) -> Result<(), Error> {
    let path = folder.join("flows_settled");
    if !path.exists() {
        return Ok(()); // the last start was killed amid it
    }
    let settled = MapHandle::from_pinned_path(path);
    let settled = settled.map_err(Error::bpf("opening the pinned table of flows"))?;
    let has = settled.max_entries();
    if has == options.flows.max(1) {
        return Ok(());
    }
    let what = format!("flows = {has}, not {}", options.flows);
    Err(pinned_otherwise(options, what))
}

fn pinned_otherwise(options: &Options, what: String) -> Error {
    let name = options.name.clone();
    Error::PinnedOtherwise { name, what }
}

/// libbpf does not use a pinned map that is not like the one it would make.
fn other_version(options: &Options, error: Error) -> Error {
    match error {
        Error::Bpf { cause, .. } if cause.kind() == libbpf_rs::ErrorKind::InvalidInput => {
            let what = format!("tables of another version of batchwise ({cause})");
            pinned_otherwise(options, what)
        }
        other => other,
    }
}

fn load(
    options: &Options,
    folder: Option<&Path>,
    frags: bool,
) -> Result<BalanceSkel<'static>, Error> {
    object::load::<BalanceSkelBuilder>(|open| {
        configure(open, options, frags)?;
        size(open, options).map_err(Error::bpf("sizing the tables"))?;
        if let Some(folder) = folder {
            pin(open, folder).map_err(Error::bpf("pinning the maps"))?;
        }
        open.progs
            .flow_sweep
            .set_autoload(options.measure.is_some());
        Ok(())
    })
}

fn configure(open: &mut OpenBalanceSkel<'_>, options: &Options, frags: bool) -> Result<(), Error> {
    open.progs
        .balance_xdp
        .set_flags(if frags { XDP_FRAGS } else { 0 });
    let ro = rodata(open.maps.rodata_data.as_deref_mut())?;
    ro.frags = frags;
    ro.n_own_macs = options.interfaces.len() as u32;
    if let Some(bss) = open.maps.bss_data.as_deref_mut() {
        macs::write(&mut bss.own_macs, &macs::of(&options.interfaces)?);
    }
    let Some(measure) = &options.measure else {
        return Ok(());
    };
    ro.measuring = true;
    flows::configure!(ro, types, measure);
    Ok(())
}

fn size(open: &mut OpenBalanceSkel<'_>, options: &Options) -> libbpf_rs::Result<()> {
    let maps = &mut open.maps;
    let flows = options.flows.max(1);
    maps.flows_settled.set_max_entries(flows)?;
    maps.flows_young
        .set_max_entries((flows / 4).max(LEAST_YOUNG))?;
    if let Some(measure) = &options.measure {
        maps.flows.set_max_entries(buckets(measure.flows))?;
        maps.events.set_max_entries(event_bytes(measure.flows))?;
    }
    Ok(())
}

/// What forwarding needs.
fn pin(open: &mut OpenBalanceSkel<'_>, folder: &Path) -> libbpf_rs::Result<()> {
    let maps = &mut open.maps;
    for (map, name) in [
        (&mut maps.rings, "rings"),
        (&mut maps.backends, "backends"),
        (&mut maps.flows_settled, "flows_settled"),
        (&mut maps.flows_young, "flows_young"),
        (&mut maps.tallies, "tallies"),
        (&mut maps.backend_tallies, "backend_tallies"),
        (&mut maps.services, "services"),
    ] {
        map.set_pin_path(folder.join(name))?;
    }
    Ok(())
}
