//! The rules of health checks.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Range, RangeInclusive};

use anyhow::Result;
use batchwise_bpf::balance::Protocol;
use toml::Spanned;

use super::raw::Text;
use super::value::{HOUR, MS};
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
        given => lines.word("check", given, &words)?,
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
    let port = lines.number("port", &raw.port, own_port.into(), 0..=65_535)? as u16;
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
        How::Http => {
            let host = SocketAddr::new(address, port).to_string();
            let host = host.strip_suffix(":80").unwrap_or(&host);
            Kind::Http {
                path: visible(lines, "path", &raw.path, "/", "/")?,
                host: visible(lines, "host", &raw.host, host, "")?,
                status: status(lines, &raw.status)?,
            }
        }
    };
    Ok(Check {
        kind,
        port,
        interval: lines.time("interval", &raw.interval, 1_000 * MS, 10 * MS..=HOUR)?,
        timeout: lines.time("timeout", &raw.timeout, 500 * MS, MS..=60_000 * MS)?,
        rise: lines.number("rise", &raw.rise, 2, 1..=100)?,
        fall: lines.number("fall", &raw.fall, 3, 1..=100)?,
    })
}

/// Text that may stand in the head of a request: neither blanks nor line ends.
fn visible(
    lines: &Lines<'_>,
    key: &str,
    given: &Text,
    default: &str,
    begin: &str,
) -> Result<String> {
    let Some(given) = given else {
        return Ok(default.to_owned());
    };
    let text = given.get_ref();
    let visible = text.bytes().all(|b| b.is_ascii_graphic());
    if visible && (1..=1024).contains(&text.len()) && text.starts_with(begin) {
        return Ok(text.clone());
    }
    let what = format!(
        "{key} {text:?} cannot stand in a request: write visible ASCII without blanks, such as {default:?}"
    );
    Err(lines.wrong(&given.span(), what))
}

fn status(lines: &Lines<'_>, given: &Text) -> Result<RangeInclusive<u16>> {
    let Some(given) = given else {
        return Ok(200..=399);
    };
    let text = given.get_ref();
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    match (from.trim().parse(), to.trim().parse()) {
        (Ok(from @ 100..), Ok(to @ ..=999)) if from <= to => Ok(from..=to),
        _ => {
            let what = format!(
                "status {text:?} is no range of HTTP statuses: write such as \"200-399\" or \"200\""
            );
            Err(lines.wrong(&given.span(), what))
        }
    }
}
