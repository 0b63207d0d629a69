//! What is compared with what: the two settings that an application can have, and batchwise
//! choosing between them.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow, bail};
use plotters::style::RGBColor;
use serde::{Deserialize, Serialize};

use crate::engine::color::{BATCHWISE, NAGLE, NODELAY};
use crate::stats::median;

/// Names of arms, separated by commas: an experiment with fewer arms, for work on the lab itself.
const CHOICE: &str = "BATCHWISE_LAB_ARMS";

/// Who decides when small segments wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// TCP_NODELAY: the default of Redis and of its clients.
    Nodelay,
    /// Nagle's algorithm.
    Nagle,
    /// The application asks for TCP_NODELAY, and `batchwise tune` runs.
    Batchwise,
}

impl Arm {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nodelay, Self::Nagle, Self::Batchwise];
    /// Those that stay as they are.
    pub const STATIC: [Self; 2] = [Self::Nodelay, Self::Nagle];

    /// As in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nodelay => "nodelay",
            Self::Nagle => "nagle",
            Self::Batchwise => "batchwise",
        }
    }

    /// For people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Nodelay => "TCP_NODELAY",
            Self::Nagle => "Nagle",
            Self::Batchwise => "batchwise",
        }
    }

    /// In plots.
    pub fn color(self) -> RGBColor {
        match self {
            Self::Nodelay => NODELAY,
            Self::Nagle => NAGLE,
            Self::Batchwise => BATCHWISE,
        }
    }

    /// What the client asks for.
    pub fn nodelay(self) -> bool {
        self != Self::Nagle
    }
}

/// The median of a value, by the arm that its points are of.
pub fn medians<P>(points: &[&P], value: impl Fn(&P) -> (Arm, f64)) -> BTreeMap<Arm, f64> {
    let mut by_arm: BTreeMap<Arm, Vec<f64>> = BTreeMap::new();
    for (arm, value) in points.iter().map(|p| value(p)) {
        by_arm.entry(arm).or_default().push(value);
    }
    let by_arm = by_arm.iter();
    by_arm
        .filter_map(|(arm, of)| Some((*arm, median(of)?)))
        .collect()
}

/// The arms of a run: all, or those that the environment names.
pub fn chosen() -> Result<Vec<Arm>> {
    match std::env::var(CHOICE) {
        Ok(names) => among(&names),
        Err(_) => Ok(Arm::ALL.to_vec()),
    }
}

fn among(names: &str) -> Result<Vec<Arm>> {
    let one = |name: &str| {
        let known = Arm::ALL.into_iter().find(|arm| arm.name() == name.trim());
        known.ok_or_else(|| {
            let all = Arm::ALL.map(Arm::name).join(",");
            anyhow!("{CHOICE} names an arm {name:?} that there is not; there are {all}")
        })
    };
    let found: Vec<Arm> = names.split(',').map(one).collect::<Result<_>>()?;
    match Arm::STATIC.iter().all(|arm| found.contains(arm)) {
        true => Ok(found),
        false => bail!("{CHOICE} must name nodelay and nagle: everything is compared with them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tuned_arm_can_be_left_out_but_not_what_it_is_compared_with() {
        assert_eq!(among("nagle, nodelay").unwrap().len(), 2);
        assert!(among("batchwise").unwrap_err().to_string().contains("must"));
        assert!(among("nagle,x").unwrap_err().to_string().contains("\"x\""));
    }
}
