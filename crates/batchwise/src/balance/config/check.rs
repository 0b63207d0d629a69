//! The rules that a configuration keeps.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use batchwise_bpf::balance::Protocol;
use batchwise_core::balance::report::Policy;
use batchwise_load::units::parse_duration;
use toml::Spanned;

use super::{
    Backend, Check, Config, Kind, Lines, MOST_BACKENDS, MOST_SERVICES, Method, Service, Wrong,
    is_name, raw,
};

type Result<T> = std::result::Result<T, Wrong>;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

pub(super) fn config(lines: &Lines<'_>, raw: raw::Config) -> Result<Config> {
    let name = match raw.name {
        Some(name) => {
            let text = name.get_ref();
            if !is_name(text) {
                let what = format!(
                    "name {text:?} cannot name files: use 1 to 32 of a-z, 0-9 and -, such as \"default\""
                );
                return Err(lines.wrong(&name.span(), what));
            }
            name.into_inner()
        }
        None => "default".to_owned(),
    };
    let (interfaces, interfaces_line) = interfaces(lines, raw.interfaces)?;
    let policy = word(
        lines,
        "policy",
        raw.policy.as_ref(),
        &[
            ("latency", Policy::Latency),
            ("static", Policy::Static),
            ("observe", Policy::Observe),
        ],
    )?;
    let interval = time(
        lines,
        "interval",
        raw.interval.as_ref(),
        500 * MS,
        10 * MS..=60_000 * MS,
    )?;
    let flows = number(lines, "flows", raw.flows.as_ref(), 262_144, 1_024..=1 << 24)?;
    let drain_timeout = time(
        lines,
        "drain_timeout",
        raw.drain_timeout.as_ref(),
        60_000 * MS,
        Duration::ZERO..=24 * HOUR,
    )?;
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
        let quoted = format!("service {:?}", service.name);
        names.add(lines, &span, service.name.clone(), || {
            (
                quoted.clone(),
                "give every service a name of its own".to_owned(),
            )
        })?;
        keys.add(
            lines,
            &span,
            (service.address, service.port, service.protocol),
            || {
                let at = SocketAddr::new(service.address, service.port);
                (
                    format!("the service at {at}"),
                    "give it another address, port or protocol, or join the two".to_owned(),
                )
            },
        )?;
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
        unique.add(lines, &span, name.clone(), || {
            (format!("interface {name:?}"), "name it once".to_owned())
        })?;
        names.push(name);
    }
    Ok((names, line))
}

fn service(lines: &Lines<'_>, span: &Range<usize>, raw: raw::Service) -> Result<Service> {
    let name = label(lines, "service", span, raw.name)?;
    let address = address(lines, &format!("service {name:?}"), span, raw.address)?;
    let Some(port) = &raw.port else {
        let what = format!(
            "service {name:?} has no port: add one, such as port = 80, or port = 0 for all"
        );
        return Err(lines.wrong(span, what));
    };
    let port = number(lines, "port", Some(port), 0, 0..=65_535)? as u16;
    let protocol = word(
        lines,
        "protocol",
        raw.protocol.as_ref(),
        &[("tcp", Protocol::Tcp), ("udp", Protocol::Udp)],
    )?;
    let method = word(
        lines,
        "method",
        raw.method.as_ref(),
        &[("l2", Method::L2), ("ipip", Method::Ipip)],
    )?;
    let by_client = word(
        lines,
        "affinity",
        raw.affinity.as_ref(),
        &[("connection", false), ("client", true)],
    )?;
    let choices = match &raw.choices {
        Some(given) if by_client && *given.get_ref() == 2 => {
            let what = format!(
                "service {name:?} sends all connections of a client to one backend, so that there \
                 is nothing to choose: take out choices or affinity = \"client\""
            );
            return Err(lines.wrong(&given.span(), what));
        }
        Some(_) => Some(number(lines, "choices", raw.choices.as_ref(), 1, 1..=2)? == 2),
        None => None,
    };
    let check = check(lines, span, (&name, address, port, protocol), raw.health)?;
    let mut names = Unique::default();
    let mut addresses = Unique::default();
    let mut backends = Vec::new();
    for one in raw.backend {
        let span = one.span();
        let backend = backend(lines, &span, one.into_inner())?;
        names.add(lines, &span, backend.name.clone(), || {
            (
                format!("backend {:?} of service {name:?}", backend.name),
                "give every backend of a service a name of its own".to_owned(),
            )
        })?;
        addresses.add(lines, &span, backend.address, || {
            (
                format!("backend address {} of service {name:?}", backend.address),
                "raise the weight of the one instead".to_owned(),
            )
        })?;
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
        allow_small_mtu: raw.allow_small_mtu,
        check,
        backends,
    })
}

fn backend(lines: &Lines<'_>, span: &Range<usize>, raw: raw::Backend) -> Result<Backend> {
    let name = label(lines, "backend", span, raw.name)?;
    Ok(Backend {
        address: address(lines, &format!("backend {name:?}"), span, raw.address)?,
        weight: number(lines, "weight", raw.weight.as_ref(), 100, 0..=10_000)?,
        line: lines.line(span),
        name,
    })
}

fn check(
    lines: &Lines<'_>,
    service: &Range<usize>,
    (name, address, own_port, protocol): (&str, IpAddr, u16, Protocol),
    raw: Option<Spanned<raw::Health>>,
) -> Result<Check> {
    let span = raw.as_ref().map_or_else(|| service.clone(), Spanned::span);
    let raw = raw.map(Spanned::into_inner).unwrap_or_default();
    #[derive(Clone, Copy, PartialEq)]
    enum How {
        None,
        Tcp,
        Http,
    }
    let words = [("tcp", How::Tcp), ("http", How::Http), ("none", How::None)];
    let how = match &raw.check {
        None if protocol == Protocol::Udp => How::None,
        given => word(lines, "check", given.as_ref(), &words)?,
    };
    let only_http = [
        ("path", &raw.path),
        ("host", &raw.host),
        ("status", &raw.status),
    ];
    if let Some((key, value)) = only_http.iter().find_map(|(k, v)| Some((k, v.as_ref()?)))
        && how != How::Http
    {
        let what = format!("{key} is for check = \"http\": remove it, or change the check");
        return Err(lines.wrong(&value.span(), what));
    }
    let port = number(
        lines,
        "port",
        raw.port.as_ref(),
        own_port.into(),
        0..=65_535,
    )? as u16;
    if how != How::None && port == 0 {
        let what = format!(
            "the health check of service {name:?} needs a port, as the service is for all: add \
             port = N below [service.health], or check = \"none\""
        );
        return Err(lines.wrong(&span, what));
    }
    if how != How::None && protocol == Protocol::Udp && raw.port.is_none() {
        let what = format!(
            "service {name:?} is udp and its health check needs a TCP port: add port = N below \
             [service.health], or check = \"none\""
        );
        return Err(lines.wrong(&span, what));
    }
    let kind = match how {
        How::None => Kind::None,
        How::Tcp => Kind::Tcp,
        How::Http => Kind::Http {
            path: visible(lines, "path", raw.path.as_ref(), "/", |p| {
                p.starts_with('/')
            })?,
            host: visible(
                lines,
                "host",
                raw.host.as_ref(),
                &host_of(address, port),
                |h| !h.is_empty(),
            )?,
            status: status(lines, raw.status.as_ref())?,
        },
    };
    let most = HOUR;
    Ok(Check {
        kind,
        port,
        interval: time(
            lines,
            "interval",
            raw.interval.as_ref(),
            1_000 * MS,
            10 * MS..=most,
        )?,
        timeout: time(
            lines,
            "timeout",
            raw.timeout.as_ref(),
            500 * MS,
            MS..=60_000 * MS,
        )?,
        rise: number(lines, "rise", raw.rise.as_ref(), 2, 1..=100)?,
        fall: number(lines, "fall", raw.fall.as_ref(), 3, 1..=100)?,
    })
}

fn host_of(address: IpAddr, port: u16) -> String {
    match port {
        80 => SocketAddr::new(address, port)
            .to_string()
            .trim_end_matches(":80")
            .to_owned(),
        _ => SocketAddr::new(address, port).to_string(),
    }
}

/// Text that may stand in the head of a request: neither blanks nor line ends.
fn visible(
    lines: &Lines<'_>,
    key: &str,
    given: Option<&Spanned<String>>,
    default: &str,
    holds: impl Fn(&str) -> bool,
) -> Result<String> {
    let Some(given) = given else {
        return Ok(default.to_owned());
    };
    let text = given.get_ref();
    if text.len() <= 1024 && text.bytes().all(|b| b.is_ascii_graphic()) && holds(text) {
        return Ok(text.clone());
    }
    let what = format!(
        "{key} {text:?} cannot stand in a request: write visible ASCII without blanks, such as {default:?}"
    );
    Err(lines.wrong(&given.span(), what))
}

fn status(lines: &Lines<'_>, given: Option<&Spanned<String>>) -> Result<RangeInclusive<u16>> {
    let Some(given) = given else {
        return Ok(200..=399);
    };
    let text = given.get_ref();
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let bounds = (from.trim().parse::<u16>(), to.trim().parse::<u16>());
    if let (Ok(from), Ok(to)) = bounds
        && from <= to
        && (100..=999).contains(&from)
        && to <= 999
    {
        return Ok(from..=to);
    }
    let what = format!(
        "status {text:?} is no range of HTTP statuses: write such as \"200-399\" or \"200\""
    );
    Err(lines.wrong(&given.span(), what))
}

/// A name for people and labels.
fn label(
    lines: &Lines<'_>,
    kind: &str,
    span: &Range<usize>,
    given: Option<Spanned<String>>,
) -> Result<String> {
    let Some(given) = given else {
        let what = format!("a {kind} has no name: add one, such as name = \"s1\"");
        return Err(lines.wrong(span, what));
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let text = given.get_ref();
    if text.is_empty() || text.len() > 64 || !text.chars().all(fits) {
        let what = format!(
            "{kind} name {text:?} does not fit: use 1 to 64 letters, digits, dots, _ and -"
        );
        return Err(lines.wrong(&given.span(), what));
    }
    Ok(given.into_inner())
}

fn address(
    lines: &Lines<'_>,
    of: &str,
    span: &Range<usize>,
    given: Option<Spanned<String>>,
) -> Result<IpAddr> {
    let Some(given) = given else {
        let what = format!("{of} has no address: add one, such as address = \"10.0.0.1\"");
        return Err(lines.wrong(span, what));
    };
    let text = given.get_ref();
    let Ok(address) = text.parse::<IpAddr>().map(|a| a.to_canonical()) else {
        let what = format!(
            "address {text:?} is no IP address: write numbers, without a port, such as \"10.0.0.1\" or \"2001:db8::1\""
        );
        return Err(lines.wrong(&given.span(), what));
    };
    let link_local = matches!(address, IpAddr::V6(a) if a.is_unicast_link_local());
    if address.is_unspecified() || address.is_multicast() || address.is_loopback() || link_local {
        let what = format!(
            "address {text:?} is none that packets are routed to: give a unicast address of a network"
        );
        return Err(lines.wrong(&given.span(), what));
    }
    Ok(address)
}

fn number(
    lines: &Lines<'_>,
    key: &str,
    given: Option<&Spanned<i64>>,
    default: u32,
    within: RangeInclusive<u32>,
) -> Result<u32> {
    let Some(given) = given else {
        return Ok(default);
    };
    let number = u32::try_from(*given.get_ref()).ok();
    number.filter(|n| within.contains(n)).ok_or_else(|| {
        let what = format!(
            "{key} = {} is out of bounds: write a number from {} to {}",
            given.get_ref(),
            within.start(),
            within.end()
        );
        lines.wrong(&given.span(), what)
    })
}

fn time(
    lines: &Lines<'_>,
    key: &str,
    given: Option<&Spanned<String>>,
    default: Duration,
    within: RangeInclusive<Duration>,
) -> Result<Duration> {
    let Some(given) = given else {
        return Ok(default);
    };
    let wrong = |why: String| {
        let what = format!("{key} {:?}: {why}", given.get_ref());
        lines.wrong(&given.span(), what)
    };
    let duration = parse_duration(given.get_ref()).map_err(&wrong)?;
    if within.contains(&duration) {
        return Ok(duration);
    }
    let (least, most) = (within.start(), within.end());
    Err(wrong(format!(
        "out of bounds: write a time from {} to {}",
        humantime::format_duration(*least),
        humantime::format_duration(*most)
    )))
}

/// One of `words`; the first when none is given.
fn word<T: Copy>(
    lines: &Lines<'_>,
    key: &str,
    given: Option<&Spanned<String>>,
    words: &[(&str, T)],
) -> Result<T> {
    let found = match given {
        None => words.first(),
        Some(given) => words.iter().find(|(word, _)| word == given.get_ref()),
    };
    match (found, given) {
        (Some((_, value)), _) => Ok(*value),
        (None, given) => {
            let names: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
            let text = given.map_or("", |g| g.get_ref());
            let what = format!("{key} {text:?} is unknown: write {}", names.join(" or "));
            let span = given.map_or(0..0, Spanned::span);
            Err(lines.wrong(&span, what))
        }
    }
}

/// Refuses what comes twice, with the line of the first.
struct Unique<K>(HashMap<K, usize>);

impl<K> Default for Unique<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash> Unique<K> {
    fn add(
        &mut self,
        lines: &Lines<'_>,
        span: &Range<usize>,
        key: K,
        told: impl FnOnce() -> (String, String),
    ) -> Result<()> {
        let line = lines.line(span);
        match self.0.insert(key, line) {
            None => Ok(()),
            Some(first) => {
                let (what, remedy) = told();
                let what = format!("{what} is there already, at line {first}: {remedy}");
                Err(lines.wrong(span, what))
            }
        }
    }
}
