//! What is written besides: a page, folded stacks. They are opened before anything is sampled, so that nobody waits for
//! nothing; what one of them fails with does not lose the other.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::frames::Graph;
use super::report::Shown;
use super::{folded, page};

/// A file, and what it is called.
struct Opened {
    path: PathBuf,
    file: File,
}

/// Those that were asked for.
pub struct Files {
    report: Option<Opened>,
    folded: Option<Opened>,
}

impl Files {
    /// What is in them stays until there is something else to write.
    pub fn open(report: Option<&Path>, folded: Option<&Path>) -> anyhow::Result<Self> {
        let open = |path: Option<&Path>| path.map(Opened::open).transpose();
        Ok(Self {
            report: open(report)?,
            folded: open(folded)?,
        })
    }

    /// Writes all that can be written.
    ///
    /// # Errors
    /// The first of what went wrong; the other is logged.
    pub fn write(self, whole: &Shown, graph: &Graph) -> anyhow::Result<()> {
        let write = |opened: Option<Opened>, write: &dyn Fn(Out) -> anyhow::Result<()>| {
            opened.map_or(Ok(()), |opened| opened.write(write))
        };
        let written = [
            write(self.report, &|out| {
                page::write(&whole.summary(), &whole.line, graph, out)
            }),
            write(self.folded, &|out| Ok(folded::write(graph, out)?)),
        ];
        let mut errors = written.into_iter().filter_map(Result::err);
        let Some(first) = errors.next() else {
            return Ok(());
        };
        errors.for_each(|error| tracing::error!("{error:#}"));
        Err(first)
    }
}

type Out<'a> = &'a mut dyn Write;

impl Opened {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        let path = path.to_owned();
        Ok(Self { path, file })
    }

    fn write(self, write: impl Fn(Out) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let Self { path, file } = self;
        let write = || {
            // a pipe has no length
            if file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            let mut out = BufWriter::new(file);
            write(&mut out)?;
            Ok(out.flush()?)
        };
        let written: anyhow::Result<()> = write();
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}
