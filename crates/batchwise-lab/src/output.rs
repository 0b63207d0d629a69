//! The directory of an experiment's results. Files appear whole or not at all, so that what was
//! measured before an interruption can always be read.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

#[derive(Debug)]
pub struct Output {
    dir: PathBuf,
}

impl Output {
    /// Makes the directory and its parents.
    pub fn create(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        Ok(Self {
            dir: dir.to_owned(),
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.dir.join(name);
        let partial = self.dir.join(format!(".{name}.part"));
        fs::write(&partial, text)
            .and_then(|()| fs::rename(&partial, &path))
            .with_context(|| format!("writing {}", path.display()))
    }
}

/// Progress on standard error: what is done, how long it took, how long the rest will take.
#[derive(Debug)]
pub struct Progress {
    began: Instant,
    done: usize,
    of: usize,
    hidden: bool,
}

impl Progress {
    /// For `of` steps, of which none is done; if `hidden`, nothing is printed.
    pub fn new(of: usize, hidden: bool) -> Self {
        Self {
            began: Instant::now(),
            done: 0,
            of,
            hidden,
        }
    }

    /// One step was done; `what` describes it.
    pub fn step(&mut self, what: &str) {
        self.done += 1;
        if self.hidden {
            return;
        }
        let elapsed = self.began.elapsed();
        let [elapsed, left] = [elapsed, self.remaining(elapsed)].map(|time| {
            let seconds = Duration::from_secs(time.as_secs());
            humantime::format_duration(seconds)
        });
        // Nothing can be done about a standard error that is closed.
        let _ = writeln!(
            std::io::stderr(),
            "[{:>3}/{}] {elapsed} elapsed, about {left} left: {what}",
            self.done.min(self.of),
            self.of,
        );
    }

    /// Something besides the steps was done.
    pub fn note(&self, what: &str) {
        if self.hidden {
            return;
        }
        // As above.
        let _ = writeln!(std::io::stderr(), "          {what}");
    }

    /// `steps` will not be done after all.
    pub fn skip(&mut self, steps: usize) {
        self.of = self.of.saturating_sub(steps);
    }

    fn remaining(&self, elapsed: Duration) -> Duration {
        let left = self.of.saturating_sub(self.done);
        elapsed.mul_f64(left as f64 / self.done.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_was_done() {
        let seconds = Duration::from_secs;
        let mut progress = Progress::new(10, false);
        progress.done = 4;
        assert_eq!(progress.remaining(seconds(8)), seconds(12));
        progress.skip(3);
        assert_eq!(progress.remaining(seconds(8)), seconds(6));
    }
}
