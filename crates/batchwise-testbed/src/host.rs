//! One host of the lab: a network namespace, a cgroup and a CPU, and how processes get into them.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, anyhow};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, setns, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::cgroup::Cgroup;
use crate::process::Process;

/// Joins two links, each in a namespace.
pub(crate) fn veth((a, a_link): (&Namespace, &str), (b, b_link): (&Namespace, &str)) -> Result<()> {
    let b = b.name();
    a.ip(&format!(
        "link add {a_link} type veth peer name {b_link} netns {b}"
    ))
}

/// A network namespace that is removed when dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes the namespace `name` with its loopback up.
    pub fn create(name: String) -> Result<Self> {
        ip(&["netns", "add", &name])?;
        let namespace = Self { name };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Its name, as `ip netns` shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that keeps it.
    pub fn file(name: &str) -> PathBuf {
        Path::new("/run/netns").join(name)
    }

    /// Removes the namespace `name`; that there is none is no error.
    pub fn remove(name: &str) -> Result<()> {
        if Self::file(name).exists() {
            ip(&["netns", "del", name])
        } else {
            Ok(())
        }
    }

    /// Runs `ip` for it with these arguments, apart by spaces.
    pub fn ip(&self, arguments: &str) -> Result<()> {
        let all: Vec<_> = ["-n", &self.name]
            .into_iter()
            .chain(arguments.split(' '))
            .collect();
        ip(&all)
    }

    /// Runs `tc` for it with these arguments, apart by spaces.
    pub fn tc(&self, arguments: &str) -> Result<()> {
        let mut command = Command::new("tc");
        command.args(["-n", &self.name]).args(arguments.split(' '));
        run(&mut command, "iproute2")
    }

    /// Runs `work` in it, in a thread of its own. Sockets that `work` opens stay in it.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let netns = self.open()?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                setns(&netns, CloneFlags::CLONE_NEWNET)
                    .with_context(|| format!("entering {}", self.name))?;
                work()
            });
            thread
                .join()
                .map_err(|_| anyhow!("a thread in {} panicked", self.name))?
        })
    }

    /// Sets a sysctl of it, such as `net/ipv4/ip_forward`.
    pub fn set_sysctl(&self, path: &str, value: &str) -> Result<()> {
        let file = Path::new("/proc/sys").join(path);
        self.inside(|| {
            fs::write(&file, value)
                .with_context(|| format!("writing {value} to {}", file.display()))
        })
    }

    /// Turns offloads of `link` on or off, as `ethtool -K` calls them.
    pub fn set_offloads(&self, link: &str, features: &[&str], on: bool) -> Result<()> {
        let to = if on { "on" } else { "off" };
        let mut command = Command::new("ethtool");
        command.args(["-K", link]);
        command.args(features.iter().flat_map(|feature| [*feature, to]));
        self.inside(move || run(&mut command, "ethtool"))
    }

    fn open(&self) -> Result<File> {
        let file = Self::file(&self.name);
        File::open(&file).with_context(|| format!("opening {}", file.display()))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = Self::remove(&self.name) {
            tracing::warn!("{error:#}");
        }
    }
}

/// Runs `ip` with these arguments.
pub fn ip(arguments: &[&str]) -> Result<()> {
    run(Command::new("ip").args(arguments), "iproute2")
}

/// Runs a command of the system, which Debian has in `package`.
pub fn run(command: &mut Command, package: &str) -> Result<()> {
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    let shown = words.collect::<Vec<_>>().join(OsStr::new(" "));
    let shown = shown.to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("running `{shown}` (Debian: apt install {package})"))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(anyhow!("`{shown}` failed: {}", message.trim()))
}

/// What a process does in a host, which says where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// On the host's CPU and in its cgroup: a workload.
    Workload,
    /// On any CPU and in the lab's own cgroup: something that observes.
    Observer,
}

/// A network namespace, a cgroup and a CPU.
#[derive(Debug)]
pub struct Host {
    // Declared before the namespace: processes are gone before it is removed.
    cgroup: Cgroup,
    observers: PathBuf,
    namespace: Namespace,
    cpu: usize,
}

impl Host {
    /// Puts the parts together. `observers` is the `cgroup.procs` file of the lab's own cgroup.
    pub fn new(namespace: Namespace, cgroup: Cgroup, observers: PathBuf, cpu: usize) -> Self {
        Self {
            cgroup,
            observers,
            namespace,
            cpu,
        }
    }

    /// The directory of its cgroup.
    pub fn cgroup(&self) -> &Path {
        self.cgroup.path()
    }

    /// Its network namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The CPU of its workloads.
    pub fn cpu(&self) -> usize {
        self.cpu
    }

    /// Starts a process in this host, with its outputs piped. It dies with the thread that called
    /// this, and when the returned handle is dropped.
    pub fn spawn(&self, name: &str, mut command: Command, role: Role) -> Result<Process> {
        let netns = self.namespace.open()?;
        let procs = match role {
            Role::Workload => self.cgroup.procs_file(),
            Role::Observer => self.observers.clone(),
        };
        let procs = File::options()
            .write(true)
            .open(&procs)
            .with_context(|| format!("opening {}", procs.display()))?;
        let mut cpus = CpuSet::new();
        cpus.set(self.cpu)
            .with_context(|| format!("there is no CPU {}", self.cpu))?;
        let pin = role == Role::Workload;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Ctrl-C is for the lab, which then ends its children in order.
        command.process_group(0);
        // SAFETY: the closure makes system calls only: no allocation and no lock, as is required
        // between fork and exec. The descriptors it captures stay open until then.
        unsafe {
            command.pre_exec(move || {
                prctl::set_pdeathsig(Signal::SIGKILL)?;
                // "0" is whoever writes it.
                if nix::libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) != 1 {
                    return Err(std::io::Error::last_os_error());
                }
                setns(&netns, CloneFlags::CLONE_NEWNET)?;
                if pin {
                    sched_setaffinity(Pid::from_raw(0), &cpus)?;
                }
                Ok(())
            });
        }
        Process::start(name, command)
    }

    /// Runs `work` in this host's network namespace, in a thread of its own.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.namespace.inside(work)
    }

    /// Keeps the calling thread on this host's CPU, where its processes are.
    pub fn stay_on_its_cpu(&self) -> Result<()> {
        let mut cpus = CpuSet::new();
        cpus.set(self.cpu())?;
        sched_setaffinity(Pid::from_raw(0), &cpus).context("pinning a thread")
    }

    /// Reads a sysctl of this host's network namespace.
    pub fn sysctl(&self, path: &str) -> Result<String> {
        let file = Path::new("/proc/sys").join(path);
        self.inside(|| {
            let text =
                fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            Ok(text.trim().to_owned())
        })
    }

    /// Makes the host's CPU process the packets that `link` receives, as the interrupts of a
    /// network card would. On a veth the sender's CPU does it otherwise.
    pub fn receive_on_own_cpu(&self, link: &str) -> Result<()> {
        self.steer(link, 1 << self.cpu)
    }

    /// Takes [`Self::receive_on_own_cpu`] back.
    pub fn receive_where_it_comes(&self, link: &str) -> Result<()> {
        self.steer(link, 0)
    }

    /// Packets of `link` are handed to these CPUs (RPS).
    fn steer(&self, link: &str, cpus: u64) -> Result<()> {
        let file = format!("class/net/{link}/queues/rx-0/rps_cpus");
        self.write_sysfs(&file, &format!("{cpus:x}"))
    }

    /// Has a veth polled by a thread on the host's CPU, which also puts packets together (GRO). Cheaper in a
    /// virtual machine than [`Self::receive_on_own_cpu`], which sends an interrupt to the other CPU for most packets.
    pub fn poll_on_own_cpu(&self, link: &str) -> Result<()> {
        let before = threads_of(link)?;
        self.namespace().set_offloads(link, &["gro"], true)?;
        self.write_sysfs(&format!("class/net/{link}/threaded"), "1")?;
        let mut cpus = CpuSet::new();
        cpus.set(self.cpu)?;
        for thread in threads_of(link)?.difference(&before) {
            sched_setaffinity(*thread, &cpus).context("pinning a thread that polls")?;
        }
        Ok(())
    }

    fn write_sysfs(&self, file: &str, text: &str) -> Result<()> {
        // a folder of this call's own: another thread may do the same just now
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let dir = format!("bw-sysfs-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        let written = self.inside(|| {
            // Sysfs shows the network namespace of whoever mounts it; the mount ends with this
            // thread's mount namespace.
            let none = None::<&str>;
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            unshare(CloneFlags::CLONE_NEWNS)
                .and_then(|()| mount(none, "/", none, private, none))
                .and_then(|()| mount(Some("sysfs"), &dir, Some("sysfs"), MsFlags::empty(), none))
                .context("mounting sysfs")?;
            let file = dir.join(file);
            fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
        });
        let removed = fs::remove_dir(&dir).with_context(|| format!("removing {}", dir.display()));
        written.and(removed)
    }
}

/// The kernel's threads that poll a device of this name, in any network namespace.
fn threads_of(link: &str) -> Result<HashSet<Pid>> {
    // a thread's name is cut off
    let name: String = format!("napi/{link}-").chars().take(15).collect();
    let mut threads = HashSet::new();
    for process in fs::read_dir("/proc").context("reading /proc")? {
        let process = process?;
        // one that has ended meanwhile is none
        let comm = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        let pid = process.file_name().to_string_lossy().parse();
        if let (true, Ok(pid)) = (comm.starts_with(&name), pid) {
            threads.insert(Pid::from_raw(pid));
        }
    }
    Ok(threads)
}
