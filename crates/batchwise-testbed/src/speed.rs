//! Servers as slow as machines with a fraction of this one's speed, changing over time. A quota of
//! CPU time is not that: on a CPU of four servers it must be so small that latency is mostly the
//! wait for its next period, whatever the server has to do.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::cpu_share::trace::Trace;
use crate::preload::Preload;
use crate::stop::Background;

/// What slows servers down: a library that is preloaded into them, and a file for each.
#[derive(Debug)]
pub struct Brake {
    library: Preload,
}

impl Brake {
    /// Builds it.
    pub fn build() -> Result<Self> {
        let library = Preload::build("slow", include_str!("slow.c"))?;
        Ok(Self { library })
    }

    /// The speed of a server, all of it at first.
    pub fn speed(&self, server: &str) -> Result<Speed> {
        let speed = Speed(self.library.dir().join(server));
        speed.set(1.0)?;
        Ok(speed)
    }

    /// Makes `command` start a server that has this speed. It may have one thread only.
    pub fn apply(&self, speed: &Speed, command: &mut Command) {
        command.env("LD_PRELOAD", self.library.library());
        command.env("BW_SPEED_FILE", &speed.0);
    }
}

/// How fast a server is.
#[derive(Clone, Debug)]
pub struct Speed(PathBuf);

impl Speed {
    /// From now on: a share of this machine's speed, above 0, at most 1.
    pub fn set(&self, share: f64) -> Result<()> {
        let millionths = (share.clamp(0.001, 1.0) * 1e6) as u32;
        // In place: the server has the file mapped.
        fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.0)
            .and_then(|mut file| std::io::Write::write_all(&mut file, &millionths.to_ne_bytes()))
            .with_context(|| format!("writing {}", self.0.display()))
    }
}

/// Speeds that follow traces, in a thread of its own. Dropping it ends following.
#[derive(Debug)]
pub struct Follower(Background<()>);

impl Follower {
    /// Lets each speed be its trace's share times `scale`, from now on.
    pub fn start(speeds: &[(Speed, Trace)], scale: f64) -> Self {
        let each = |(speed, trace): &(Speed, Trace)| {
            let of = |step: &crate::cpu_share::trace::Step| (step.at, speed.clone(), step.share);
            trace.steps().iter().map(of).collect::<Vec<_>>()
        };
        let mut steps: Vec<_> = speeds.iter().flat_map(each).collect();
        steps.sort_by_key(|step| step.0);
        Self(Background::start(move |stop| {
            let began = Instant::now();
            for (at, speed, share) in steps {
                if stop.sleep(at.saturating_sub(began.elapsed())).is_err() {
                    break;
                }
                speed.set(share * scale)?;
            }
            Ok(())
        }))
    }

    /// Ends following; the speeds stay as they are.
    pub fn finish(self) -> Result<()> {
        self.0.finish()
    }
}
