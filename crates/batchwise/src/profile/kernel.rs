//! The functions of the kernel that runs here, and in which source file each is: by a table that
//! `make kernel-functions` makes from the sources of several kernels. Nobody edits it.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use anyhow::{Context, bail};
use batchwise_bpf::features::SYMBOLS_REMEDY;
use batchwise_core::profile::{Functions, Kernel};
use flate2::read::GzDecoder;
use nix::sys::utsname::uname;

/// A line a file: its path and its functions.
const TABLE: &[u8] = include_bytes!("functions.txt.gz");

/// Reads them.
pub fn read() -> anyhow::Result<Kernel> {
    let text = fs::read("/proc/kallsyms")
        .context("reading the kernel's functions (under systemd: without ProtectKernelTunables)")?;
    let text = String::from_utf8_lossy(&text);
    let table = unpack(TABLE).context("unpacking the table of functions")?;
    let modules = modules();
    let kernel = Kernel::of(text.lines(), &Functions::of(&table), |module| {
        modules.get(module).cloned()
    });
    // all are at 0 where the kernel hides them
    if kernel.symbols().len() < 2 {
        bail!("the kernel hides the addresses of its functions (/proc/kallsyms): {SYMBOLS_REMEDY}");
    }
    Ok(kernel)
}

fn unpack(packed: &[u8]) -> io::Result<String> {
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text)?;
    Ok(text)
}

/// Where in the sources the modules of this kernel are, by name. Empty where they are not to be seen, as in
/// containers.
fn modules() -> HashMap<String, String> {
    let release = uname().map(|name| name.release().to_owned());
    let list = release.ok().and_then(|release| {
        let path = Path::new("/lib/modules").join(release).join("modules.dep");
        fs::read_to_string(path).ok()
    });
    let list = list.unwrap_or_default();
    let paths = list.lines().filter_map(|line| line.split(':').next());
    let entry = |path: &str| {
        // kernel/drivers/net/veth.ko.xz
        let in_sources = path.strip_prefix("kernel/")?;
        let file = in_sources.rsplit('/').next()?;
        let name = file.split(".ko").next()?.replace('-', "_");
        Some((name, in_sources.to_owned()))
    };
    paths.filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use batchwise_core::profile::{Symbol, attribute};

    /// Lines of `/proc/kallsyms` around the labelled functions, by kernel.
    const KERNELS: [(&str, &[u8]); 2] = [
        (
            "6.1",
            include_bytes!("../../tests/flows/profile/kallsyms-6.1.txt.gz"),
        ),
        (
            "6.18",
            include_bytes!("../../tests/flows/profile/kallsyms-6.18.txt.gz"),
        ),
    ];

    #[test]
    fn functions_are_of_the_component_that_a_developer_says() {
        let labels = include_str!("../../tests/flows/profile/labels.txt").lines();
        let labels = labels
            .filter_map(|line| line.split_once(' '))
            .filter(|(of, _)| *of != "#");
        let labels: Vec<_> = labels.collect();
        let table = unpack(TABLE).expect("the table");
        let functions = Functions::of(&table);
        for (name, kallsyms) in KERNELS {
            let kallsyms = unpack(kallsyms).expect("functions of a kernel");
            let kernel = Kernel::of(kallsyms.lines(), &functions, |_| None);
            let base = |symbol: &&Symbol| symbol.name.split('.').next().map(str::to_owned);
            let (mut right, mut wrong) = (0, Vec::new());
            for (label, function) in &labels {
                let found = kernel
                    .symbols()
                    .iter()
                    .find(|s| base(s).as_deref() == Some(function));
                let Some(symbol) = found else {
                    continue; // not in this kernel
                };
                let at = attribute(std::iter::once(Some(symbol)), false);
                let said = serde_json::to_value(at.component).expect("a word");
                match said == *label {
                    true => right += 1,
                    false => wrong.push(format!("{function}: {said}, not {label}")),
                }
            }
            let all = right + wrong.len();
            assert!(
                all >= 300,
                "{name} has only {all} of the labelled functions"
            );
            let share = right as f64 / all as f64;
            assert!(
                share >= 0.95,
                "{name}: {share:.3} of {all} are right; wrong: {wrong:#?}"
            );
        }
    }
}
