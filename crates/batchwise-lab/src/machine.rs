//! What results depend on and a reader cannot see: kernel, CPU, date.

use std::fs;
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use serde::Serialize;

/// The machine that an experiment ran on.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub kernel: String,
    /// Model name from /proc/cpuinfo.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// `net.core.bpf_jit_enable`.
    pub bpf_jit: String,
    /// Load averages when the run began (1, 5 and 15 minutes): what else kept the machine busy.
    pub load_average: String,
    /// When the run began, RFC 3339 in UTC.
    pub date: String,
    pub batchwise: String,
}

impl Machine {
    pub fn probe() -> Result<Self> {
        let read = |path: &str| -> Result<String> {
            let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
            Ok(text.trim().to_owned())
        };
        let load_average = read("/proc/loadavg")?;
        let load_average: Vec<_> = load_average.split(' ').take(3).collect();
        let load_average = load_average.join(" ");
        Ok(Self {
            kernel: read("/proc/sys/kernel/osrelease")?,
            cpu: cpu_model(&read("/proc/cpuinfo")?),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            bpf_jit: read("/proc/sys/net/core/bpf_jit_enable").unwrap_or_else(|_| "unknown".into()),
            load_average,
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            batchwise: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }
}

fn cpu_model(cpuinfo: &str) -> String {
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    field("model name")
        .or_else(|| field("CPU implementer"))
        .unwrap_or_else(|| "unknown".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_model_is_the_first_model_name() {
        let info = "processor\t: 0\nmodel name\t: Fast CPU\nmodel name\t: Other\n";
        assert_eq!(cpu_model(info), "Fast CPU");
        assert_eq!(cpu_model(""), "unknown");
    }
}
