//! The subcommands that depend on the kernel, and how kernels are numbered.

use std::fmt;

use serde::Serialize;

/// Major and minor number of a Linux kernel.
pub type Version = (u32, u32);

/// A subcommand that depends on the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Subcommand {
    /// `batchwise watch`
    Watch,
    /// `batchwise tune`
    Tune,
    /// `batchwise passive`
    Passive,
    /// `batchwise balance`
    Balance,
    /// `batchwise decap`
    Decap,
    /// `batchwise window`
    Window,
    /// `batchwise profile`
    Profile,
    /// `batchwise burst`
    Burst,
}

impl Subcommand {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Watch,
        Self::Tune,
        Self::Passive,
        Self::Balance,
        Self::Decap,
        Self::Window,
        Self::Profile,
        Self::Burst,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Tune => "tune",
            Self::Passive => "passive",
            Self::Balance => "balance",
            Self::Decap => "decap",
            Self::Window => "window",
            Self::Profile => "profile",
            Self::Burst => "burst",
        }
    }
}

impl fmt::Display for Subcommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
