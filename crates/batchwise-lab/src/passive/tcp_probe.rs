//! The kernel's own smoothed round-trip time at the client, from the tracepoint `tcp:tcp_probe`: a
//! baseline that sees both directions. The trace instance is the lab's own, and goes with it, as does the
//! mount of tracefs, which nobody else sees.

use std::fs::{self, File};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use batchwise_testbed::process::{Process, Reader, lock};
use nix::time::{ClockId, clock_gettime};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::capture::nanoseconds;
use crate::truth::Sample;

/// Room for events that were not read yet, KiB a CPU.
const BUFFER_KIB: &str = "16384";
/// How long the reader may take to end.
const LIMIT: Duration = Duration::from_secs(1);

/// A running trace. Dropping it ends it.
#[derive(Debug)]
pub struct TcpProbe {
    cat: Process,
    reader: Reader,
    found: Arc<Mutex<Found>>,
    // Last: it is busy as long as somebody reads it.
    _instance: Instance,
}

#[derive(Debug, Default)]
struct Found {
    samples: Vec<Sample>,
    lost: Option<String>,
}

/// A trace instance that goes when it is dropped.
#[derive(Debug)]
struct Instance {
    dir: PathBuf,
    // Last: the folder is in it.
    _tracefs: OwnedFd,
}

impl TcpProbe {
    /// Traces the sockets of clients of `port`, in all namespaces. The instance is `bw-<tag>`.
    pub fn start(tag: &str, port: u16) -> Result<Self> {
        let tracefs = mount_tracefs().context("mounting tracefs")?;
        let fd = tracefs.as_raw_fd();
        let dir = PathBuf::from(format!("/proc/self/fd/{fd}/instances/bw-{tag}"));
        // What a killed run left.
        if dir.exists() {
            fs::remove_dir(&dir).with_context(|| format!("removing {}", dir.display()))?;
        }
        fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
        let instance = Instance {
            dir,
            _tracefs: tracefs,
        };
        instance.write("trace_clock", "mono")?;
        instance.write("buffer_size_kb", BUFFER_KIB)?;
        instance.write("events/tcp/tcp_probe/filter", &format!("dport == {port}"))?;
        instance.write("events/tcp/tcp_probe/enable", "1")?;
        let mut command = Command::new("cat");
        command.stdin(File::open(instance.dir.join("trace_pipe"))?);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut cat = Process::start("the reader of tcp_probe", command)?;
        let (found, to_wall) = (Arc::<Mutex<Found>>::default(), wall_minus_monotonic()?);
        let sink = found.clone();
        let reader = cat.on_line(move |line| {
            let mut found = lock(&sink);
            found.samples.extend(parse(&line, to_wall));
            if line.contains("LOST") {
                found.lost = Some(line);
            }
        });
        Ok(Self {
            cat,
            reader,
            found,
            _instance: instance,
        })
    }

    /// Ends the trace; gives what it saw.
    pub fn finish(mut self) -> Result<Vec<Sample>> {
        self.cat.check_alive()?;
        self.cat.terminate(LIMIT);
        self.reader.finish();
        let mut found = lock(&self.found);
        match &found.lost {
            Some(line) => bail!("the trace of tcp_probe lost events: {line}"),
            None => Ok(std::mem::take(&mut found.samples)),
        }
    }
}

/// A mount that is in no namespace and goes with its descriptor.
fn mount_tracefs() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    fsmount(&context, flags, MountAttrFlags::empty())
}

impl Instance {
    fn write(&self, file: &str, value: &str) -> Result<()> {
        let file = self.dir.join(file);
        fs::write(&file, value).with_context(|| format!("writing {value} to {}", file.display()))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let removed = self
            .write("events/tcp/tcp_probe/enable", "0")
            .and_then(|()| Ok(fs::remove_dir(&self.dir)?));
        if let Err(error) = removed {
            tracing::warn!("{} stays behind: {error:#}", self.dir.display());
        }
    }
}

/// A line such as `  nginx-7 [001] ..s1. 12.345678: tcp_probe: family=AF_INET src=… dest=… … srtt=71 …`.
fn parse(line: &str, to_wall: i128) -> Option<Sample> {
    let (before, fields) = line.split_once(": tcp_probe: ")?;
    let time = before.split_whitespace().next_back()?;
    let monotonic = i128::from(nanoseconds(time)?);
    let pairs = || fields.split_whitespace().filter_map(|p| p.split_once('='));
    let field = |name: &str| pairs().find_map(|(key, value)| (key == name).then_some(value));
    let srtt: u64 = field("srtt")?.parse().ok().filter(|&srtt| srtt > 0)?;
    Some(Sample {
        client: field("src")?.parse().ok()?,
        at_ns: u64::try_from(monotonic + to_wall).ok()?,
        value_ns: (srtt * 1000) as f64,
    })
}

/// What turns CLOCK_MONOTONIC into ns since 1970.
fn wall_minus_monotonic() -> Result<i128> {
    let ns = |clock| -> Result<i128> {
        let time = clock_gettime(clock)?;
        Ok(i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec()))
    };
    Ok(ns(ClockId::CLOCK_REALTIME)? - ns(ClockId::CLOCK_MONOTONIC)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_with_its_socket_its_time_and_the_smoothed_time() {
        let line = "  batchwise-901   [001] ..s1.  5123.000071: tcp_probe: family=AF_INET \
                    src=10.78.0.2:5000 dest=10.78.0.1:8080 mark=0x0 data_len=324 snd_nxt=0x1 \
                    snd_una=0x1 snd_cwnd=10 ssthresh=2147483647 snd_wnd=64256 srtt=713 \
                    rcv_wnd=64256 sock_cookie=1 skbaddr=00000000 skaddr=00000000";
        let sample = parse(line, 1_000).unwrap();
        assert_eq!(sample.client, "10.78.0.2:5000".parse().unwrap());
        assert_eq!(
            (sample.at_ns, sample.value_ns),
            (5_123_000_072_000, 713_000.0)
        );
        assert_eq!(parse("# tracer: nop", 0), None);
    }
}
