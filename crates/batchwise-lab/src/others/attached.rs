//! A tool from its start until nothing of it is left.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use batchwise_testbed::bpf_stats::{programs_left, programs_of};
use batchwise_testbed::host::{Host, Role};
use batchwise_testbed::lines::Printing;
use batchwise_testbed::process::cpu_time;
use batchwise_testbed::redis::PORT;
use batchwise_testbed::topology::LINK;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, SysconfVar, sysconf};

use super::tools::Tool;
use crate::Context;

/// How long a tool may take to be attached and calm.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// Between two looks at one that begins.
const LOOK: Duration = Duration::from_millis(60);
/// It is calm when its CPU share changes by less from one look to the next: what it compiled is done.
const CALM: f64 = 0.1;
/// How long it may take to end.
const END_LIMIT: Duration = Duration::from_secs(10);

/// A tool that is attached.
pub struct Attached {
    printing: Printing<String>,
    programs: BTreeSet<u64>,
    /// From its start until it was attached and calm.
    pub took: Duration,
    /// CPU time that it used until then.
    pub cpu: Duration,
}

/// What a look at a tool that begins shows.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Programs that it holds, or lines that it has printed.
    signs: usize,
    /// Its share of a CPU since the look before.
    cpu_share: f64,
}

impl Attached {
    /// Starts it in `host`; gives the reason when it cannot be attached here.
    pub fn start(tool: &Tool, context: &Context, host: &Host) -> Result<Result<Self, String>> {
        let installed = |dir: &Path| dir.join(tool.program()).is_file();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_ours = tool.package == "batchwise";
        if !is_ours && !std::env::split_paths(&path).any(|dir| installed(&dir)) {
            let (program, package) = (tool.program(), tool.package);
            let why = format!("{program} is not installed; Debian has it in {package}");
            return Ok(Err(why));
        }
        let command = tool.command(&context.command, PORT, LINK);
        let began = Instant::now();
        let mut printing = Printing::start_text(host, tool.name, command, Role::Observer)?;
        let pid = printing.pid();
        let (mut before, mut cpu_before) = (None, Duration::ZERO);
        let mut looked = began;
        while began.elapsed() < READY_LIMIT {
            context.stop.sleep(LOOK)?;
            if printing.process().has_ended()? {
                printing.wait(&context.stop, END_LIMIT)?;
                return Ok(Err(why_not(&printing.take_lines())));
            }
            // what fails here has just ended: the next look shows it
            let cpu = used(pid).unwrap_or(cpu_before);
            let since = std::mem::replace(&mut looked, Instant::now()).elapsed();
            let programs = programs_of(pid).unwrap_or_default();
            let look = Look {
                signs: match tool.has_programs {
                    true => programs.len(),
                    false => usize::from(printing.with_lines(|lines| !lines.is_empty())),
                },
                cpu_share: (cpu - cpu_before).as_secs_f64() / since.as_secs_f64(),
            };
            cpu_before = cpu;
            if before.is_some_and(|before| is_ready(before, look)) {
                return Ok(Ok(Self {
                    printing,
                    programs,
                    took: began.elapsed(),
                    cpu,
                }));
            }
            before = Some(look);
        }
        Ok(Err(format!("not attached and calm within {READY_LIMIT:?}")))
    }

    pub fn pid(&self) -> Pid {
        self.printing.pid()
    }

    /// Ends it, waits until the kernel has freed its programs, and gives what it printed.
    pub fn end(mut self, context: &Context) -> Result<Vec<String>> {
        self.printing.process().check_alive()?;
        self.printing
            .end(Signal::SIGINT, END_LIMIT)
            .context("ending a tool")?;
        let freed = || Ok(programs_left(&self.programs).is_empty().then_some(()));
        if context.stop.wait_until(END_LIMIT, freed)?.is_none() {
            let left = programs_left(&self.programs).join(", ");
            bail!("a tool has ended, but its programs are still there: {left}");
        }
        Ok(self.printing.take_lines())
    }
}

/// CPU time of a process and of the children that it has waited for.
pub fn used(pid: Pid) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("looking at process {pid}"))?;
    let ticks = sysconf(SysconfVar::CLK_TCK)?.unwrap_or(100).unsigned_abs();
    let children = Duration::from_nanos(children_ticks(&stat) * 1_000_000_000 / ticks.max(1));
    Ok(cpu_time(pid)? + children)
}

/// `cutime` and `cstime` of proc_pid_stat(5), the fields 16 and 17; the name before them may hold anything.
fn children_ticks(stat: &str) -> u64 {
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks = rest.split(' ').skip(13).take(2);
    ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

fn is_ready(before: Look, now: Look) -> bool {
    let calm = (now.cpu_share - before.cpu_share).abs() < CALM;
    now.signs > 0 && now.signs == before.signs && calm
}

/// The first complaint and the last words of a tool that has ended.
fn why_not(lines: &[String]) -> String {
    let complaint = |line: &&String| {
        let line = line.to_lowercase();
        // bpftrace says this wherever it may not lift a limit that newer kernels no longer have
        let harmless = line.contains("memlock");
        !harmless
            && ["error", "failed", "no such"]
                .iter()
                .any(|w| line.contains(w))
    };
    let (first, last) = (lines.iter().find(complaint), lines.last());
    let mut words: Vec<_> = first.into_iter().chain(last).map(|l| l.trim()).collect();
    words.dedup();
    match words.is_empty() {
        true => "it ended at once and said nothing".into(),
        false => format!("it ended at once: {}", words.join(" / ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_ready_when_it_is_attached_and_its_cpu_share_stays() {
        let look = |signs, cpu_share| Look { signs, cpu_share };
        assert!(is_ready(look(2, 0.02), look(2, 0.01)));
        assert!(is_ready(look(1, 0.4), look(1, 0.45)), "a busy one");
        assert!(!is_ready(look(0, 1.0), look(0, 1.0)), "it compiles");
        assert!(!is_ready(look(1, 0.1), look(2, 0.1)), "more to come");
        assert!(!is_ready(look(2, 0.9), look(2, 0.3)), "not calm yet");
    }

    #[test]
    fn why_a_tool_is_missing_is_its_first_complaint_and_its_last_words() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let said = lines(
            "ERROR: couldn't set RLIMIT_MEMLOCK\nAttaching 1 probe...\n\
             open(kprobe_events): No such file\nERROR: Error attaching probe",
        );
        assert_eq!(
            why_not(&said),
            "it ended at once: open(kprobe_events): No such file / ERROR: Error attaching probe"
        );
        assert_eq!(
            why_not(&said[3..]),
            "it ended at once: ERROR: Error attaching probe"
        );
        assert_eq!(why_not(&[]), "it ended at once and said nothing");
    }

    #[test]
    fn cpu_time_of_children_is_read_whatever_the_program_is_called() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 5 6 12 30 20 0 1 0 900";
        assert_eq!(children_ticks(stat), 42);
        assert_eq!(children_ticks(""), 0);
    }
}
