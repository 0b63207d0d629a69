//! The functions of the kernel that runs here.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use batchwise_bpf::features::SYMBOLS_REMEDY;
use batchwise_core::profile::{Functions, Kernel};
use nix::sys::utsname::uname;

/// Reads them.
pub fn read() -> anyhow::Result<Kernel> {
    let text = fs::read("/proc/kallsyms")
        .context("reading the kernel's functions (under systemd: without ProtectKernelTunables)")?;
    let text = String::from_utf8_lossy(&text);
    let modules = modules();
    let kernel = Kernel::of(text.lines(), &Functions::default(), |module| {
        modules.get(module).cloned()
    });
    // all are at 0 where the kernel hides them
    if kernel.symbols().len() < 2 {
        bail!("the kernel hides the addresses of its functions (/proc/kallsyms): {SYMBOLS_REMEDY}");
    }
    Ok(kernel)
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
