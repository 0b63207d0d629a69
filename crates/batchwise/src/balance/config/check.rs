//! The rules that a configuration keeps.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use anyhow::Result;
use batchwise_bpf::balance::{Method, Protocol};
use batchwise_core::balance::report::Policy;
use toml::Spanned;

use super::health::check;
use super::raw::Text;
use super::value::{HOUR, MS, Unique};
use super::{
    Backend, Config, INTERVALS, Lines, MOST_BACKENDS, MOST_SERVICES, Service, is_name, raw,
};

pub(super) fn config(lines: &Lines<'_>, raw: raw::Config) -> Result<Config> {
    let name = match &raw.name {
        None => "default".to_owned(),
        Some(name) if is_name(name.get_ref()) => name.get_ref().clone(),
        Some(name) => {
            let what = format!(
                "name {:?} cannot name files: use 1 to 32 of a-z, 0-9 and -, such as \"default\"",
                name.get_ref()
            );
            return Err(lines.wrong(&name.span(), what));
        }
    };
    let (interfaces, interfaces_line) = interfaces(lines, raw.interfaces)?;
    let policies = [
        ("latency", Policy::Latency),
        ("static", Policy::Static),
        ("observe", Policy::Observe),
    ];
    let policy = lines.word("policy", &raw.policy, &policies)?;
    let interval = lines.time("interval", &raw.interval, 500 * MS, INTERVALS)?;
    let flows = lines.number("flows", &raw.flows, 262_144, 1_024..=1 << 24)?;
    let (minute, day) = (60_000 * MS, 24 * HOUR);
    let drain_timeout = &raw.drain_timeout;
    let drain_timeout = lines.time("drain_timeout", drain_timeout, minute, Duration::ZERO..=day)?;
    if raw.service.is_empty() {
        let what = "there is no service: add a [[service]] with name, address, port and its [[service.backend]]s";
        return Err(lines.wrong(&(0..0), what));
    }
    let mut names = Unique::default();
    let mut keys = Unique::default();
    let mut services = Vec::new();
    let mut backends = 0;
    for one in raw.service {
        let span = one.span();
        if services.len() == MOST_SERVICES {
            let what =
                format!("more than {MOST_SERVICES} services: run another balancer for the rest");
            return Err(lines.wrong(&span, what));
        }
        let service = service(lines, &span, one.into_inner())?;
        let (name, remedy) = (&service.name, "give every service a name of its own");
        names.add(lines, &span, name, format!("service {name:?}"), remedy)?;
        let at = SocketAddr::new(service.address, service.port);
        let what = format!("the service at {at}");
        let remedy = "give it another address, port or protocol, or join the two";
        keys.add(lines, &span, (at, service.protocol), what, remedy)?;
        backends += service.backends.len();
        if backends > MOST_BACKENDS {
            let what =
                format!("more than {MOST_BACKENDS} backends: run another balancer for the rest");
            return Err(lines.wrong(&span, what));
        }
        services.push(service);
    }
    Ok(Config {
        file: lines.file.to_owned(),
        name,
        interfaces,
        interfaces_line,
        policy,
        interval,
        flows,
        drain_timeout,
        services,
    })
}

fn interfaces(
    lines: &Lines<'_>,
    raw: Option<Spanned<Vec<Spanned<String>>>>,
) -> Result<(Vec<String>, usize)> {
    let Some(raw) = raw.filter(|list| !list.get_ref().is_empty()) else {
        let what = "interfaces is missing: name those at which clients' packets arrive, such as interfaces = [\"eth0\"]";
        return Err(lines.wrong(&(0..0), what));
    };
    let line = lines.line(&raw.span());
    let mut unique = Unique::default();
    let mut names = Vec::new();
    for one in raw.into_inner() {
        let span = one.span();
        let name = one.into_inner();
        if name.is_empty() || name.len() > 15 || name.contains(['/', ' ']) {
            let what = format!(
                "{name:?} is no name of an interface: give one that `ip link` shows, such as \"eth0\""
            );
            return Err(lines.wrong(&span, what));
        }
        let what = format!("interface {name:?}");
        unique.add(lines, &span, &name, what, "name it once")?;
        names.push(name);
    }
    Ok((names, line))
}

fn service(lines: &Lines<'_>, span: &Range<usize>, raw: raw::Service) -> Result<Service> {
    let name = lines.label("service", span, &raw.name)?;
    let address = lines.address(&format!("service {name:?}"), span, &raw.address)?;
    if raw.port.is_none() {
        let what = format!(
            "service {name:?} has no port: add one, such as port = 80, or port = 0 for all"
        );
        return Err(lines.wrong(span, what));
    }
    let port = lines.number("port", &raw.port, 0, 0..=65_535)? as u16;
    let protocols = [("tcp", Protocol::Tcp), ("udp", Protocol::Udp)];
    let protocol = lines.word("protocol", &raw.protocol, &protocols)?;
    let methods = [("l2", Method::L2), ("ipip", Method::Ipip)];
    let method = lines.word("method", &raw.method, &methods)?;
    let affinities = [("connection", false), ("client", true)];
    let by_client = lines.word("affinity", &raw.affinity, &affinities)?;
    let choices = match &raw.choices {
        Some(given) if by_client && *given.get_ref() == 2 => {
            let what = format!(
                "service {name:?} sends all connections of a client to one backend, so that there \
                 is nothing to choose: take out choices or affinity = \"client\""
            );
            return Err(lines.wrong(&given.span(), what));
        }
        Some(given) if port == 0 && *given.get_ref() == 2 => {
            let what = format!(
                "service {name:?} is for all ports and keeps a client's connections from one port \
                 together, so that there is nothing to choose: take out choices, or give it a port"
            );
            return Err(lines.wrong(&given.span(), what));
        }
        Some(_) => Some(lines.number("choices", &raw.choices, 1, 1..=2)? == 2),
        None => None,
    };
    let check = check(lines, span, (&name, address, port, protocol), raw.health)?;
    let mut names = Unique::default();
    let mut addresses = Unique::default();
    let mut backends = Vec::new();
    for one in raw.backend {
        let span = one.span();
        let backend = backend(lines, &span, one.into_inner())?;
        let what = format!("backend {:?} of service {name:?}", backend.name);
        let remedy = "give every backend of a service a name of its own";
        names.add(lines, &span, &backend.name, what, remedy)?;
        let what = format!("backend address {} of service {name:?}", backend.address);
        let remedy = "raise the weight of the one instead";
        addresses.add(lines, &span, backend.address, what, remedy)?;
        if backend.address == address {
            let what = format!(
                "backend {:?} has the service's own address {address}: give the address at which \
                 the server itself is reached",
                backend.name
            );
            return Err(lines.wrong(&span, what));
        }
        if method == Method::L2 && backend.address.is_ipv4() != address.is_ipv4() {
            let what = format!(
                "backend {:?} ({}) and service {name:?} ({address}) are of different IP versions, \
                 between which method \"l2\" cannot go: use method = \"ipip\", or give the backend's other address",
                backend.name, backend.address
            );
            return Err(lines.wrong(&span, what));
        }
        backends.push(backend);
    }
    Ok(Service {
        line: lines.line(span),
        name,
        address,
        port,
        protocol,
        method,
        by_client,
        choices,
        tunnel_source: tunnel_source(lines, method, &raw.tunnel_source)?,
        allow_small_mtu: raw.allow_small_mtu,
        check,
        backends,
    })
}

fn tunnel_source(
    lines: &Lines<'_>,
    method: Method,
    given: &Text,
) -> Result<Option<(Ipv4Addr, u8)>> {
    let Some(given) = given else {
        return Ok(None);
    };
    let wrong = |what: String| lines.wrong(&given.span(), what);
    if method != Method::Ipip {
        let what = "tunnel_source is for method = \"ipip\": remove it, or change the method";
        return Err(wrong(what.to_owned()));
    }
    let text = given.get_ref();
    let prefix = text.split_once('/').and_then(|(address, bits)| {
        let (address, bits): (Ipv4Addr, u8) = (address.parse().ok()?, bits.parse().ok()?);
        let fits = (8..32).contains(&bits) && address.to_bits() << bits == 0;
        let routed = !address.is_loopback() && !address.is_multicast();
        (fits && routed).then_some((address, bits))
    });
    prefix.map(Some).ok_or_else(|| {
        wrong(format!(
            "tunnel_source {text:?} is no prefix of IPv4 sources: write its first address and its length, 8 \
             to 31, such as \"10.0.0.0/16\" (outer IPv6 headers have the flow label instead)"
        ))
    })
}

fn backend(lines: &Lines<'_>, span: &Range<usize>, raw: raw::Backend) -> Result<Backend> {
    let name = lines.label("backend", span, &raw.name)?;
    Ok(Backend {
        address: lines.address(&format!("backend {name:?}"), span, &raw.address)?,
        weight: lines.number("weight", &raw.weight, 100, 0..=10_000)?,
        line: lines.line(span),
        name,
    })
}
