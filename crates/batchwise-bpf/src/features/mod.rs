//! The feature table: what each subcommand needs of the kernel, the machine and the process, since
//! which kernel there is such a thing, and how it is found. `doctor` prints it, and the loaders ask it
//! before they load.

mod capability;
mod machine;
mod table;

use batchwise_core::profile::report::Clock;
use serde::Serialize;

use crate::Error;
use crate::error::{BPFFS, MOUNT_CGROUP2};
pub use crate::subcommand::{Subcommand, Version};
pub use capability::Capability;
pub use machine::{LIMIT, Machine, Program, in_machines_pids};
pub use table::{FEATURES, SendHook};
pub(crate) use table::{LATE_CALLBACKS, OWN_QUEUE};

/// `BPF_F_XDP_HAS_FRAGS`: a program takes frames of more than one part (jumbo frames).
pub(crate) const XDP_FRAGS: u32 = 1 << 5;

/// What the kernel's type information may have: what it is in a word, and its name. An iterator has
/// that of the kernel's function.
pub type Name = (&'static str, &'static str);

impl Subcommand {
    /// The oldest kernel that has all that it cannot run without; a stand-in will do.
    pub fn smallest_kernel(self) -> Version {
        let needed = FEATURES.iter().filter(|f| f.essential_for(self));
        let oldest = |f: &Feature| match f.probe {
            Probe::Send => None, // fentry stands in
            _ => f.since,
        };
        needed.filter_map(oldest).fold(OLDEST, Version::max)
    }
}

/// No older kernel has been tried.
const OLDEST: Version = (5, 15);

/// How much a subcommand depends on a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It cannot run without.
    Essential,
    /// It does less without, or less well.
    Optional,
}

/// Who uses a feature, and what for.
#[derive(Clone, Copy, Debug)]
pub struct User {
    /// The subcommand.
    pub subcommand: Subcommand,
    /// How much.
    pub need: Need,
    /// What for; empty: for everything.
    pub purpose: &'static str,
}

/// How a feature is looked for.
#[derive(Clone, Copy, Debug)]
pub enum Probe {
    /// The capabilities of this process that loading needs.
    Privileges,
    /// More of them.
    Capabilities(&'static [Capability]),
    /// The kernel's version against [`Subcommand::smallest_kernel`].
    Kernel,
    /// The kernel's type information.
    Btf,
    /// The kernel takes the programs.
    Loads,
    /// The kernel's type information has it.
    InBtf(Name),
    /// One of [`SendHook::ALL`].
    Send,
    /// The iterator of the sockets that have a storage.
    StorageIterator,
    /// A mounted hierarchy of cgroup v2.
    Cgroup2,
    /// A file system to pin programs in.
    Bpffs,
    /// The JIT compiler is on.
    Jit,
    /// A clock that a CPU can be sampled by.
    Clock,
    /// The kernel's functions, with their addresses.
    Symbols,
    /// A setting that explains results; nothing depends on it.
    Setting {
        /// As sysctl(8) names it.
        name: &'static str,
        /// What it means.
        meaning: &'static str,
    },
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// What people and programs know it by.
    pub name: &'static str,
    /// The smallest kernel that has it; none: it does not depend on the kernel's age.
    pub since: Option<Version>,
    /// How it is found.
    pub probe: Probe,
    /// Who uses it; nobody: it is information.
    pub users: &'static [User],
}

/// How a feature is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All that is wanted.
    Ok,
    /// It works, but not as well.
    Degraded,
    /// It is not there.
    Missing,
}

/// What was found of a feature.
#[derive(Clone, Debug)]
pub struct Finding {
    /// How it is.
    pub status: Status,
    /// What there is.
    pub found: String,
    /// What to do about it; there is one unless the status is [`Status::Ok`].
    pub remedy: Option<String>,
}

impl Finding {
    fn ok(found: impl Into<String>) -> Self {
        Self {
            status: Status::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    fn new(status: Status, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            status,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }

    fn missing(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Status::Missing, found, remedy)
    }
}

impl Feature {
    /// What `subcommand` uses it for, if it does.
    pub fn user(&self, subcommand: Subcommand) -> Option<&User> {
        self.users.iter().find(|u| u.subcommand == subcommand)
    }

    /// Whether `subcommand` cannot run without.
    pub fn essential_for(&self, subcommand: Subcommand) -> bool {
        let user = self.user(subcommand);
        user.is_some_and(|u| u.need == Need::Essential)
    }

    /// Who uses it and what for, in words.
    pub fn needed_by(&self) -> String {
        if let Probe::Setting { meaning, .. } = self.probe {
            return meaning.to_owned();
        }
        let user = |u: &User| match u.purpose {
            "" => u.subcommand.name().to_owned(),
            // a flag belongs to the subcommand's name
            flag if flag.starts_with("--") => format!("{} {flag}", u.subcommand),
            purpose => format!("{}: {purpose}", u.subcommand),
        };
        self.users.iter().map(user).collect::<Vec<_>>().join("; ")
    }

    /// The remedy where the kernel is too old.
    fn newer(&self) -> String {
        self.since
            .map_or_else(|| "use a newer kernel".to_owned(), newer)
    }

    /// How it is on `machine`, for `subcommand`.
    pub fn look(&self, machine: &Machine, subcommand: Subcommand) -> Finding {
        match self.probe {
            Probe::Privileges => privileges(machine),
            Probe::Capabilities(wanted) => capabilities(machine, wanted),
            Probe::Kernel => kernel(machine, subcommand),
            Probe::Btf => btf(machine),
            Probe::Loads => self.loads(machine, subcommand),
            Probe::InBtf(name) => self.presence(machine, name),
            Probe::Send => self.send_hook(machine),
            Probe::StorageIterator => self.storage_iterator(machine),
            Probe::Cgroup2 => match &machine.cgroup2 {
                Some(path) => Finding::ok(path.display().to_string()),
                None => Finding::missing("not mounted", MOUNT_CGROUP2),
            },
            Probe::Bpffs if machine.bpffs => Finding::ok(BPFFS),
            Probe::Bpffs if machine.may_mount() => {
                Finding::ok(format!("not mounted at {BPFFS}: balance mounts it"))
            }
            Probe::Bpffs => Finding::missing(
                format!("not mounted at {BPFFS}"),
                format!("mount -t bpf bpf {BPFFS}"),
            ),
            Probe::Jit => jit(machine),
            Probe::Clock => clock(machine),
            Probe::Symbols => symbols(machine),
            Probe::Setting { name, .. } => Finding::ok(setting(machine, name)),
        }
    }

    /// What a loader says where it is missing.
    fn require(&self, machine: &Machine, subcommand: Subcommand) -> Result<(), Error> {
        let finding = self.look(machine, subcommand);
        if finding.status != Status::Missing {
            return Ok(());
        }
        Err(Error::MissingFeature {
            subcommand,
            feature: self.name,
            since: self.since,
            found: finding.found,
            remedy: finding.remedy.unwrap_or_default(),
        })
    }

    fn presence(&self, machine: &Machine, (kind, name): Name) -> Finding {
        match (&machine.btf, machine.has((kind, name))) {
            (_, true) => Finding::ok(format!("{kind} {name}")),
            (Ok(_), false) => {
                Finding::missing(format!("this kernel has no {kind} {name}"), self.newer())
            }
            (Err(_), false) => Finding::missing("not known without BTF", "see BTF"),
        }
    }

    fn send_hook(&self, machine: &Machine) -> Finding {
        let hook = machine.send_hooks().next();
        let (kind, name) = hook.unwrap_or(SendHook::Tracepoint).place();
        let found = format!("{kind} {name}");
        match hook {
            _ if machine.btf.is_err() => self.presence(machine, (kind, name)),
            Some(SendHook::Tracepoint) => Finding::ok(found),
            Some(SendHook::Entry) => Finding::ok(format!("entry of the {found}")),
            Some(SendHook::Ended) => {
                let lost = "send times are taken after the call, and estimates are trusted less";
                Finding::new(Status::Degraded, format!("{found}: {lost}"), self.newer())
            }
            None => Finding::missing(
                format!("no tracepoint {name}, and no fentry program at the function"),
                self.newer(),
            ),
        }
    }

    fn storage_iterator(&self, machine: &Machine) -> Finding {
        if !machine.missing_capabilities().is_empty() {
            return Finding::new(
                Status::Degraded,
                "not tried without the privileges",
                TRY_WITH_PRIVILEGES,
            );
        }
        match (machine.storage_iterator)() {
            true => Finding::ok("the kernel takes it"),
            false if !machine.all_processes => Finding::new(
                Status::Degraded,
                "the kernel refuses it: a reading looks at descriptors of processes, and this PID namespace shows only its own",
                "run in the machine's PID namespace (--pid=host), or use a kernel of a distribution",
            ),
            false => Finding::new(
                Status::Degraded,
                "the kernel refuses it: a reading looks at all descriptors of all processes, and not at connections that wait to be accepted",
                "use a kernel of a distribution; hardened ones may forbid it",
            ),
        }
    }

    /// Whether the kernel took the programs of those that use them, above all of `subcommand`.
    fn loads(&self, machine: &Machine, subcommand: Subcommand) -> Finding {
        let mut programs = Vec::new();
        let mut tried = machine
            .loads
            .iter()
            .filter(|(s, _)| self.user(**s).is_some());
        if tried.clone().next().is_none() {
            let (found, remedy) = match machine.missing_capabilities().is_empty() {
                true => (
                    "not tried: the kernel lacks what they need",
                    "see what is missing",
                ),
                false => ("not tried without the privileges", TRY_WITH_PRIVILEGES),
            };
            return Finding::new(Status::Degraded, found, remedy);
        }
        let refused = tried.try_for_each(|(s, loaded)| match loaded {
            Ok(loaded) => {
                programs.extend(loaded);
                Ok(())
            }
            Err(why) => Err((*s, why)),
        });
        if let Err((who, why)) = refused {
            let status = match who == subcommand {
                true => Status::Missing,
                false => Status::Degraded,
            };
            return Finding::new(
                status,
                format!("those of {who}: {why}"),
                "look for what forbids bpf(2): /sys/kernel/security/lockdown, a security module, a \
                 container's seccomp filter or user namespace; if it is the verifier, RUST_LOG=debug shows \
                 its log",
            );
        }
        let largest = programs.iter().max_by_key(|p| p.instructions);
        let largest =
            largest.and_then(|p| Some(format!(", up to {} instructions", p.instructions?)));
        let n = programs.len();
        Finding::ok(format!(
            "the kernel took {n} of them{}",
            largest.unwrap_or_default()
        ))
    }
}

/// Where only who may load programs can know.
const TRY_WITH_PRIVILEGES: &str = "run the doctor with the privileges too";

/// The remedy where the kernel is older than this one.
pub(crate) fn newer((major, minor): Version) -> String {
    format!("use Linux {major}.{minor} or newer")
}

fn privileges(machine: &Machine) -> Finding {
    let missing = machine.missing_capabilities();
    if missing.is_empty() {
        return Finding::ok("CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN");
    }
    Finding::missing(
        format!("no {}", missing.join(", ")),
        "run it with sudo, or once: sudo setcap cap_bpf,cap_perfmon,cap_net_admin+ep \
         \"$(command -v batchwise)\"",
    )
}

fn capabilities(machine: &Machine, wanted: &[Capability]) -> Finding {
    let missing = machine.missing_of(wanted);
    if missing.is_empty() {
        let names: Vec<_> = wanted.iter().map(|(name, _)| *name).collect();
        return Finding::ok(names.join(", "));
    }
    Finding::missing(
        format!("no {}", missing.join(", ")),
        "run it with sudo; a file, a unit or a container has to be given it by name",
    )
}

fn kernel(machine: &Machine, subcommand: Subcommand) -> Finding {
    let smallest = subcommand.smallest_kernel();
    let found = format!("Linux {}", machine.release);
    match machine.version() {
        Some(version) if version >= smallest => Finding::ok(found),
        // distributions port features back: the other checks decide
        _ => Finding::new(Status::Degraded, found, newer(smallest)),
    }
}

fn btf(machine: &Machine) -> Finding {
    match &machine.btf {
        Ok(_) => Finding::ok("/sys/kernel/btf/vmlinux"),
        Err(error) => Finding::missing(
            format!("/sys/kernel/btf/vmlinux cannot be read: {error}"),
            "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, with sysfs mounted",
        ),
    }
}

const JIT: &str = "net.core.bpf_jit_enable";

fn jit(machine: &Machine) -> Finding {
    let found = setting(machine, JIT);
    let remedy = match machine.settings.get(JIT).map(String::as_str) {
        Some("0") => "sysctl -w net.core.bpf_jit_enable=1",
        Some(_) => return Finding::ok(found),
        None if machine.missing_capabilities().is_empty() => {
            "only the host's network namespace shows it: nsenter --net=/proc/1/ns/net"
        }
        None => "run the doctor as root to see it",
    };
    Finding::new(Status::Degraded, found, remedy)
}

fn clock(machine: &Machine) -> Finding {
    match (machine.clock)() {
        Ok(Clock::Cycles) => Finding::ok("the processor's counter of cycles"),
        Ok(Clock::Timer) => Finding::new(
            Status::Degraded,
            "a timer's interrupt, which waits while interrupts are off; the processor shows no counter",
            "on a virtual machine, give the guest a virtual PMU",
        ),
        Err(why) => Finding::missing(format!("perf_event_open: {why}"), CLOCK_REMEDY),
    }
}

/// Where no clock may be opened.
pub(crate) const CLOCK_REMEDY: &str = "run as root or with CAP_PERFMON (CAP_SYS_ADMIN where kernel.perf_event_paranoid is above \
                                       2); in a container with --privileged, or a seccomp filter that allows \
                                       perf_event_open";

fn symbols(machine: &Machine) -> Finding {
    match machine.symbols {
        true => Finding::ok("/proc/kallsyms"),
        false => Finding::missing("/proc/kallsyms shows no addresses", SYMBOLS_REMEDY),
    }
}

/// Where the kernel hides the addresses of its functions.
pub const SYMBOLS_REMEDY: &str = "run as root or with CAP_SYSLOG, and where kernel.kptr_restrict is 2: sysctl -w \
                                  kernel.kptr_restrict=1; in a container also the host may hide them";

fn setting(machine: &Machine, name: &str) -> String {
    let value = machine.settings.get(name).map_or("(not readable)", |v| v);
    format!("{name} = {value}")
}

/// What a loader asks before it loads: that the kernel has all that `subcommand` cannot do without.
/// What only the machine or the process lacks is said better by the call that fails.
///
/// # Errors
/// The first feature that is not there, with its remedy.
pub fn require(machine: &Machine, subcommand: Subcommand) -> Result<(), Error> {
    for feature in FEATURES.iter().filter(|f| f.essential_for(subcommand)) {
        match (feature.probe, &machine.btf) {
            (Probe::Btf, Err(_)) => return Err(Error::NoBtf),
            (Probe::InBtf(..) | Probe::Send, Ok(_)) => {}
            _ => continue,
        }
        feature.require(machine, subcommand)?;
    }
    Ok(())
}

/// The same of a name that only an option needs. `or` says more of where it is, and what else there is to do.
pub(crate) fn require_name(
    machine: &Machine,
    subcommand: Subcommand,
    name: Name,
    or: &str,
) -> Result<(), Error> {
    let has_name = |f: &&Feature| matches!(f.probe, Probe::InBtf(probed) if probed == name);
    let required = FEATURES.iter().find(has_name);
    let mut required = required.map_or(Ok(()), |f| f.require(machine, subcommand));
    if let Err(Error::MissingFeature { remedy, .. }) = &mut required {
        *remedy += &format!(", {or}");
    }
    required
}

#[cfg(test)]
mod tests;
