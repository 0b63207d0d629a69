//! Disks that logs are on: one that fills up, one that hangs.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use batchwise_testbed::host::run;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A file system of 64 KiB, and what fills it up.
pub struct SmallDisk(pub PathBuf);

impl SmallDisk {
    pub fn mount() -> Result<Self> {
        let folder = std::env::temp_dir().join("bw-drills-disk");
        fs::create_dir_all(&folder)?;
        let (kind, size) = (Some("tmpfs"), Some("size=64k"));
        mount(kind, &folder, kind, MsFlags::empty(), size).context("mounting a small disk")?;
        Ok(Self(folder))
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Until nothing is left.
    pub fn fill(&self) -> Result<()> {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(self.filler())?;
        for size in [4_096, 64, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        Ok(())
    }

    pub fn free(&self) -> Result<()> {
        Ok(fs::remove_file(self.filler())?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let gone = umount2(&self.0, MntFlags::MNT_DETACH).map_err(std::io::Error::from);
        if let Err(error) = gone.and_then(|()| fs::remove_dir(&self.0)) {
            tracing::warn!("{} stays behind: {error}", self.0.display());
        }
    }
}

/// A file system on a file. While it hangs, who writes to it waits, and no signal ends that.
pub struct HangingDisk {
    pub folder: PathBuf,
    image: PathBuf,
}

impl HangingDisk {
    pub fn mount() -> Result<Self> {
        let folder = std::env::temp_dir().join("bw-drills-hanging");
        let image = folder.with_extension("ext4");
        fs::create_dir_all(&folder)?;
        File::create(&image)?.set_len(8 << 20)?;
        // from here on it is taken away again
        let disk = Self { folder, image };
        let mut make = Command::new("mkfs.ext4");
        run(make.args(["-q", "-F"]).arg(&disk.image), "e2fsprogs")?;
        let mut attach = Command::new("mount");
        attach
            .args(["-o", "loop"])
            .args([&disk.image, &disk.folder]);
        run(&mut attach, "mount")?;
        Ok(disk)
    }

    pub fn hang(&self) -> Result<Hanging<'_>> {
        freeze("--freeze", &self.folder)?;
        Ok(Hanging(&self.folder))
    }
}

impl Drop for HangingDisk {
    fn drop(&mut self) {
        // it may not be mounted
        let _ = umount2(&self.folder, MntFlags::MNT_DETACH);
        let gone = fs::remove_dir(&self.folder).and_then(|()| fs::remove_file(&self.image));
        if let Err(error) = gone {
            tracing::warn!("{} stays behind: {error}", self.folder.display());
        }
    }
}

/// Until it is dropped. To be dropped before processes that write there: nobody can wait for their end until then.
pub struct Hanging<'a>(&'a Path);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        if let Err(error) = freeze("--unfreeze", self.0) {
            tracing::warn!("{error:#}");
        }
    }
}

fn freeze(option: &str, folder: &Path) -> Result<()> {
    run(
        Command::new("fsfreeze").arg(option).arg(folder),
        "util-linux",
    )
}
