//! Experiment `passive-transports`: memcached, and QUIC with small and with large responses (the
//! paper's Figures 9 and 10). QUIC's acknowledgments cannot be told from data by their headers: an
//! oracle, which knows that the requests here are larger, shows what they cost.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::curves::{Shown, Way};
use super::trial::{Point, Trial};
use super::trials::{Trials, by_arm, section};
use super::workload::{Service, Workload};
use crate::engine::Report;
use crate::truth::Errors;

/// Bytes of an Ethernet frame, at least, that the oracle takes to carry a request: the lab's
/// requests have headers of more than a hundred bytes, acknowledgments have none.
const REQUEST_FRAME: u32 = 150;

pub const TRANSPORTS: Trials<Summary> = Trials {
    name: "passive-transports",
    about: "latency from one direction of memcached and of QUIC",
    trials,
    summary: |points, _| Summary::of(points),
    report,
};

#[allow(clippy::unnecessary_wraps)] // what `Trials::trials` gives
fn trials(quick: bool) -> Result<Vec<Trial>> {
    let trial = |arm, service, connections, options: &[&str]| {
        let workload = Workload {
            service,
            duration: Duration::from_secs(if quick { 8 } else { 120 }),
            connections,
            rate: None,
            options: options.iter().map(|&option| option.to_owned()).collect(),
        };
        Trial::new(arm, workload, &[Shown::Latencies])
    };
    let quic = |arm, size| {
        let options = ["--streams", "1..16", "--response-size", size];
        let requests = format!(
            "udp port {} and greater {REQUEST_FRAME}",
            Service::Quic.port()
        );
        Trial {
            capture: Some((requests, &[Way::Oracle])),
            ..trial(arm, Service::Quic, 1, &options)
        }
    };
    let options = ["--value-size", "40..10000"];
    Ok(vec![
        trial("memcached", Service::Memcached, 10, &options),
        quic("quic-small", "30..130"),
        quic("quic-large", "1600..15100"),
    ])
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Median of the absolute relative errors, by arm.
    pub median_abs_rel_error: BTreeMap<String, Option<f64>>,
    pub median_rel_error: BTreeMap<String, Option<f64>>,
    pub per_arm: BTreeMap<String, Errors>,
    /// Errors by arm with an oracle that tells acknowledgments from requests.
    pub oracle: BTreeMap<String, Errors>,
}

impl Summary {
    fn of(points: &[Point]) -> Self {
        let oracle = |p: &Point| Some((p.arm.clone(), *p.baselines.get(&Way::Oracle)?));
        Self {
            median_abs_rel_error: by_arm(points, |p| p.errors.median_abs_rel_error),
            median_rel_error: by_arm(points, |p| p.errors.median_rel_error),
            per_arm: by_arm(points, |p| p.errors),
            oracle: points.iter().filter_map(oracle).collect(),
        }
    }
}

fn report(points: &[Point], _summary: &Summary) -> Report {
    Report::new(
        "Passive estimates of other transports",
        "memcached with as many gets as sets of 40 to 10000 bytes (Figure 10), and QUIC with 1 to \
         16 requests in flight (Figure 9).",
    )
    .heading("Arms")
    .parts(points.iter().flat_map(section))
    .text(
        "The oracle takes packets for requests by their size, which is known here: it has what \
         the paper assumed of QUIC's acknowledgments.",
    )
}
