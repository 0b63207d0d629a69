//! What is built on the sensor: an extension switches its programs on before they are loaded, attaches
//! them, and gives what acts through them.

use std::fs::File;

use libbpf_rs::Link;

use super::config::Config;
use crate::Error;
use crate::features::Subcommand;
use crate::sense_skel::{OpenSenseSkel, SenseSkel};

/// An extension of the sensor. Two of them make one, and one may be left out.
pub trait Extension {
    /// What acts through its programs.
    type Attached;

    /// Whose features it needs, if not those of `watch`.
    fn subcommand(&self) -> Option<Subcommand> {
        None
    }

    /// Whether its programs are attached to a cgroup.
    fn needs_cgroup(&self) -> bool {
        false
    }

    /// Switches its programs on.
    fn configure(&self, open: &mut OpenSenseSkel<'_>);

    /// Attaches its programs.
    fn attach(&self, loaded: &mut Loaded<'_>) -> Result<Self::Attached, Error>;
}

/// The programs, loaded, and what is attached of them.
pub struct Loaded<'a> {
    /// The programs.
    pub skel: &'a SenseSkel<'static>,
    /// What is watched.
    pub config: &'a Config,
    /// The cgroup's directory, if an extension needs it.
    pub cgroup: Option<File>,
    /// Attached for as long as the sensor is there.
    pub links: Vec<Link>,
    /// Walks over the sockets that are there at the start, in each network namespace.
    pub walks: Vec<Link>,
}

impl<A: Extension, B: Extension> Extension for (A, B) {
    type Attached = (A::Attached, B::Attached);

    fn subcommand(&self) -> Option<Subcommand> {
        self.0.subcommand().or(self.1.subcommand())
    }

    fn needs_cgroup(&self) -> bool {
        self.0.needs_cgroup() || self.1.needs_cgroup()
    }

    fn configure(&self, open: &mut OpenSenseSkel<'_>) {
        self.0.configure(open);
        self.1.configure(open);
    }

    fn attach(&self, loaded: &mut Loaded<'_>) -> Result<Self::Attached, Error> {
        let first = self.0.attach(loaded)?;
        Ok((first, self.1.attach(loaded)?))
    }
}

impl<E: Extension> Extension for Option<E> {
    type Attached = Option<E::Attached>;

    fn subcommand(&self) -> Option<Subcommand> {
        self.as_ref().and_then(E::subcommand)
    }

    fn needs_cgroup(&self) -> bool {
        self.as_ref().is_some_and(E::needs_cgroup)
    }

    fn configure(&self, open: &mut OpenSenseSkel<'_>) {
        if let Some(extension) = self {
            extension.configure(open);
        }
    }

    fn attach(&self, loaded: &mut Loaded<'_>) -> Result<Self::Attached, Error> {
        let attached = self.as_ref().map(|e| e.attach(loaded));
        attached.transpose()
    }
}
