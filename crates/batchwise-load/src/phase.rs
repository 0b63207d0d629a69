//! A load that changes under way: where each of its phases lies in a run.

use crate::config::Config;
use crate::rate::Rate;

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
    let mut sizes = Vec::new();
    let mut from = config.warmup.as_nanos() as u64;
    let stretches = config.phases().into_iter().map(|phase| {
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
    use clap::Parser;

    use super::*;

    #[test]
    fn phases_follow_each_other_after_the_warm_up_and_share_value_sizes() {
        let line = "redis --addr 127.0.0.1:1 --warmup 100ns --get-ratio 0.5 \
                    --schedule 10ns:1@64,20ns:1@4096/0.1,5ns:1@64";
        let (stretches, sizes) = timeline(&Config::parse_from(line.split_whitespace()));
        assert_eq!(sizes, [64, 4096]);
        let found = stretches
            .iter()
            .map(|s| (s.from, s.to, s.size, s.get_ratio));
        let expected = [(100, 110, 0, 0.5), (110, 130, 1, 0.1), (130, 135, 0, 0.5)];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
