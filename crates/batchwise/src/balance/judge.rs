//! Whether a configuration can work on this machine: judged against its links, routes, neighbours and
//! reverse-path filters before anything is changed.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use batchwise_bpf::balance::Method;

use super::config::{self, Config, Kind, Service, wrong};
use super::nexthop::{self, ETHERNET, Kernel, NetworkState, NextHop, Wanted, ask};

/// What every way of IPv6 carries (RFC 8200 5).
const IPV6_LEAST: u32 = 1280;
const ARP_STEP: Duration = Duration::from_millis(20);
/// `rp_filter` that drops what comes by another interface than answers to it would leave by (RFC 3704
/// 2.2).
const STRICT: u8 = 1;

/// A configuration that fits the machine, with what makes it so.
pub struct Checked {
    pub config: Config,
    pub known: NetworkState,
    /// Interfaces that health checks leave by, by index: their names.
    pub exits: BTreeMap<u32, String>,
    /// What is wrong, but was to be put up with.
    pub faults: Vec<Fault>,
}

/// What is wrong with a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub service: String,
    pub backend: String,
    /// What is wrong, with the remedy.
    pub what: String,
}

/// How a configuration is judged.
pub struct Terms<'a> {
    /// The balancer's program is attached already.
    pub attached: bool,
    /// Neighbours that do not answer within this are taken for down, for now.
    pub patience: Duration,
    /// What is wrong with such a backend, or with the checks of such a service, does not stop the
    /// others: it worked before.
    pub tolerates: &'a dyn Fn(&Service, Option<&config::Backend>) -> bool,
    /// The same for an interface of this name that is gone: packets arrived there before.
    pub tolerates_gone: &'a dyn Fn(&str) -> bool,
}

pub fn wanted(config: &Config, attached: bool) -> Wanted {
    let services = config.services.iter();
    let mut addresses: Vec<IpAddr> = services
        .flat_map(|s| s.backends.iter().map(|b| b.address).chain([s.address]))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    Wanted {
        addresses,
        arriving: config.interfaces.clone(),
        attached,
    }
}

/// Judges a configuration against the machine; `meanwhile` is called again and again while neighbours
/// are asked.
///
/// # Errors
/// It cannot work here, with file, line and remedy; or what `meanwhile` says.
pub fn check(
    kernel: &Kernel,
    config: Config,
    terms: &Terms<'_>,
    mut meanwhile: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Checked> {
    let wanted = wanted(&config, terms.attached);
    let mut known = kernel.know(&wanted)?;
    let faults = judge(&config, &known, terms)?;
    let mut exits = BTreeMap::new();
    for service in &config.services {
        match exit(service, &known, reverse_path_filter) {
            Ok(exit) => exits.extend(exit),
            // who follows the exits says it, until it is mended
            Err(_) if (terms.tolerates)(service, None) => {}
            Err(what) => return Err(wrong(&config.file, service.line, what)),
        }
    }
    let end = Instant::now() + terms.patience;
    silent(&config, &known).into_iter().for_each(ask);
    while Instant::now() < end && !silent(&config, &known).is_empty() {
        std::thread::sleep(ARP_STEP);
        meanwhile()?;
        known = kernel.know(&wanted)?;
    }
    Ok(Checked {
        config,
        known,
        exits,
        faults,
    })
}

/// Next stations whose MAC address is not known.
fn silent(config: &Config, known: &NetworkState) -> Vec<IpAddr> {
    let services = config.services.iter();
    let ways = services.flat_map(|s| s.backends.iter().map(|b| known.way(b.address, s.method)));
    let silent = ways.flatten().filter(|way| way.mac.is_none());
    silent.map(|way| way.station).collect()
}

fn judge(config: &Config, known: &NetworkState, terms: &Terms<'_>) -> anyhow::Result<Vec<Fault>> {
    let mut arriving = BTreeMap::new();
    for name in &config.interfaces {
        let Some(link) = known.link(name) else {
            if (terms.tolerates_gone)(name) {
                continue;
            }
            let names: Vec<&str> = known.links.values().map(|l| l.name.as_str()).collect();
            let what = format!(
                "there is no interface {name:?} in this network namespace: give one of {}",
                names.join(", ")
            );
            return Err(wrong(&config.file, config.interfaces_line, what));
        };
        arriving.insert(name.as_str(), link.mtu);
    }
    let mut faults = Vec::new();
    for service in &config.services {
        for backend in &service.backends {
            let way = known.way(backend.address, service.method);
            let way = way.and_then(|way| least(service, backend, &way).map(|()| way));
            let fits = way.and_then(|way| {
                if service.allow_small_mtu {
                    return Ok(());
                }
                room(service.method, backend, &way, &arriving)
            });
            match fits {
                Err(what) if (terms.tolerates)(service, Some(backend)) => faults.push(Fault {
                    service: service.name.clone(),
                    backend: backend.name.clone(),
                    what,
                }),
                fits => fits.map_err(|what| wrong(&config.file, backend.line, what))?,
            }
        }
    }
    Ok(faults)
}

/// IPv6 has no packets that must be smaller than its least MTU: who is told of less sends 1280 bytes
/// all the same (RFC 8200 5, RFC 8201 4).
fn least(service: &Service, backend: &config::Backend, way: &NextHop) -> Result<(), String> {
    let more = nexthop::overhead(service.method, backend.address);
    let needed = IPV6_LEAST + more;
    let mtu = u32::from(way.mtu);
    if service.address.is_ipv4() || mtu >= needed {
        return Ok(());
    }
    let interface = &way.interface;
    Err(format!(
        "IPv6 packets may always have {IPV6_LEAST} bytes, and the way to {} by {interface} (MTU {mtu}) leaves \
         {} for them: it needs an MTU of {needed} (`ip link set dev {interface} mtu {needed}`, and no smaller \
         `mtu` of its route), also with allow_small_mtu",
        backend.address,
        mtu.saturating_sub(more),
    ))
}

/// What clients send must fit, encapsulated if it is. Where packets leave as they came, the MTU does not tell how long
/// clients' are: then they are taken for at most Ethernet's 1500 bytes.
fn room(
    method: Method,
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
    let more = nexthop::overhead(method, backend.address);
    let needed = longest + more;
    if u32::from(way.mtu) >= needed {
        return Ok(());
    }
    let interface = &way.interface;
    let around = match more {
        0 => String::new(),
        more => format!(" with {more} bytes more around them"),
    };
    Err(format!(
        "clients' packets of {longest} bytes do not fit through {interface} (MTU {}){around}: raise it with `ip link set dev {interface} mtu {needed}` on all of the way to \
         {}, or keep clients' packets small (routes with `mtu {}` or `advmss`) and set allow_small_mtu = true, \
         then larger packets are answered with ICMP",
        way.mtu,
        backend.address,
        u32::from(way.mtu).saturating_sub(more),
    ))
}

/// The interface that health checks of a service leave by, if it has any.
fn exit(
    service: &Service,
    known: &NetworkState,
    filter: impl Fn(&str) -> u8,
) -> Result<Option<(u32, String)>, String> {
    let checked = service.check.kind != Kind::None;
    let exit = nexthop::service_route(known, service.address, checked)?;
    let Some((index, link)) = exit.filter(|_| checked) else {
        return Ok(None);
    };
    filtered(service, &link.name, known, filter)?;
    Ok(Some((index, link.name.clone())))
}

/// Answers to health checks come from the service's address, by a backend's link. There must be no
/// strict filter there, unless the route to the service's address is by the same link.
pub fn filtered(
    service: &Service,
    exit: &str,
    known: &NetworkState,
    filter: impl Fn(&str) -> u8,
) -> Result<(), String> {
    if service.address.is_ipv6() {
        return Ok(());
    }
    for backend in &service.backends {
        let Ok(way) = known.way(backend.address, service.method) else {
            continue;
        };
        let interface = &way.interface;
        if interface != exit && filter(interface) == STRICT {
            return Err(format!(
                "answers to health checks come from {} by {interface}, where a strict reverse-path filter \
                 drops them, as the route to that address is by {exit}: \
                 `sysctl -w net.ipv4.conf.{interface}.rp_filter=2`, or use check = \"none\"",
                service.address
            ));
        }
    }
    Ok(())
}

/// The filter in force at an interface: the larger of its own and of `all` (ip-sysctl.rst).
pub fn reverse_path_filter(interface: &str) -> u8 {
    let of = |name: &str| {
        let file = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        let text = fs::read_to_string(file).ok()?;
        text.trim().parse().ok()
    };
    of("all").max(of(interface)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::nexthop::{Link, Route};
    use super::super::samples;
    use super::*;

    fn known() -> NetworkState {
        let link = |name: &str| Link {
            name: name.to_owned(),
            mac: Some([2; 6]),
            mtu: 1500,
        };
        let route = |ifindex| {
            Ok(Route {
                ifindex,
                ..Route::default()
            })
        };
        let at = |text: &str| text.parse::<IpAddr>().expect("an address");
        NetworkState {
            links: [(2, link("eth0")), (3, link("bw-vip"))].into(),
            neighbours: BTreeMap::new(),
            routes: [(at("10.0.0.2"), route(2)), (at("10.9.0.1"), route(3))].into(),
            ..NetworkState::default()
        }
    }

    /// Judged where what does not hold worked before, or not.
    fn judged(config: &Config, known: &NetworkState, before: bool) -> anyhow::Result<Vec<Fault>> {
        let terms = Terms {
            attached: false,
            patience: Duration::ZERO,
            tolerates: &|_, _| before,
            tolerates_gone: &|name| before && name == "eth9",
        };
        judge(config, known, &terms)
    }

    fn config() -> Config {
        samples::config(&[("10.9.0.1", &["10.0.0.2"])])
    }

    #[test]
    fn a_strict_reverse_path_filter_is_refused_where_the_service_is_routed_elsewhere() {
        let (config, known) = (config(), known());
        let service = &config.services[0];
        let error = filtered(service, "bw-vip", &known, |_| 1).expect_err("strict");
        assert!(error.contains("conf.eth0.rp_filter=2"), "{error}");
        for (exit, filter) in [("bw-vip", 0), ("bw-vip", 2), ("eth0", 1)] {
            assert_eq!(filtered(service, exit, &known, |_| filter), Ok(()));
        }
    }

    #[test]
    fn a_way_too_narrow_for_clients_packets_is_refused_by_layer_2_too_unless_that_is_allowed() {
        let (mut config, mut known) = (config(), known());
        let narrow = Link {
            name: "eth1".to_owned(),
            mac: Some([2; 6]),
            mtu: 1400,
        };
        known.links.insert(4, narrow);
        for route in known.routes.values_mut().flatten() {
            route.ifindex = 4;
        }
        let error = judged(&config, &known, false).expect_err("1500 into 1400");
        let error = error.to_string();
        for word in [
            "t.toml:6: ",
            "packets of 1500 bytes do not fit through eth1 (MTU 1400): raise",
            "dev eth1 mtu 1500",
            "allow_small_mtu = true",
        ] {
            assert!(error.contains(word), "{word:?} is not in: {error}");
        }
        config.services[0].allow_small_mtu = true;
        assert!(judged(&config, &known, false).is_ok());
        // what leaves as it came fits
        config.services[0].allow_small_mtu = false;
        config.interfaces = vec!["eth1".to_owned()];
        assert!(judged(&config, &known, false).is_ok());
    }

    #[test]
    fn an_interface_that_is_gone_is_refused_unless_packets_arrived_there_before() {
        let (mut config, known) = (config(), known());
        config.interfaces = vec!["eth0".to_owned(), "eth9".to_owned()];
        let error = judged(&config, &known, false).expect_err("never there");
        let error = error.to_string();
        assert!(
            error.starts_with("t.toml:1: ") && error.contains("\"eth9\""),
            "{error}"
        );
        let faults = judged(&config, &known, true);
        assert_eq!(faults.expect("it is waited for"), []);
    }

    #[test]
    fn a_backend_without_a_route_is_refused_unless_it_is_tolerated() {
        let (config, mut known) = (config(), known());
        known.routes.clear();
        let error = judged(&config, &known, false).expect_err("no route");
        assert!(error.to_string().starts_with("t.toml:6: "), "{error}");
        let faults = judged(&config, &known, true).expect("tolerated");
        let fault = &faults[0];
        assert_eq!((&*fault.service, &*fault.backend), ("w0", "s10.0.0.2"));
    }

    #[test]
    fn an_ipv6_service_is_refused_where_the_way_leaves_less_than_ipv6_needs_also_if_small_is_allowed()
     {
        let refused = |address: &str, backend: &str, method, mtu| {
            let mut config = config();
            let service = &mut config.services[0];
            (service.method, service.allow_small_mtu) = (method, true);
            service.address = address.parse().expect("an address");
            service.backends[0].address = backend.parse().expect("an address");
            let mut known = known();
            known.links.entry(2).and_modify(|link| link.mtu = mtu);
            let route = known.routes.values().next().expect("a route").clone();
            known.routes = [(backend.parse().expect("an address"), route)].into();
            let judged = judged(&config, &known, false);
            judged.err().map(|error| error.to_string())
        };
        for (address, backend, method, least) in [
            ("fd00::1", "fd01::2", Method::Ipip, 1320),
            ("fd00::1", "10.0.0.2", Method::Ipip, 1300),
            ("fd00::1", "fd01::2", Method::L2, 1280),
        ] {
            assert_eq!(refused(address, backend, method, least), None);
            let error = refused(address, backend, method, least - 1).expect("too small");
            let remedy = format!("`ip link set dev eth0 mtu {least}`");
            assert!(
                error.contains("leaves 1279") && error.contains(&remedy),
                "{error}"
            );
        }
        assert_eq!(refused("10.9.0.1", "10.0.0.2", Method::Ipip, 600), None);
    }
}
