//! Whatever batchwise reads that others wrote, fed with what nobody would write. A target takes any bytes
//! and panics where it finds a fault; the fuzzer (libFuzzer) makes bytes of those in `seeds/` that reach
//! new code. How to run them, and to add one: CONTRIBUTING.md.

mod capture;
mod configuration;
mod control;
mod endpoint;
mod gaps;
mod health;
mod hints;
mod icmp;
mod input;
mod metrics;
mod options;
mod packet;
mod send;
mod tunnel;
mod window;

/// Takes any bytes.
pub type Target = fn(&[u8]);

/// All of them, by the names of their folders of seeds.
pub const TARGETS: &[(&str, Target)] = &[
    ("capture", capture::run),
    ("configuration", configuration::run),
    ("control", control::run),
    ("endpoint", endpoint::run),
    ("gaps", gaps::run),
    ("health", health::run),
    ("hints", hints::run),
    ("icmp", icmp::run),
    ("metrics", metrics::run),
    ("options", options::run),
    ("packet", packet::run),
    ("tunnel", tunnel::run),
    ("window", window::run),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_target_has_seeds_by_which_it_is_found() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds");
        let names = std::fs::read_dir(folder).expect("seeds").map(|entry| {
            let name = entry.expect("a folder").file_name();
            name.into_string().expect("plain letters")
        });
        let targets = TARGETS.iter().map(|(name, _)| (*name).to_owned());
        assert_eq!(names.collect::<BTreeSet<_>>(), targets.collect());
    }
}
