//! Brings a configuration into force: judged against what the machine is first, so that one that
//! cannot work changes nothing; then written to the maps so that no connection breaks.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use batchwise_bpf::balance as bpf;
use batchwise_core::balance::report::Health as State;
use batchwise_core::balance::{UNIT, maglev};

use super::agent::{Agent, Leaving};
use super::config::{self, Config, Kind, Method, Wrong};
use super::health::Health;
use super::journal::About;
use super::nexthop::{self, Kernel, Known, NextHop, ask};
use super::plan::{Pinned, Place, Slot, key, plan};
use super::service::{Backend, Service};

/// Neighbours that do not answer within this are taken for down, for now.
const ARP: Duration = Duration::from_secs(1);
/// What clients' packets are at most, bytes of IP, where nothing tells.
const ETHERNET: u32 = 1500;
const ARP_STEP: Duration = Duration::from_millis(20);

/// A configuration that fits the machine, with what makes it so.
pub struct Checked {
    /// The configuration.
    pub config: Config,
    known: Known,
    /// Interfaces that health checks leave by.
    pub exits: Vec<String>,
}

/// All addresses that routes are needed to.
pub fn addresses(config: &Config) -> Vec<IpAddr> {
    let services = config.services.iter();
    let mut all: Vec<IpAddr> = services
        .flat_map(|s| s.backends.iter().map(|b| b.address).chain([s.address]))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Judges a configuration against links and routes.
///
/// # Errors
/// It cannot work here; with file, line and remedy.
pub fn check(kernel: &Kernel, config: Config) -> anyhow::Result<Checked> {
    let wanted = addresses(&config);
    let mut known = kernel.know(&wanted)?;
    judge(&config, &known)?;
    let mut exits = Vec::new();
    for service in &config.services {
        let checked = service.check.kind != Kind::None;
        let exit = nexthop::service_route(&known, service.address, checked)
            .map_err(|why| Wrong::at(&config.file, service.line, why))?;
        if let Some(link) = exit.filter(|_| checked)
            && !exits.contains(&link.name)
        {
            exits.push(link.name);
        }
    }
    let end = Instant::now() + ARP;
    let mut asked = false;
    while let silent = silent(&config, &known)
        && !silent.is_empty()
        && Instant::now() < end
    {
        if !asked {
            silent.into_iter().for_each(ask);
            asked = true;
        }
        std::thread::sleep(ARP_STEP);
        known = kernel.know(&wanted)?;
    }
    Ok(Checked {
        config,
        known,
        exits,
    })
}

/// Next stations whose MAC address is not known.
fn silent(config: &Config, known: &Known) -> Vec<IpAddr> {
    let services = config.services.iter();
    let ways = services.flat_map(|s| s.backends.iter().map(|b| known.way(b.address, s.method)));
    let silent = ways.flatten().filter(|way| way.mac.is_none());
    silent.map(|way| way.station).collect()
}

fn judge(config: &Config, known: &Known) -> Result<(), Wrong> {
    let mut arriving = BTreeMap::new();
    for name in &config.interfaces {
        let Some(link) = known.link(name) else {
            let names: Vec<&str> = known.links.values().map(|l| l.name.as_str()).collect();
            let what = format!(
                "there is no interface {name:?} in this network namespace: give one of {}",
                names.join(", ")
            );
            return Err(Wrong::at(&config.file, config.interfaces_line, what));
        };
        arriving.insert(name.as_str(), link.mtu);
    }
    for service in &config.services {
        for backend in &service.backends {
            let at = |what| Wrong::at(&config.file, backend.line, what);
            let way = known.way(backend.address, service.method).map_err(at)?;
            if service.method == Method::Ipip && !service.allow_small_mtu {
                room(backend, &way, &arriving).map_err(at)?;
            }
        }
    }
    Ok(())
}

/// An encapsulated packet must fit. Where packets leave as they came, the MTU does not tell how long
/// clients' are: then they are taken for at most Ethernet's 1500 bytes.
fn room(
    backend: &config::Backend,
    way: &NextHop,
    arriving: &BTreeMap<&str, u32>,
) -> Result<(), String> {
    let longest = arriving.iter().map(|(name, mtu)| {
        if *name == way.interface {
            (*mtu).min(ETHERNET)
        } else {
            *mtu
        }
    });
    let longest = longest.max().unwrap_or(ETHERNET);
    let more = nexthop::overhead(Method::Ipip, backend.address);
    let needed = longest + more;
    if u32::from(way.mtu) >= needed {
        return Ok(());
    }
    let interface = &way.interface;
    Err(format!(
        "clients' packets of {longest} bytes do not fit through {interface} (MTU {}) with {more} bytes \
         more around them: raise it with `ip link set dev {interface} mtu {needed}` on all of the way to \
         {}, or keep clients' packets small (routes with `mtu {}` or `advmss`) and set allow_small_mtu = true, \
         then larger packets are answered with ICMP",
        way.mtu,
        backend.address,
        u32::from(way.mtu).saturating_sub(more),
    ))
}

impl Agent {
    /// Brings a configuration that was checked into force.
    ///
    /// # Errors
    /// No places are left (nothing has changed then), or the kernel does not let us write.
    pub(super) fn install(&mut self, checked: Checked) -> anyhow::Result<()> {
        let Checked {
            config,
            known,
            exits,
        } = checked;
        let pinned = Pinned {
            services: self.balancer.services()?,
            backends: self.balancer.backends()?,
        };
        let plan = plan(&config, &pinned)?;
        for key in &plan.gone {
            self.balancer.remove_service(key)?;
            let detail = format!("{}:{} is a service no more", key.address, key.port);
            self.journal.event("service", About::default(), detail);
        }
        for index in &plan.orphans {
            self.balancer.vacate(*index)?;
        }
        let mut names = BTreeMap::new();
        for service in &self.services {
            for b in &service.backends {
                names.insert(b.index, (service.spec.name.clone(), b.spec.name.clone()));
            }
        }
        let mut before: BTreeMap<u16, Service> =
            self.services.drain(..).map(|s| (s.number, s)).collect();
        for (spec, place) in config.services.iter().zip(plan.services) {
            let mut service = self.service(spec, &place, &known)?;
            if let Some(before) = before.remove(&place.number) {
                service.inherit(before);
            }
            self.services.push(service);
        }
        self.leaving
            .retain(|l| plan.leaving.iter().any(|(index, _)| *index == l.index));
        for (index, backend) in plan.leaving {
            if self.leaving.iter().any(|l| l.index == index) {
                continue;
            }
            let (service, name) = names
                .remove(&index)
                .unwrap_or_else(|| (String::new(), backend.address.to_string()));
            self.leaving.push(Leaving {
                index,
                service,
                name,
                written: backend,
                until: Instant::now() + config.drain_timeout,
            });
        }
        self.config = config;
        self.index();
        self.push()?;
        for service in &self.services {
            let value = bpf::Service {
                number: service.number,
                by_client: service.spec.by_client,
                two_choices: service
                    .spec
                    .choices
                    .unwrap_or(self.config.policy == Policy::Latency),
            };
            self.balancer.set_service(key(&service.spec), value)?;
        }
        // an index goes on counting when it changes hands
        let tallies = self.balancer.backend_tallies()?;
        for (index, tally) in tallies {
            self.tallies.entry(index).or_insert(tally);
        }
        self.drain_leaving()?;
        self.watch(&exits)?;
        self.say_empty();
        Ok(())
    }

    fn service(
        &self,
        spec: &config::Service,
        place: &Place,
        known: &Known,
    ) -> anyhow::Result<Service> {
        let backends = spec.backends.iter().zip(&place.backends);
        let backends = backends
            .map(|(backend, slot)| {
                let way = known.way(backend.address, spec.method);
                new_backend(spec, place.number, backend, slot, way)
            })
            .collect();
        let ring = self.balancer.ring(place.number)?;
        Ok(Service::new(spec.clone(), place.number, ring, backends))
    }
}

fn new_backend(
    service: &config::Service,
    number: u16,
    spec: &config::Backend,
    slot: &Slot,
    way: Result<NextHop, String>,
) -> Backend {
    let base = spec.weight.saturating_mul(UNIT);
    let (written, state) = match slot.before {
        Some(before) => {
            let weight = if before.weight == 0 {
                base
            } else {
                before.weight
            };
            let state = match before.state {
                bpf::State::Down => State::Down,
                bpf::State::Serving | bpf::State::Draining => State::Unknown,
            };
            (bpf::Backend { weight, ..before }, state)
        }
        None => (
            bpf::Backend {
                address: spec.address,
                source: spec.address,
                source_bits: 0,
                mac: [0; 6],
                own_mac: [0; 6],
                ifindex: 0,
                mtu: 0,
                method: match service.method {
                    Method::L2 => bpf::Method::L2,
                    Method::Ipip => bpf::Method::Ipip,
                },
                state: bpf::State::Down,
                drained: false,
                weight: base,
                service: number,
                generation: 0,
                identity: maglev::identity(&spec.name),
            },
            State::Unknown,
        ),
    };
    let state = match service.check.kind {
        Kind::None => State::Unchecked,
        Kind::Tcp | Kind::Http { .. } => state,
    };
    // what is kept of the next station holds while the kernel has forgotten it
    let way = way.map(|way| NextHop {
        mac: way
            .mac
            .or_else(|| slot.before.map(|b| b.mac).filter(|mac| *mac != [0; 6])),
        ..way
    });
    Backend::new(spec.clone(), slot.index, written, Health::new(state), way)
}
