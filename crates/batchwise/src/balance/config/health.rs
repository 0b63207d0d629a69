//! The rules of health checks.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Range, RangeInclusive};

use batchwise_bpf::balance::Protocol;
use toml::Spanned;

use super::value::{HOUR, MS, Result, number, time, word};
use super::{Check, Kind, Lines, raw};

pub(super) fn check(
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
