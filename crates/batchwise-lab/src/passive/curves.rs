//! What figures show of a trial, reduced to curves that stay in `result.json`, and how they are drawn.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::observer::EPOCH;
use crate::engine::color::{BATCHWISE, BLACK, Color, NAGLE, NODELAY};
use crate::engine::figure::{Axis, Figure, Unit, shares};
use crate::truth::{Paired, Truth, against_triggered, by_connection, over_time, relative};

/// An epoch that is further off than this is an error in the sense of the paper's Figure 4.
const OFF: f64 = 0.15;

/// Where a latency comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The client: until the response, of each request.
    ReqToRes,
    /// The same, means of epochs: the truth.
    Mean,
    /// The client: until the triggered request. No estimate, but the most that one from the path
    /// can be.
    ReqToReq,
    /// SYN to ACK at the vantage.
    SynAck,
    /// The kernel's smoothed round-trip time at the client.
    TcpProbe,
    /// Round-trip times from data to acknowledgment, in a capture at the client.
    AckRtt,
    /// `batchwise passive` over a capture of requests alone.
    Oracle,
    /// `batchwise passive` over a capture, with its default estimator.
    Auto,
    /// Gaps with both of the paper's heuristics.
    Modes,
    /// The paper's Algorithm 2.
    Paper,
    /// The same with another width of a mode.
    #[serde(rename = "paper:100us")]
    Paper100us,
    /// The paper's Algorithm 1.
    #[serde(rename = "fixed:1ms")]
    Fixed1ms,
    /// `batchwise passive` at the vantage.
    Passive,
}

impl Way {
    /// Other estimators beside ours.
    pub const BASELINES: [Self; 3] = [Self::SynAck, Self::TcpProbe, Self::AckRtt];

    /// In legends: its name, its colour, whether it is dashed.
    fn style(self) -> (&'static str, Color, bool) {
        match self {
            Self::ReqToRes => ("req-to-res", BLACK, true),
            Self::Mean => ("req-to-res, mean by epoch", BLACK, false),
            Self::ReqToReq => ("req-to-req, at the client", Color(150, 150, 150), true),
            Self::SynAck => ("SYN to ACK", Color(164, 118, 168), false),
            Self::TcpProbe => ("tcp_probe", NODELAY, false),
            Self::AckRtt => ("ACK times (tshark)", NAGLE, false),
            Self::Oracle => ("with an oracle", NODELAY, true),
            Self::Auto => ("auto", BATCHWISE, false),
            Self::Modes => ("modes", NODELAY, false),
            Self::Paper => ("paper", NAGLE, false),
            Self::Paper100us => ("paper:100us", Color(226, 168, 76), false),
            Self::Fixed1ms => ("fixed:1ms", Color(164, 118, 168), false),
            Self::Passive => ("batchwise passive", BATCHWISE, false),
        }
    }

    /// For people, and as the option `--estimator` of those that are one.
    pub fn label(self) -> &'static str {
        self.style().0
    }
}

/// What a trial knows of every connection and epoch.
#[derive(Debug)]
pub struct Measured {
    pub truth: Truth,
    /// Begin of what counts, ns since 1970.
    pub from_ns: u64,
    /// The epochs with truth and estimate.
    pub ways: BTreeMap<Way, Vec<Paired>>,
}

impl Measured {
    /// Ours.
    pub fn passive(&self) -> &[Paired] {
        self.ways.get(&Way::Passive).map_or(&[], Vec::as_slice)
    }

    /// All connections together over time.
    pub fn server(&self, epochs: &[Paired]) -> Vec<Paired> {
        over_time(epochs, self.from_ns, EPOCH.as_nanos() as u64)
    }
}

/// x and y, or a value and how often it counts.
type Points = Vec<(f64, f64)>;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Curve {
    pub way: Way,
    pub points: Points,
}

/// Figures by what is on x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shown {
    /// Distributions of latencies, and of estimates by epoch.
    Latencies,
    /// Distributions of errors of epochs.
    AbsoluteErrors,
    /// Distributions of relative errors of epochs.
    RelativeErrors,
    /// Distributions of relative errors of connections' means.
    ConnectionErrors,
    /// By connection: the share of epochs that are off.
    ShareOff,
    /// By connection: their mean relative error.
    SizeOff,
    /// All connections together.
    ServerOverTime,
    /// The connection with the most requests.
    ConnectionOverTime,
}

impl Shown {
    pub fn curves(self, measured: &Measured) -> Vec<Curve> {
        let each = |of: &dyn Fn(&[Paired]) -> Points| -> Vec<Curve> {
            let curve = |(&way, epochs): (&Way, &Vec<Paired>)| Curve {
                way,
                points: of(epochs),
            };
            measured.ways.iter().map(curve).collect()
        };
        let series = |of: &dyn Fn(&[Paired]) -> Vec<Paired>| {
            let mut curves = vec![Curve {
                way: Way::Mean,
                points: line(measured, &of(measured.passive()), |e| Some(e.response_ns)),
            }];
            curves.extend(each(&|epochs| {
                line(measured, &of(epochs), |e| e.estimate_ns)
            }));
            curves.retain(|curve| curve.way != Way::ReqToReq);
            curves
        };
        match self {
            Self::Latencies => {
                let mut curves = truths(measured);
                let of = |epochs: &[Paired]| weighted(epochs, |e| e.estimate_ns);
                let estimated = each(&|epochs| inner(&of(epochs)));
                curves.extend(estimated.into_iter().filter(|c| c.way != Way::ReqToReq));
                curves
            }
            Self::AbsoluteErrors => {
                let error = |e: &Paired| Some((e.response_ns - e.estimate_ns?).abs());
                each(&|epochs| inner(&weighted(epochs, error)))
            }
            Self::RelativeErrors => each(&|epochs| inner(&relative(epochs))),
            Self::ConnectionErrors => each(&|epochs| inner(&relative(&by_connection(epochs)))),
            Self::ShareOff | Self::SizeOff => {
                let (share, size) = off_by_connection(measured.passive());
                let samples = if self == Self::ShareOff { share } else { size };
                vec![Curve {
                    way: Way::Passive,
                    points: shares(&samples),
                }]
            }
            Self::ServerOverTime => series(&|epochs| measured.server(epochs)),
            Self::ConnectionOverTime => {
                let connections = by_connection(measured.passive());
                let busiest = connections.iter().max_by_key(|c| c.responses);
                let client = busiest.map(|c| c.client);
                let own = |e: &&Paired| Some(e.client) == client;
                series(&|epochs| epochs.iter().filter(own).cloned().collect())
            }
        }
    }

    /// Draws them, of this arm.
    pub fn figure<'a>(self, arm: &str, curves: impl IntoIterator<Item = &'a Curve>) -> Figure {
        let latency = |name| Axis::new(name, Unit::Duration).log();
        let error = |most: f64| Axis::new("relative error", Unit::Percent).between(-most, most);
        let share = |of| Axis::new(format!("share of {of}"), Unit::Percent).between(0.0, 1.0);
        let (what, x, y) = match self {
            Self::Latencies => ("Latencies", latency("latency"), share("responses")),
            Self::AbsoluteErrors => (
                "Absolute errors",
                latency("absolute error"),
                share("responses"),
            ),
            Self::RelativeErrors => ("Relative errors", error(0.5), share("responses")),
            Self::ConnectionErrors => ("Connection errors", error(0.5), share("responses")),
            Self::ShareOff => (
                "Share of epochs that are off",
                share("epochs"),
                share("connections"),
            ),
            Self::SizeOff => ("Mean error of these", error(1.0), share("connections")),
            Self::ServerOverTime => ("Server over time", Axis::seconds(), Axis::latency()),
            Self::ConnectionOverTime => ("Connection over time", Axis::seconds(), Axis::latency()),
        };
        let name = what.to_lowercase().replace(' ', "-");
        let file = format!("{name}-{}.svg", arm.replace('%', ""));
        let empty = Figure::new(file, format!("{what}, {arm}"), x, y);
        curves.into_iter().fold(empty, |figure, curve| {
            let (label, color, dashed) = curve.way.style();
            match dashed {
                true => figure.dashed(label, color, curve.points.clone()),
                false => figure.line(label, color, curve.points.clone()),
            }
        })
    }
}

/// The truth: by response, and its means by epoch.
fn truths(measured: &Measured) -> Vec<Curve> {
    let requests = || measured.truth.requests();
    let once = |value: f64| (value, 1.0);
    let responses: Vec<_> = requests().map(|r| once(r.latency())).collect();
    let triggered = requests().filter_map(|r| r.to_triggered()).map(once);
    let means = weighted(measured.passive(), |e| Some(e.response_ns));
    [
        (Way::ReqToRes, responses),
        (Way::ReqToReq, triggered.collect()),
        (Way::Mean, means),
    ]
    .map(|(way, samples)| Curve {
        way,
        points: inner(&samples),
    })
    .into()
}

/// Values that count as often as their epochs have responses.
fn weighted(epochs: &[Paired], value: impl Fn(&Paired) -> Option<f64>) -> Points {
    let sample = |epoch: &Paired| Some((value(epoch)?, epoch.responses as f64));
    epochs.iter().filter_map(sample).collect()
}

/// A distribution without its outermost half percents, which would stretch the axis.
fn inner(samples: &[(f64, f64)]) -> Points {
    let mut points = shares(samples);
    points.pop();
    points.drain(..1.min(points.len()));
    points
}

fn line(measured: &Measured, epochs: &[Paired], value: impl Fn(&Paired) -> Option<f64>) -> Points {
    let point = |epoch: &Paired| {
        let middle = epoch.start_ns.midpoint(epoch.end_ns);
        let seconds = middle.saturating_sub(measured.from_ns) as f64 / 1e9;
        Some((seconds, value(epoch)?))
    };
    let mut points: Vec<_> = epochs.iter().filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// By connection: the share of epochs that are off, and their mean relative error, against the
/// time to the triggered request.
fn off_by_connection(epochs: &[Paired]) -> (Points, Points) {
    let mut connections: BTreeMap<SocketAddr, Vec<f64>> = BTreeMap::new();
    for epoch in against_triggered(epochs) {
        let errors = relative(std::slice::from_ref(&epoch));
        let errors = errors.iter().map(|(error, _)| *error);
        connections.entry(epoch.client).or_default().extend(errors);
    }
    let (mut share, mut size) = (Points::new(), Points::new());
    for errors in connections.values().filter(|errors| !errors.is_empty()) {
        let off: Vec<_> = errors.iter().filter(|error| error.abs() > OFF).collect();
        share.push((off.len() as f64 / errors.len() as f64, 1.0));
        if !off.is_empty() {
            size.push((off.iter().copied().sum::<f64>() / off.len() as f64, 1.0));
        }
    }
    (share, size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(estimates: &[f64]) -> Measured {
        let epoch = |(second, &estimate): (u64, &f64)| Paired {
            client: "10.78.0.2:5000".parse().unwrap(),
            start_ns: second * 1_000_000_000,
            end_ns: (second + 1) * 1_000_000_000,
            responses: 10,
            response_ns: 100.0,
            triggered_ns: Some(110.0),
            estimate_ns: Some(estimate),
        };
        let epochs: Vec<_> = (0..).zip(estimates).map(epoch).collect();
        Measured {
            truth: Truth::default(),
            from_ns: 0,
            ways: [(Way::ReqToReq, epochs.clone()), (Way::Passive, epochs)].into(),
        }
    }

    #[test]
    fn an_epoch_is_off_by_the_time_to_the_triggered_request() {
        // 100 is within 15 % of 110, 90 is not.
        let (share, size) = off_by_connection(measured(&[100.0, 120.0, 55.0, 90.0]).passive());
        assert_eq!(share, [(0.5, 1.0)]);
        assert!((size[0].0 - (0.5 + 2.0 / 11.0) / 2.0).abs() < 1e-9);
    }

    #[test]
    fn over_time_the_truth_is_beside_estimates_and_the_client_is_none() {
        let curves = Shown::ServerOverTime.curves(&measured(&[90.0, 80.0]));
        let ways: Vec<_> = curves.iter().map(|curve| curve.way).collect();
        assert_eq!(ways, [Way::Mean, Way::Passive]);
        assert_eq!(curves[0].points, [(0.5, 100.0), (1.5, 100.0)]);
        assert_eq!(curves[1].points, [(0.5, 90.0), (1.5, 80.0)]);
    }

    #[test]
    fn without_epochs_figures_are_empty() {
        let one = [Shown::Latencies, Shown::SizeOff, Shown::ConnectionOverTime];
        for shown in one {
            let curves = shown.curves(&measured(&[]));
            assert!(curves.iter().all(|curve| curve.points.is_empty()));
            assert_eq!(shown.figure("loss-1%", &curves).layers.len(), curves.len());
        }
    }
}
