//! Single values of a configuration: their bounds, and what a wrong one is told.

use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use anyhow::Result;

use super::Lines;
use super::raw::{Number, Text};
use crate::frame::args::parse_duration;

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const HOUR: Duration = Duration::from_secs(3600);

impl Lines<'_> {
    /// A name for people and labels.
    pub(super) fn label(&self, kind: &str, span: &Range<usize>, given: &Text) -> Result<String> {
        let Some(given) = given else {
            let what = format!("a {kind} has no name: add one, such as name = \"s1\"");
            return Err(self.wrong(span, what));
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let text = given.get_ref();
        if text.is_empty() || text.len() > 64 || !text.chars().all(fits) {
            let what = format!(
                "{kind} name {text:?} does not fit: use 1 to 64 letters, digits, dots, _ and -"
            );
            return Err(self.wrong(&given.span(), what));
        }
        Ok(text.clone())
    }

    pub(super) fn address(&self, of: &str, span: &Range<usize>, given: &Text) -> Result<IpAddr> {
        let Some(given) = given else {
            let what = format!("{of} has no address: add one, such as address = \"10.0.0.1\"");
            return Err(self.wrong(span, what));
        };
        let text = given.get_ref();
        let Ok(address) = text.parse::<IpAddr>().map(|a| a.to_canonical()) else {
            let what = format!(
                "address {text:?} is no IP address: write numbers, without a port, such as \"10.0.0.1\" or \"2001:db8::1\""
            );
            return Err(self.wrong(&given.span(), what));
        };
        let link_local = matches!(address, IpAddr::V6(a) if a.is_unicast_link_local());
        if address.is_unspecified() || address.is_multicast() || address.is_loopback() || link_local
        {
            let what = format!(
                "address {text:?} is none that packets are routed to: give a unicast address of a network"
            );
            return Err(self.wrong(&given.span(), what));
        }
        Ok(address)
    }

    pub(super) fn number(
        &self,
        key: &str,
        given: &Number,
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
            self.wrong(&given.span(), what)
        })
    }

    pub(super) fn time(
        &self,
        key: &str,
        given: &Text,
        default: Duration,
        within: RangeInclusive<Duration>,
    ) -> Result<Duration> {
        let Some(given) = given else {
            return Ok(default);
        };
        let wrong = |why: String| {
            let what = format!("{key} {:?}: {why}", given.get_ref());
            self.wrong(&given.span(), what)
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
    pub(super) fn word<T: Copy>(&self, key: &str, given: &Text, words: &[(&str, T)]) -> Result<T> {
        let Some(given) = given else {
            return Ok(words[0].1);
        };
        let text = given.get_ref();
        if let Some((_, value)) = words.iter().find(|(word, _)| word == text) {
            return Ok(*value);
        }
        let names: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        let what = format!("{key} {text:?} is unknown: write {}", names.join(" or "));
        Err(self.wrong(&given.span(), what))
    }
}

/// Refuses what comes twice, with the line of the first.
#[derive(Default)]
pub(super) struct Unique(HashMap<String, usize>);

impl Unique {
    pub(super) fn add(
        &mut self,
        lines: &Lines<'_>,
        span: &Range<usize>,
        key: impl Debug,
        what: impl Display,
        remedy: &str,
    ) -> Result<()> {
        let before = self.0.insert(format!("{key:?}"), lines.line(span));
        before.map_or(Ok(()), |first| {
            let what = format!("{what} is there already, at line {first}: {remedy}");
            Err(lines.wrong(span, what))
        })
    }
}
