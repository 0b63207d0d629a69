//! A load that changes under way: where each of its phases lies in a run.

use crate::config::{Config, Mode, Phase, Rate};

/// A phase of a run, placed in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stretch {
    /// Its first moment, ns since the start of the run.
    pub from: u64,
    /// Its end.
    pub to: u64,
    /// Requests a second; 0 in a closed loop.
    pub rate: Rate,
    pub get_ratio: f64,
    /// Bytes in a value.
    pub value_size: u64,
    /// Which of the run's value sizes that is.
    pub size: u16,
}

/// The phases of a run, of which there is at least one, and its different value sizes.
pub(crate) fn timeline(config: &Config) -> (Vec<Stretch>, Vec<usize>) {
    let rate = match config.mode {
        Mode::Open { rate, .. } => rate,
        Mode::Closed { .. } => Rate::constant(0.0),
    };
    let only = [Phase {
        duration: config.duration,
        rate,
        value_size: config.value_size,
        get_ratio: None,
    }];
    let phases = match config.phases.is_empty() {
        true => &only[..],
        false => &config.phases,
    };
    let mut sizes = Vec::new();
    let mut from = config.warmup.as_nanos() as u64;
    let stretches = phases.iter().map(|phase| {
        let known = sizes.iter().position(|&size| size == phase.value_size);
        let size = known.unwrap_or_else(|| {
            sizes.push(phase.value_size);
            sizes.len() - 1
        });
        let stretch = Stretch {
            from,
            to: from + phase.duration.as_nanos() as u64,
            rate: phase.rate,
            get_ratio: phase.get_ratio.unwrap_or(config.get_ratio),
            value_size: phase.value_size as u64,
            size: size as u16,
        };
        from = stretch.to;
        stretch
    });
    (stretches.collect(), sizes)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn phases_follow_each_other_after_the_warm_up_and_share_value_sizes() {
        let mut config = Config::new("127.0.0.1:1".parse().unwrap());
        config.warmup = Duration::from_nanos(100);
        config.get_ratio = 0.5;
        let phase = |ns, value_size, get_ratio| Phase {
            duration: Duration::from_nanos(ns),
            rate: Rate::constant(1.0),
            value_size,
            get_ratio,
        };
        config.phases = vec![
            phase(10, 64, None),
            phase(20, 4096, Some(0.1)),
            phase(5, 64, None),
        ];
        let (stretches, sizes) = timeline(&config);
        assert_eq!(sizes, [64, 4096]);
        let found: Vec<_> = stretches
            .iter()
            .map(|s| (s.from, s.to, s.size, s.get_ratio))
            .collect();
        assert_eq!(
            found,
            [(100, 110, 0, 0.5), (110, 130, 1, 0.1), (130, 135, 0, 0.5)]
        );
    }
}
